"""Queue ids: the name of a message from reception to report. Short, unique, sortable by arrival.

Eleven characters of arrival time in microseconds, and two for the process that gave out the id, in Crockford's base 32
(digits and capitals without I, L, O, U), which sorts like ASCII and can be read aloud.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["MANAGER", "PICKUP", "QueueIds", "arrival_of"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_CHARACTERS = 11  # 55 bits of microseconds: until the year 3111
_WRITERS = 1024  # two characters
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
MANAGER = _WRITERS - 1  # the manager's own mail; receivers count from 0
PICKUP = _WRITERS - 3  # mail of local programs; also the number of its lane, incoming.1021
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}


class QueueIds:
    """Gives out the ids of one writer, strictly ascending as long as the process lives, even if the clock jumps."""

    def __init__(self, writer: int, clock: Callable[[], float]) -> None:
        if not 0 <= writer < _WRITERS:
            raise ValueError(f"writer {writer}; 0 to {_WRITERS - 1} are allowed")
        self._suffix = _PAIRS[writer]
        self._clock = clock
        self._last = 0

    def next(self) -> str:
        """Returns a new id."""
        now = max(int(self._clock() * 1e6), self._last + 1)
        self._last = now
        pairs = _PAIRS
        return (
            _ALPHABET[now >> 50]
            + pairs[now >> 40 & 1023]
            + pairs[now >> 30 & 1023]
            + pairs[now >> 20 & 1023]
            + pairs[now >> 10 & 1023]
            + pairs[now & 1023]
            + self._suffix
        )


def arrival_of(queue_id: str) -> float:
    """Returns the arrival time in an id, in wall-clock seconds. Raises ValueError if it is not a queue id."""
    characters = queue_id[: _TIME_CHARACTERS + 2]
    if len(characters) < _TIME_CHARACTERS + 2 or any(character not in _VALUES for character in characters):
        raise ValueError(f"{queue_id!r} is not a queue id")
    micros = 0
    for character in characters[:_TIME_CHARACTERS]:
        micros = micros << 5 | _VALUES[character]
    return micros / 1e6
