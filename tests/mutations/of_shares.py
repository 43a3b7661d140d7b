"""Ways to break the division of a limit among shards, in its protocol and in the processes that use it."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

SHARES = "tests/shares/test_shares.py"
ENDS = "tests/deliverer/test_shared_ends.py"
ELECTION = "tests/replication/test_giver_election.py"
GIVING = "tests/manager/test_giving.py"
SHARING = "tests/manager/test_sharing.py"
SLOTS = "tests/manager/test_slots.py"
RATES = "tests/shares/test_rates.py"
SCHEDULER = "tests/scheduler/test_shared.py"

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
    Mutation(
        "a deliverer ends no connection without another word of its manager",
        "mailcore/deliverer/shared_ends.py",
        "            self._timer = self._loop.call_later(max(0.0, end - self._clock()), self._look)\n",
        "            self._timer = None\n",
        ENDS,
    ),
    Mutation(
        "a deliverer ends the connections that rest only",
        "mailcore/deliverer/shared_ends.py",
        "                end.reschedule(self._loop.time())\n",
        "                pass\n",
        ENDS,
    ),
    Mutation(
        "a final dot is sent as long as the share holds",
        "mailcore/deliverer/shared_ends.py",
        "self.allowed(destination, DOT_S) > 0",
        "self.allowed(destination) > 0",
        ENDS,
    ),
    Mutation(
        "a connection begins beside one that rests",
        "mailcore/deliverer/client.py",
        "            self._cache.drop_one(shared)  # a delivery has one connection\n",
        "            pass\n",
        ENDS,
    ),
    Mutation(
        "connections rest when their manager is gone",
        "mailcore/deliverer/deliverer.py",
        "        self._deliverer.ends.lost()\n",
        "",
        ENDS,
    ),
    Mutation(
        "connections that rest are not counted",
        "mailcore/manager/slots.py",
        "            slot.resting = min(slot.resting + 1, resting)\n",
        "            slot.resting = 0\n",
        SLOTS,
    ),
    Mutation(
        "a connection is counted for a deliverer that has one at rest, but no room",
        "mailcore/manager/slots.py",
        "            if slot.resting and link.busy < link.capacity:\n",
        "            if slot.resting:\n",
        SLOTS,
    ),
    Mutation(
        "a deliverer that is gone has no connections from that moment on",
        "mailcore/manager/slots.py",
        "GONE_S = 1.0 ",
        "GONE_S = 0.0 ",
        SLOTS,
    ),
    Mutation(
        "a connection that rests is used beyond a smaller share",
        "mailcore/manager/slots.py",
        "        if total > allowed:\n            return None\n",
        "",
        SLOTS,
    ),
    Mutation(
        "a manager gives entries out beyond its share",
        "mailcore/manager/sharing.py",
        "self._slots.place(name, roomiest, self._deliverers, allowed, now)",
        "self._slots.place(name, roomiest, self._deliverers, 1000, now)",
        SHARING,
    ),
    Mutation(
        "a manager asks for what it uses without what rests",
        "mailcore/manager/sharing.py",
        "        in_use = self._slots.totals(now)\n",
        "        in_use = {name: total - self._slots.resting(name) for name, total in self._slots.totals(now).items()}\n",
        SHARING,
    ),
    Mutation(
        "the connections of an idle queue rest while another one waits",
        "mailcore/manager/sharing.py",
        "        self._returning |= idle & self._sought\n",
        "",
        SHARING,
    ),
    Mutation(
        "a giver does not wait for the shares that the one before gave",
        "mailcore/manager/election.py",
        "self._begin(Elected(max(epoch, heard) + 1, min(now, until)))",
        "self._begin(Elected(max(epoch, heard) + 1, now - COUNTED_S))",
        GIVING,
    ),
    Mutation(
        "a giver answers whose file was removed",
        "mailcore/manager/election.py",
        "            if self._is_ours():\n                self._go_on()\n",
        "            if True:\n                self._go_on()\n",
        GIVING,
    ),
    Mutation(
        "shares hold without an end",
        "mailcore/scheduler/shared.py",
        '        self._owner.timetable.at(self, "until", lambda _: self._over())\n',
        "",
        SCHEDULER,
    ),
    Mutation(
        "deliveries begin without a share",
        "mailcore/scheduler/jobs.py",
        "self.busy < self.window.concurrency and self.busy < self.share and not self.barred",
        "self.busy < self.window.concurrency and not self.barred",
        SCHEDULER,
    ),
    Mutation(
        "a part of a rate is the whole rate",
        "mailcore/scheduler/destinations.py",
        "    if one.part > 0:\n        return max(",
        "    if False:\n        return max(",
        SCHEDULER,
    ),
    Mutation(
        "what passed of a pause with a small part counts as if the part had been larger",
        "mailcore/scheduler/shared.py",
        "        one.earned += max(0.0, now - one.begun_at) * one.part\n",
        "        one.earned += max(0.0, now - one.begun_at)\n",
        RATES,
    ),
    Mutation(
        "a queue without mail gives its part back before its pause has passed, and waits when it has mail again",
        "mailcore/manager/sharing.py",
        "    for name, delay in shared.rests():",
        "    for name, delay in ():",
        RATES,
    ),
    Mutation(
        "a queue without a part of a rate delivers",
        "mailcore/scheduler/shared.py",
        "            if part <= 0 < _pause(one):\n",
        "            if False:\n",
        SCHEDULER,
    ),
    Mutation(
        "the rate of a transport is each queue's own",
        "mailcore/manager/sharing.py",
        "given.get(rate_of(transport_of(name)), 0) / PARTS",
        "1.0",
        "tests/manager/test_sharing.py -k rate_is_divided",
    ),
    Mutation(
        "a process takes the row of a giver that renews it",
        "mailcore/replication/giver_election.py",
        '        elif row.owner in (self._owner, "") or self._watch.is_silent():\n',
        "        else:\n",
        ELECTION,
    ),
    Mutation(
        "a giver answers when its election is over",
        "mailcore/replication/giver_election.py",
        "        return self.elected is not None and lease is not None and lease.holds(self._clock())\n",
        "        return self.elected is not None\n",
        ELECTION,
    ),
    Mutation(
        "a delivery that is stopping keeps others from the end of their share",
        "mailcore/deliverer/shared_ends.py",
        "                if not end.expired():",
        "                if True:",
        "tests/deliverer/test_shared_ends.py -k takes_a_moment",
    ),
    Mutation(
        "an end that comes while the deliverer looks for ends is missed",
        "mailcore/deliverer/shared_ends.py",
        "if until > now]:",
        "if until > self._clock()]:",
        "tests/deliverer/test_shared_ends.py -k not_missed",
    ),
]
