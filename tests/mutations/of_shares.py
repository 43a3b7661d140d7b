"""Ways to break the division of a limit among shards."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

SHARES = "tests/shares/test_shares.py"

MUTATIONS = [
    Mutation(
        "a share holds from its answer on",
        "mailcore/shares/holder.py",
        "        self._until = until = asked.at + SHARE_S * (1 - DRIFT)\n",
        "        self._until = until = asked.at + 2 * SHARE_S\n",
        SHARES,
    ),
    Mutation(
        "an answer to an earlier question replaces shares that were given back",
        "mailcore/shares/holder.py",
        "round_ < self._final or ",
        "",
        SHARES,
    ),
    Mutation(
        "an answer covers connections that its question did not tell of",
        "mailcore/shares/holder.py",
        "            connections = max(answer.shares.get(name, 0), asked.in_use.get(name, 0))\n",
        "            connections = max(answer.shares.get(name, 0), self.kept(name, asked.at))\n",
        SHARES,
    ),
    Mutation(
        "a smaller share is counted before the shard uses it",
        "mailcore/shares/giver.py",
        "if ask.is_final or each.term < ask.applied]\n",
        "if True]\n",
        SHARES,
    ),
    Mutation(
        "connections beyond a share that became smaller are not counted",
        "mailcore/shares/giver.py",
        "max(given, min(wish.in_use, most)), now + COUNTED_S",
        "given, now + COUNTED_S",
        SHARES,
    ),
    Mutation(
        "a shard that has fallen silent loses its share at once",
        "mailcore/shares/giver.py",
        "COUNTED_S = SHARE_S * (1 + DRIFT)\n",
        "COUNTED_S = SHARE_S / 2\n",
        SHARES,
    ),
    Mutation(
        "a giver that was elected gives at once",
        "mailcore/shares/giver.py",
        "        self._knows_all_at = elected_at + COUNTED_S\n",
        "        self._knows_all_at = elected_at\n",
        SHARES,
    ),
    Mutation(
        "a question from before an election is answered by the new giver",
        "mailcore/shares/giver.py",
        "        if ask.epoch < self.epoch:\n            return Welcome(self.epoch)\n",
        "",
        SHARES,
    ),
    Mutation(
        "a giver believes what a late question says that its shard has",
        "mailcore/shares/giver.py",
        "        if ask.applied.epoch < self.epoch and now < self._knows_all_at and has > holding.most(now):\n",
        "        if has > holding.most(now):\n",
        SHARES,
    ),
]
