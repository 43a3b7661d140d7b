"""Queue ids: the name of a message from reception to report. Short, unique, sortable by arrival.

Thirteen characters in Crockford's base 32 (digits and capitals without I, L, O, U), which sorts like ASCII and can be read
aloud: 65 bits, of which the first are the arrival time in microseconds. Then comes the process that gave out the id, in ten
bits; or, in a queue that is one of several, the number of the shard in six and the process in seven. The first character tells
which: from C on there is a shard. So the time ends in the year 2112 with a shard, and 2398 without.

Keeps law: ids-never-reused (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Executor

from mailcore.queue.reserved_time import ReservedTime

__all__ = ["CONTROL", "PICKUP", "SHARDS", "QueueIds", "arrival_of", "shard_of"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHARACTERS = 13
_WRITER_BITS = 10
_WRITERS = 1 << _WRITER_BITS
SHARDS = 64  # their numbers; 0 is a queue that is alone, and bears none
_SHARD_WRITER_BITS = 7  # the last bits of the writer: receivers are at most 64
_SHARD_BITS = 6 + _SHARD_WRITER_BITS
_SHARD_FIRST = 12  # the first character of an id with a shard is at least C
_SHARD_FROM = _SHARD_FIRST << 60 - _SHARD_BITS  # the time of the first such id: in July 2023
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
CONTROL = _WRITERS - 2  # mail that comes over the control socket; receivers count from 0
PICKUP = _WRITERS - 3  # mail of local programs; also the number of its lane, incoming.1021
_OLDER_MAX = 60_000_000  # microseconds by which an id may be older than its message; a file's age is judged by its id
_LEFT = 1_000_000  # of the reserved time, for ids that are older
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}


class QueueIds:
    """Gives out the ids of one writer, strictly ascending, even if the clock jumps.

    With ``reserved`` they ascend over restarts, too: no id is given out whose time is not reserved on the disk. With
    ``threads`` a loop that gives them out does not wait for the disk: time is reserved in a thread (``prepare``), and an id may
    be a little older than its message.
    """

    def __init__(
        self,
        writer: int,
        clock: Callable[[], float],
        reserved: ReservedTime | None = None,
        threads: Executor | None = None,
        *,
        shard: int = 0,
    ) -> None:
        if not 0 <= writer < _WRITERS:
            raise ValueError(f"writer {writer}; 0 to {_WRITERS - 1} are allowed")
        if not 0 <= shard < SHARDS:
            raise ValueError(f"shard {shard}; 0 to {SHARDS - 1} are allowed")
        self._bits = _SHARD_BITS if shard else _WRITER_BITS
        self._end = shard << _SHARD_WRITER_BITS | writer % (1 << _SHARD_WRITER_BITS) if shard else writer
        self._clock = clock
        self._last = _SHARD_FROM if shard else 0
        self._reserved = reserved
        self._threads = threads
        self._is_reserving = False

    def prepare(self) -> None:
        """Reserves time for the next ids in a thread, if little is left."""
        if self._reserved is not None and self._threads is not None and not self._is_reserving:
            clock = int(self._clock() * 1e6)
            if max(clock, self._last + 1) >= self._reserved.soon:
                self._is_reserving = True
                self._threads.submit(self._extend, self._reserved, clock)

    def next(self) -> str:
        """Returns a new id. Raises OSError if no time can be reserved for it."""
        clock = int(self._clock() * 1e6)
        now = max(clock, self._last + 1) if self._reserved is None else self._within(self._reserved, clock)
        self._last = now
        bits = now << self._bits | self._end
        pairs = _PAIRS
        return (
            _ALPHABET[bits >> 60]
            + pairs[bits >> 50 & 1023]
            + pairs[bits >> 40 & 1023]
            + pairs[bits >> 30 & 1023]
            + pairs[bits >> 20 & 1023]
            + pairs[bits >> 10 & 1023]
            + pairs[bits & 1023]
        )

    def _within(self, reserved: ReservedTime, clock: int) -> int:
        """Returns the time of the next id, which is reserved: one of a moment ago if that needs no wait."""
        until = reserved.until  # it is set after the floor, in another thread
        now = max(clock, self._last + 1, reserved.floor + 1)
        if now <= until:
            return now
        first = max(self._last, reserved.begin()) + 1
        if self._threads is not None and clock - until < _OLDER_MAX:
            self.prepare()
            if (before := max(first, until - _LEFT)) <= until:
                return before
        reserved.extend(clock, max(clock, first))
        return max(clock, first)

    def _extend(self, reserved: ReservedTime, clock: int) -> None:
        try:
            with contextlib.suppress(OSError):  # the id that finds nothing reserved raises it
                reserved.extend(clock, max(clock, self._last + 1, reserved.begin() + 1))
        finally:
            self._is_reserving = False


def arrival_of(queue_id: str) -> float:
    """Returns the arrival time in an id, in wall-clock seconds. Raises ValueError if it is not a queue id."""
    bits, has_shard = _bits_of(queue_id)
    return (bits >> (_SHARD_BITS if has_shard else _WRITER_BITS)) / 1e6


def shard_of(queue_id: str) -> int:
    """Returns the number of the shard in an id; 0: that of a queue that is alone. Raises ValueError if it is not a queue id."""
    bits, has_shard = _bits_of(queue_id)
    return bits >> _SHARD_WRITER_BITS & SHARDS - 1 if has_shard else 0


def _bits_of(queue_id: str) -> tuple[int, bool]:
    """Returns the bits of an id, and whether it has the number of a shard. A report's id begins with that of its message."""
    characters = queue_id[:_CHARACTERS]
    if len(characters) < _CHARACTERS or any(character not in _VALUES for character in characters):
        raise ValueError(f"{queue_id!r} is not a queue id")
    bits = 0
    for character in characters:
        bits = bits << 5 | _VALUES[character]
    return bits, _VALUES[characters[0]] >= _SHARD_FIRST
