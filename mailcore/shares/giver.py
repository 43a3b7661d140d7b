"""Gives shares of limits to shards: the part of the one node that was elected for it.

A share is counted until its shard cannot use it any more: until the shard has said that it uses a later answer, or until the
share has ended by the slowest clock. So a message that is lost or late leaves connections unused for a while, and never brings
one too many. A shard that has fallen silent keeps its share until the end of it.

Laws
- The shares and connections of all shards together are at most the limit, or fall to it after it was lowered.
- A giver that was elected first hears which shares each shard has held since the election: the giver before it counted them, so
  they are renewed. It gives nothing more until everything that it cannot know of has ended.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mailcore.shares.deaths import Deaths
from mailcore.shares.division import divided
from mailcore.shares.holder import DRIFT, SHARE_S
from mailcore.shares.messages import Answer, Ask, Term, Welcome, Wish

__all__ = ["COUNTED_S", "Giver"]

COUNTED_S = SHARE_S * (1 + DRIFT)
TURN_S = 2.0  # with a limit below the number of shards, they take turns


@dataclass(slots=True)
class _Counted:
    """Counts what a shard may have by one answer, until then: its share, and connections beyond it that the answer covers."""

    term: Term
    share: int
    connections: int  # at least the share
    until: float


@dataclass(slots=True)
class _Holding:
    """Holds what is known of one shard and one destination."""

    wanted: int = 0
    given: int = 0  # by the last answer
    heard: float = 0.0
    counted: list[_Counted] = field(default_factory=list)

    def most(self, now: float) -> int:
        """Returns the connections that the shard may have now."""
        self.counted = [each for each in self.counted if now < each.until]
        return max((each.connections for each in self.counted), default=0)


class Giver:
    """Answers shards. ``epoch`` is the number of its election, ``limit_of`` returns a destination's limit.

    ``now`` is seconds of CLOCK_BOOTTIME of this machine. The caller answers only while its election holds.
    """

    def __init__(self, epoch: int, elected_at: float, limit_of: Callable[[str], int]) -> None:
        self.epoch = epoch
        self._limit_of = limit_of
        self._knows_all_at = elected_at + COUNTED_S
        self._rounds: dict[str, int] = {}  # shard -> the last question
        self._holdings: dict[str, dict[str, _Holding]] = {}  # destination -> shard -> what is known
        self._deaths = Deaths()

    def answer(self, ask: Ask, now: float) -> Answer | Welcome | None:
        """Returns what to say to a question; None for one that is older than another of this shard, or not for this giver."""
        if ask.epoch < self.epoch:
            return Welcome(self.epoch)
        if ask.epoch > self.epoch or ask.round <= self._rounds.get(ask.shard, 0):
            return None
        self._rounds[ask.shard] = ask.round
        for destination in ask.wishes.keys() | {name for name, all_ in self._holdings.items() if ask.shard in all_}:
            self._hear(destination, ask, ask.wishes.get(destination, Wish(0, 0)), now)
        term = Term(self.epoch, ask.round)
        shares = {name: self._share(name, ask.shard, wish, term, now) for name, wish in ask.wishes.items()}
        sought = tuple(name for name in ask.wishes if self._is_sought(name, ask.shard, now))
        self._forget(now)
        self._deaths.hear(ask, now)
        dead = self._deaths.of({*ask.wishes, *ask.dead}, now)
        return Answer(term, {name: given for name, given in shares.items() if given}, sought, dead)

    def counted(self, destination: str, now: float) -> int:
        """Returns how many connections all shards together may have to a destination now."""
        return sum(each.most(now) for each in self._holdings.get(destination, {}).values())

    def _hear(self, destination: str, ask: Ask, wish: Wish, now: float) -> None:
        """Notes what a shard wants, and counts no more what it cannot use any more.

        It is believed only as far as it is counted: its share may have ended while the question was under way, and be another
        shard's now. All shares of the giver before have ended when ``_knows_all_at`` is over.
        """
        holding = self._holdings.setdefault(destination, {}).setdefault(ask.shard, _Holding())
        holding.wanted, holding.heard = wish.wanted, now
        has = max(wish.held, wish.in_use)
        if ask.applied.epoch < self.epoch and now < self._knows_all_at and has > holding.most(now):
            holding.counted.append(_Counted(ask.applied, wish.held, has, now + COUNTED_S))
        most = holding.most(now)
        over = [each for each in holding.counted if ask.is_final or each.term < ask.applied]
        holding.counted = [each for each in holding.counted if each not in over]
        if over:  # connections that began before the shard used the later answer continue until these have ended
            share = min(wish.held, most) if ask.is_final else 0
            holding.counted.append(_Counted(ask.applied, share, min(has, most), max(each.until for each in over)))
        for each in holding.counted:  # beyond a share connections only end
            each.connections = max(each.share, min(each.connections, wish.in_use))

    def _share(self, destination: str, shard: str, wish: Wish, term: Term, now: float) -> int:
        """Returns the new share of a shard, which is counted from now on."""
        holdings = self._holdings[destination]
        most = holdings[shard].most(now)
        if now < self._knows_all_at:
            given = min(wish.held, wish.wanted, most)
        else:
            limit = self._limit_of(destination)
            wanted = {name: each.wanted for name, each in holdings.items() if now - each.heard < COUNTED_S}
            free = max(0, limit - self.counted(destination, now))
            fair = divided(limit, wanted, int(now / TURN_S))[shard]
            given = min(fair, most + free)
        holdings[shard].counted.append(_Counted(term, given, max(given, min(wish.in_use, most)), now + COUNTED_S))
        holdings[shard].given = given
        return given

    def _is_sought(self, destination: str, shard: str, now: float) -> bool:
        """Returns whether another shard, heard of lately, wants more than it has."""
        return any(
            name != shard and each.wanted > each.given and now - each.heard < COUNTED_S
            for name, each in self._holdings.get(destination, {}).items()
        )

    def _forget(self, now: float) -> None:
        """Removes what counts no more: over a long life there are many destinations."""
        for destination, holdings in list(self._holdings.items()):
            for shard, each in list(holdings.items()):
                if not each.most(now) and not each.wanted:
                    del holdings[shard]
            if not holdings:
                del self._holdings[destination]
