"""A model of a next hop: how long a delivery takes, how many it accepts at once, and how it answers the others.

Values only, checked when made; ``site`` simulates them. Each field has its bounds and its meaning, for scenario files and for
their reference page.
"""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, BadValue, bad, choice, custom, flag, number, whole
from mailcore.simulator.distribution import Distribution, distribution

__all__ = ["NextHop", "Span"]

SPANS_MAX = 1_000

Span = tuple[float, float]  # from, to, in seconds


def _spans(given: object) -> tuple[Span, ...]:
    """Reads [[from, to], ...]. Raises BadValue."""
    spans: list[Span] = []
    for item in given if isinstance(given, list | tuple) and len(given) <= SPANS_MAX else (None,):
        pair = item if isinstance(item, list | tuple) and len(item) == 2 else (None, None)
        ends = [float(end) for end in pair if isinstance(end, int | float) and not isinstance(end, bool)]
        if len(ends) != 2 or not 0 <= ends[0] < ends[1]:
            raise bad(given, "must be [[from, to], ...] in seconds, each from before its to")
        spans.append((ends[0], ends[1]))
    return tuple(sorted(spans))


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """A model of one next hop. The default is a server that accepts everything within 0.2 seconds."""

    transaction_s: Distribution = distribution(  # noqa: RUF009  # it is immutable
        0.2, "duration of one delivery, without the time for its recipients"
    )
    recipient_s: Distribution = distribution(0.0, "additional duration for each recipient")  # noqa: RUF009
    connect_s: float = number(
        0.0, 0, 3600, "seconds", "duration of a new connection (TCP, TLS, greeting and EHLO), successful or not"
    )
    processes: int = whole(
        0, 0, 1_000_000, "connections", "maximum connections served at the same time", special={0: "no limit"}
    )
    listen: int = whole(
        128,
        0,
        1_000_000,
        "connections",
        "connections that can wait for a free process; on Linux, a listen(2) backlog of B lets B + 1 wait",
    )
    listen_full: str = choice(
        "dropped",
        ("dropped", "accepted"),
        "how further connections end: dropped, after connect_timeout_s; accepted by TCP, as on Linux, after "
        "greeting_timeout_s",
    )
    connections_max: int = whole(
        0, 0, 1_000_000, "connections", "more concurrent connections from us get 421", special={0: "no limit"}
    )
    servers: int = whole(1, 1, 10_000, "servers", "servers behind one address")
    servers_bad: int = whole(0, 0, 10_000, "servers", "how many of them close the connection before the greeting")
    balancing: str = choice("random", ("random", "round robin"), "how a connection is assigned to one of the servers")
    rate_recipients: int = whole(
        0, 0, 1_000_000_000, "recipients", "maximum recipients accepted in each period", special={0: "no limit"}
    )
    rate_period_s: float = number(60.0, 0.001, DAY_S, "seconds", "length of such a period")
    rate_reply: str = choice(
        "450", ("450", "421"), "answer above that rate: 450 for the recipient, or 421 and the end of the connection"
    )
    dead: tuple[Span, ...] = custom(
        (), "[[from, to], ...]", "times in seconds at which the next hop cannot be reached", _spans
    )
    dead_how: str = choice(
        "refused", ("refused", "silent"), "at these times it refuses connections, or does not answer at all"
    )
    deferred_share: float = number(0.0, 0, 1, "of the recipients", "share of recipients that get a 450")
    bounced_share: float = number(0.0, 0, 1, "of the recipients", "share of recipients that get a 550")
    shared: bool = flag(
        False, "all destinations of this pattern share one next hop, as at a provider; false: each has its own"
    )

    def __post_init__(self) -> None:
        """Raises BadValue if two values contradict each other."""
        if self.servers_bad > self.servers:
            raise BadValue(
                "servers_bad", self.servers_bad, f"must not exceed servers (got {self.servers_bad} of {self.servers})"
            )
        if self.deferred_share + self.bounced_share > 1:
            raise BadValue(
                "deferred_share",
                self.deferred_share,
                f"and bounced_share must not exceed 1 together (got {self.deferred_share} and {self.bounced_share})",
            )
