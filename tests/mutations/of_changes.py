"""Ways to break changes that operators order."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

OF_SOME = "tests/manager/test_retry_of_some.py"
REQUESTED = "tests/queue/test_requested.py"

MUTATIONS = [
    Mutation(
        "a start forgets the retries that wait for room",
        "mailcore/queue/recovery.py",
        "        queue.requested.restore(queue.journal, folded.requested)\n",
        "",
        REQUESTED,
    ),
    Mutation(
        "retries that wait for room are not written again",
        "mailcore/queue/suffix.py",
        "        stated += queue.requested.state_anew(queue.journal)\n",
        "        break\n",
        REQUESTED,
    ),
    Mutation(
        "the journal does not keep the retries that wait for room",
        "mailcore/queue/queue.py",
        "        starts = (next(iter(self.starts), None), self.requested.lowest)\n",
        "        starts = (next(iter(self.starts), None), None)\n",
        REQUESTED,
    ),
    Mutation(
        "a retry that waits for room outlives the START of its message",
        "mailcore/queue/fold.py",
        "        del folded.requested[start.queue_id]\n",
        "        pass\n",
        REQUESTED,
    ),
    Mutation(
        "the retries that wait for room are not bounded",
        "mailcore/manager/orders.py",
        "elif others or len(queue.requested) >= context.settings.queue.retries_waiting:",
        "elif others:",
        "tests/manager/test_retries_waiting.py -k bound",
    ),
    Mutation(
        "a retry of some recipients tries the others, too",
        "mailcore/manager/admission.py",
        "(only is not None and not only.covers(number))",
        "False",
        f"{OF_SOME} -k named",
    ),
    Mutation(
        "a message that is stated again forgets whom a retry named",
        "mailcore/queue/suffix.py",
        "        active.stated_orders,\n",
        "        active.orders,\n",
        f"{OF_SOME} -k kill",
    ),
    Mutation(
        "after a kill all recipients of a message with an order are due",
        "mailcore/queue/queue.py",
        "        if active.orders:  # the recipients",
        "        if False:  # the recipients",
        f"{OF_SOME} -k kill",
    ),
    Mutation(
        "a suspension puts off those whom a retry did not name",
        "mailcore/manager/placing.py",
        "elif active.only is not None and",
        "elif False and active.only is not None and",
        f"{OF_SOME} -k suspended",
    ),
    Mutation(
        "a change of some recipients ends the retry of the others",
        "mailcore/manager/orders.py",
        "            if requested is not None:\n",
        "            if False:\n",
        "tests/manager/test_retries_waiting.py -k some_recipients",
    ),
    Mutation(
        "mail that was counted is left alone because its clock was ahead",
        "mailcore/lookup/cutoff.py",
        "                continue\n            if item.arrived_at > self.at or",
        "                pass\n            if item.arrived_at > self.at or",
        "tests/control/test_changes.py -k although_its_clock",
    ),
    Mutation(
        "the ages of a filter follow a clock that is set back",
        "mailcore/control/changes.py",
        "    passed = now - at\n",
        "    passed = max(now - at, 0.0)\n",
        "tests/control/test_changes.py -k set_back_after",
    ),
    Mutation(
        "an undeleted recipient who is returned with the last of a message still counts as deleted",
        "mailcore/manager/outcomes.py",
        "            self.undeleted[1] += active.deleted  ",
        "            self.undeleted[1] += 0  ",
        "tests/manager/test_undelete_and_bounce.py -k counts_as_both",
    ),
]
