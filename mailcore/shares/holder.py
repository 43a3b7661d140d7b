"""The shares of one shard: what it asks for, and how many connections it may have to each destination now.

Laws
- A share holds for ``SHARE_S`` from before the question was sent, by the clock of this process; not from the answer, which may
  have been under way for long.
- Only the answer to a later question replaces shares.
- Without a share no connection begins. Connections beyond a share that became smaller continue while an answer covers them: the
  answer that allowed them, and each answer to a question that counted them. Then they are ended (``kept``).

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mailcore.shares.messages import NEVER, Answer, Ask, Dead, Term, Welcome, Wish

__all__ = ["DRIFT", "SHARE_S", "Holder"]

SHARE_S = 6.0  # as the lease of a shard
DRIFT = 0.01  # by which the rates of two clocks may differ; those of machines differ by less than a thousandth
ASKS_KEPT = 64  # questions without an answer; an answer to an older one comes too late in any case


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that was sent."""

    at: float
    in_use: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Cover:
    """Connections that an answer covers, until then."""

    connections: int
    until: float


class Holder:
    """Keeps the shares of one shard. ``now`` is seconds of CLOCK_BOOTTIME of this machine."""

    def __init__(self, shard: str) -> None:
        self.shard = shard
        self._epoch = 0
        self._round = 0
        self._final = 0  # answers to questions before this round are not used any more
        self._asked: dict[int, _Asked] = {}  # by round
        self._applied: Term = NEVER
        self._until = 0.0  # the end of the shares
        self._shares: dict[str, int] = {}
        self._covers: dict[str, list[_Cover]] = {}

    @property
    def epoch(self) -> int:
        """Returns that of the last giver that was heard of."""
        return self._epoch

    @property
    def until(self) -> float:
        """Returns the end of all shares, unless another answer comes before."""
        return self._until

    def ask(
        self,
        now: float,
        wanted: Mapping[str, int],
        in_use: Mapping[str, int],
        dead: Mapping[str, Dead] | None = None,
        alive: tuple[str, ...] = (),
    ) -> Ask:
        """Returns the question to be sent now; ``wanted`` and ``in_use`` are connections by destination.

        Gives back what is not wanted, at once. ``dead`` and ``alive`` are only passed on.
        """
        self._forget(now)
        self._round += 1
        self._asked[self._round] = _Asked(now, dict(in_use))
        for old in list(self._asked)[:-ASKS_KEPT]:
            del self._asked[old]
        kept: dict[str, int] = {}
        for name in self._shares if now < self._until else ():
            if share := min(self._shares[name], max(wanted.get(name, 0), in_use.get(name, 0))):
                kept[name] = share
        is_final = kept != self._shares
        self._shares = kept
        if is_final:
            self._final = self._round
        wishes = {
            name: Wish(wanted.get(name, 0), in_use.get(name, 0), kept.get(name, 0))
            for name in {*wanted, *in_use, *kept}
        }
        return Ask(self.shard, self._epoch, self._round, self._applied, is_final, wishes, dead or {}, alive)

    def answered(self, answer: Answer) -> bool:
        """Takes an answer; returns False for one that comes too late, which changes nothing."""
        epoch, round_ = answer.term
        asked = self._asked.get(round_)
        if asked is None or round_ < self._final or epoch < self._applied.epoch:
            return False
        self._applied = answer.term
        self._epoch = max(self._epoch, epoch)
        self._shares = dict(answer.shares)
        self._until = until = asked.at + SHARE_S * (1 - DRIFT)
        for name in {*answer.shares, *asked.in_use}:
            connections = max(answer.shares.get(name, 0), asked.in_use.get(name, 0))
            # An earlier answer is kept only if it covers more connections: it ends before this one.
            covers = [each for each in self._covers.get(name, ()) if each.connections > connections]
            self._covers[name] = [*covers, _Cover(connections, until)]
        self._asked = {each: sent for each, sent in self._asked.items() if each > round_}
        return True

    def welcomed(self, welcome: Welcome) -> bool:
        """Takes the news of another giver; returns whether to ask again at once."""
        is_news = welcome.epoch > self._epoch
        self._epoch = max(self._epoch, welcome.epoch)
        return is_news

    def allowed(self, destination: str, now: float) -> int:
        """Returns how many connections this shard may have to a destination: none begins beyond that."""
        return self._shares.get(destination, 0) if now < self._until else 0

    def given(self, now: float) -> dict[str, int]:
        """Returns all shares, by destination."""
        return dict(self._shares) if now < self._until else {}

    def kept(self, destination: str, now: float) -> int:
        """Returns how many connections may continue now: those beyond are to be ended."""
        return max((each.connections for each in self._covers.get(destination, ()) if now < each.until), default=0)

    def ends(self, destination: str) -> list[tuple[float, int]]:
        """Returns until when how many connections are kept, unless another answer comes before."""
        return [(each.until, each.connections) for each in self._covers.get(destination, ())]

    def _forget(self, now: float) -> None:
        """Removes what covers nothing any more."""
        covers = {name: [each for each in all_ if now < each.until] for name, all_ in self._covers.items()}
        self._covers = {name: left for name, left in covers.items() if left}
