"""A next hop as a model: how long it takes, how many it serves at once, and what it does with those it cannot serve.

Values only, checked when made; ``site`` brings them to life. Each field says in its metadata what is allowed and what it
means, for whoever reads a scenario, and for its page.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mailcore.simulator.distribution import Distribution
from mailcore.simulator.field import DAY_S, Span, choice, flag, number, read_by, spans

__all__ = ["NextHop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """The defaults are a server that takes everything in a fifth of a second."""

    transaction_s: Distribution = field(
        default=Distribution("constant", (0.2,)),
        metadata=read_by(Distribution.parse, "of a transaction, without what its recipients take"),
    )
    recipient_s: Distribution = field(
        default=Distribution("constant", (0.0,)), metadata=read_by(Distribution.parse, "for each recipient besides")
    )
    connect_s: float = number(
        0.0, 0, 3600, "for a new connection: TCP, TLS, greeting and EHLO, when they succeed or fail"
    )
    processes: int = number(0, 0, 1_000_000, "connections served at the same time; 0: any number")
    listen: int = number(
        128,
        0,
        1_000_000,
        "connections that wait for a process to be free; a listen(2) backlog of B lets B + 1 wait on Linux",
    )
    listen_full: str = choice(
        "dropped",
        ("dropped", "accepted"),
        "what becomes of more: dropped, they end after connect_timeout_s; accepted at the level of TCP, as on Linux, "
        "they end after greeting_timeout_s",
    )
    connections_max: int = number(0, 0, 1_000_000, "above so many connections from us it answers 421; 0: no limit")
    servers: int = number(1, 1, 10_000, "servers behind one address")
    servers_bad: int = number(0, 0, 10_000, "those of them that drop the connection before the greeting")
    balancing: str = choice("random", ("random", "round robin"), "which of the servers gets a connection")
    rate_recipients: int = number(0, 0, 1_000_000_000, "recipients taken in each period; 0: no limit")
    rate_period_s: float = number(60.0, 0.001, DAY_S, "length of such a period")
    rate_reply: str = choice(
        "450", ("450", "421"), "beyond that rate: 450 for the recipient, or 421 and the end of the connection"
    )
    dead: tuple[Span, ...] = spans("[[from, to], ...]: seconds in which nothing can be reached")
    dead_how: str = choice(
        "refused", ("refused", "silent"), "a dead one refuses connections, or does not answer at all"
    )
    deferred_share: float = number(0.0, 0, 1, "share of recipients that get a 450")
    bounced_share: float = number(0.0, 0, 1, "share of recipients that get a 550")
    shared: bool = flag(False, "one site for all destinations of this pattern, as a provider has; else one for each")

    def __post_init__(self) -> None:
        """Raises ValueError at values that contradict each other."""
        if self.servers_bad > self.servers:
            raise ValueError(f"servers_bad = {self.servers_bad} is more than servers = {self.servers}")
        if self.deferred_share + self.bounced_share > 1:
            raise ValueError(
                f"deferred_share = {self.deferred_share} and bounced_share = {self.bounced_share} are more than 1"
            )
