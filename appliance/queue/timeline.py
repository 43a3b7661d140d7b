"""A message's history as a page shows it: events in order, and the delays of each attempt as bars.

Delays are Postfix's: a before the manager takes the message from its lane, b in the queue manager, c connecting, d sending. a
contains the waiting and is often a thousand times longer than the rest, so it has its own scale; b, c and d share another.
All attempts use the same scales, so that their bars can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mailcore.control.protocol.messages import (
    Accepted,
    Administered,
    Attempt,
    AttemptVerdict,
    BounceQueued,
    Deferred,
    Finished,
    History,
    Moved,
    Settled,
)

__all__ = ["ShownAttempt", "ShownSettled", "Timeline", "fates", "timeline"]

WIDTH = 1000.0  # of a bar's drawing; it is stretched to its column
LEAST = 4.0  # a delay above 0 is at least this wide, so that it can be seen
VERDICTS_SHOWN = 20  # of one attempt; the others are among the recipients


@dataclass
class Bar:
    """Holds one part of a delay as a bar of a chart."""

    name: str
    seconds: float
    x: float
    width: float

    @property
    def words(self) -> str:
        """Returns the delay in words, finer than on other pages: sending takes some milliseconds."""
        return f"{self.seconds * 1000:.1f} ms" if self.seconds < 1 else f"{self.seconds:.2f} s"


@dataclass
class ShownAttempt:
    """Holds an attempt at delivery with its delays as bars."""

    at: float
    destination: str
    relay: str
    tls: str
    waited: list[Bar]  # a
    tried: list[Bar]  # b, c and d
    verdicts: list[AttemptVerdict]  # the first VERDICTS_SHOWN
    more: int  # verdicts that are not shown
    tls_level: str = ""  # the level and its reason
    event: str = "attempt"


@dataclass
class ShownSettled:
    """Holds verdicts that were given without an attempt."""

    at: float
    destination: str  # "" if the mail lacks one
    verdicts: list[AttemptVerdict]  # the first VERDICTS_SHOWN
    more: int  # verdicts that are not shown
    event: str = "settled"


ShownEvent = ShownAttempt | ShownSettled | Accepted | Deferred | Moved | BounceQueued | Administered | Finished


@dataclass
class Timeline:
    """Holds the events of ``history``."""

    events: list[ShownEvent] = field(default_factory=list)
    waited_max: float = 0.0
    tried_max: float = 0.0
    complete: bool = True
    note: str = ""
    left_out: int = 0

    @property
    def attempts(self) -> int:
        """Returns the number of attempts at delivery."""
        return sum(1 for event in self.events if isinstance(event, ShownAttempt))


def timeline(history: History) -> Timeline:
    """Returns the timeline of an answer to ``history``."""
    told = Timeline(
        complete=history.complete,
        note=history.note,
        left_out=history.events_left_out,
    )
    delays = [_delays(event) for event in history.events if isinstance(event, Attempt)]
    told.waited_max = max((a for a, *_ in delays), default=0.0)
    told.tried_max = max((sum(rest) for _, *rest in delays), default=0.0)
    for event in history.events:
        match event:
            case Attempt():
                told.events.append(_shown(event, told))
            case Settled():
                shown = ShownSettled(event.at, event.destination, event.verdicts[:VERDICTS_SHOWN], _more(event))
                told.events.append(shown)
            case _:
                told.events.append(event)
    return told


def fates(history: History) -> dict[int, tuple[AttemptVerdict, str]]:
    """Returns the last verdict, and its relay, by the number of its recipient, as far as history has it."""
    last: dict[int, tuple[AttemptVerdict, str]] = {}
    for event in history.events:
        if isinstance(event, Attempt | Settled):
            relay = event.relay if isinstance(event, Attempt) else "none"
            last.update((verdict.number, (verdict, relay)) for verdict in event.verdicts)
    return last


def _shown(attempt: Attempt, told: Timeline) -> ShownAttempt:
    a, *rest = _delays(attempt)
    return ShownAttempt(
        at=attempt.at,
        destination=attempt.destination,
        relay=attempt.relay,
        tls=attempt.tls,
        waited=_bars("a", [a], told.waited_max),
        tried=_bars("bcd", rest, told.tried_max),
        verdicts=attempt.verdicts[:VERDICTS_SHOWN],
        more=_more(attempt),
        tls_level=attempt.tls_level,
    )


def _more(event: Attempt | Settled) -> int:
    return max(len(event.verdicts) - VERDICTS_SHOWN, 0) + event.verdicts_left_out


def _delays(attempt: Attempt) -> list[float]:
    """Returns the four delays in seconds, none of them negative."""
    given = [max(each, 0.0) for each in attempt.delays][:4]
    return given + [0.0] * (4 - len(given))


def _bars(names: str, seconds: Sequence[float], longest: float) -> list[Bar]:
    bars: list[Bar] = []
    x = 0.0
    for name, length in zip(names, seconds, strict=True):
        width = max(length / longest * WIDTH, LEAST) if longest > 0 and length > 0 else 0.0
        bars.append(Bar(name, length, round(min(x, WIDTH), 1), round(min(width, max(WIDTH - x, 0.0)), 1)))
        x += width
    return bars
