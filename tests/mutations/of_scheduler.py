"""Ways to break the scheduler."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

WINDOW = "tests/scheduler/test_window.py"
EXAMPLES = "tests/scheduler/test_document_examples.py"
WALKS = "tests/scheduler/test_against_document.py -k walk"
INFLATION = "tests/scheduler/test_inflation.py"
MEMORY = "tests/scheduler/test_recipient_memory.py"
WHY = "tests/scheduler/test_why_waiting.py"
CALLS = "tests/scheduler/test_scheduler.py"

MUTATIONS = [
    Mutation(
        "a message of lower priority preempts",
        "mailcore/scheduler/preemption.py",
        "if size[0] > slots or size[2] < priority:",
        "if size[0] > slots:",
        "tests/scheduler/test_priority.py",
    ),
    # The window
    Mutation(
        "positive feedback however far the window is above what is in use",
        "mailcore/scheduler/window.py",
        " or concurrency >= busy + parameters.initial_destination_concurrency:",
        ":",
        WINDOW,
    ),
    Mutation(
        "the cycle of negative feedback is not reversed",
        "mailcore/scheduler/window.py",
        "        while self.failure < -ROUNDING:\n",
        "        while self.failure <= ROUNDING - 1:\n",
        WINDOW,
    ),
    Mutation(
        "a destination is dead only beyond the limit of failed cohorts",
        "mailcore/scheduler/window.py",
        "self.fail_cohorts >= cohorts - ROUNDING",
        "self.fail_cohorts > cohorts + ROUNDING",
        WINDOW,
    ),
    Mutation(
        "a good delivery does not begin the failed cohorts anew",
        "mailcore/scheduler/window.py",
        "        self.fail_cohorts = 0.0\n        concurrency",
        "        concurrency",
        WINDOW,
    ),
    Mutation(
        "ten tenths are not one",
        "mailcore/scheduler/window.py",
        "1 - ROUNDING",
        "1",
        WINDOW,
    ),
    Mutation(
        "a destination back from the dead has its limit for a window",
        "mailcore/scheduler/destinations.py",
        "min(destination.busy, destination.limit)",
        "destination.limit",
        "tests/scheduler/test_destinations.py",
    ),
    # Preemption
    Mutation(
        "a preemption costs slots, not the entries that earn them",
        "mailcore/scheduler/preemption.py",
        "current.slots_available -= needed * price",
        "current.slots_available -= needed",
        f"{EXAMPLES} {INFLATION}",
    ),
    Mutation(
        "slots that were not used are lost",
        "mailcore/scheduler/preemption.py",
        "parent.slots_available -= job.slots_used * job.price",
        "pass",
        EXAMPLES,
    ),
    Mutation(
        "what a preemption will use is counted twice",
        "mailcore/scheduler/preemption.py",
        "candidate.slots_used = -needed",
        "candidate.slots_used = 0",
        f"{EXAMPLES} {INFLATION}",
    ),
    Mutation(
        "an adoptive parent pays for the children of another",
        "mailcore/scheduler/preemption.py",
        "        if parent is job.preempted:\n",
        "        if True:\n",
        EXAMPLES,
    ),
    Mutation(
        "children are not adopted",
        "mailcore/scheduler/preemption.py",
        "        child.parent = parent\n        if parent is not None:\n",
        "        child.parent = None\n        if False:\n",
        EXAMPLES,
    ),
    Mutation(
        "a job that is preempted itself may preempt",
        "mailcore/scheduler/preemption.py",
        "if job.listed and needed and not job.children else None",
        "if job.listed and needed else None",
        WALKS,
    ),
    Mutation(
        "only who fits into the slots that are there already is a candidate",
        "mailcore/scheduler/preemption.py",
        "(current.entries + current.slots_available) //",
        "current.slots_available //",
        EXAMPLES,
    ),
    Mutation(
        "who has fewest entries is the candidate, however long others wait",
        "mailcore/scheduler/preemption.py",
        "score = (now - job.message.enqueued + 1) / size[1]",
        "score = 1 / size[1]",
        EXAMPLES,
    ),
    Mutation(
        "a blocked job is a candidate",
        "mailcore/scheduler/preemption.py",
        "if any(peer.destination.able() for peer in job.peers.values()):",
        "if True:",
        f"{EXAMPLES} {CALLS}",
    ),
    Mutation(
        "the discount is not given",
        "mailcore/scheduler/preemption.py",
        "    wanted = needed * (100 - parameters.delivery_slot_discount) / 100\n",
        "    wanted = needed\n",
        EXAMPLES,
    ),
    Mutation(
        "slots are not lent",
        "mailcore/scheduler/preemption.py",
        "return wanted - parameters.delivery_slot_loan - ",
        "return wanted - ",
        EXAMPLES,
    ),
    Mutation(
        "small jobs are preempted, too",
        "mailcore/scheduler/preemption.py",
        "max(parameters.minimum_delivery_slots * cost, 1) if cost >= 2",
        "1 if cost >= 2",
        EXAMPLES,
    ),
    Mutation(
        "unread recipients are no entries of a candidate",
        "mailcore/scheduler/preemption.py",
        "    needed = job.entries + job.message.unread\n",
        "    needed = job.entries\n",
        WALKS,
    ),
    Mutation(
        "who preempts goes in front of all others that preempted the job",
        "mailcore/scheduler/preemption.py",
        "candidate.key = (*current.key[:-1], current.born, LAST)",
        "candidate.key = (*current.key[:-1], -current.born, LAST)",
        EXAMPLES,
    ),
    # Selection
    Mutation(
        "a job's destinations do not take turns",
        "mailcore/scheduler/scheduler.py",
        "            self._lists.next_turn(peer)\n",
        "            pass\n",
        EXAMPLES,
    ),
    Mutation(
        "what a dead deliverer had counts as delivered",
        "mailcore/scheduler/job_lists.py",
        "            uncount_selected(job)\n",
        "            pass\n",
        WALKS,
    ),
    Mutation(
        "what a dead deliverer had goes behind",
        "mailcore/scheduler/job_lists.py",
        "        peer.recipients[:0] = undone\n",
        "        peer.recipients += undone\n",
        WALKS,
    ),
    Mutation(
        "a window takes one more",
        "mailcore/scheduler/jobs.py",
        "return self.queued > 0 and self.busy < self.window.concurrency and",
        "return self.queued > 0 and self.busy <= self.window.concurrency and",
        f"{CALLS} {EXAMPLES}",
    ),
    Mutation(
        "the first that was blocked comes back, not all",
        "mailcore/scheduler/preemption.py",
        "                _next_parked(via, size, jobs)  # it stood in front of others of that destination\n",
        "                pass\n",
        EXAMPLES,
    ),
    # Recipient memory
    Mutation(
        "an unread job that preempts gets all of the extra pool",
        "mailcore/scheduler/recipients.py",
        "lent = (left + 1) // 2",
        "lent = left",
        MEMORY,
    ),
    Mutation(
        "the first batch is the minimum only",
        "mailcore/scheduler/recipients.py",
        "minimum + max(free, 0)",
        "minimum",
        MEMORY,
    ),
    Mutation(
        "unused slots are not handed on",
        "mailcore/scheduler/recipients.py",
        "        if transport.unread and transport.slots_unused > 0:\n            self.hand_on(transport)\n",
        "",
        MEMORY,
    ),
    Mutation(
        "a job in front leaves the slots to the first unread one behind it",
        "mailcore/scheduler/recipients.py",
        "                self.settle(first)\n",
        "                pass\n",
        MEMORY,
    ),
    # Why waiting
    Mutation(
        "whose turn it is among its message's destinations is not said",
        "mailcore/scheduler/explain.py",
        "    if peer.turn != turn:\n",
        "    if False:\n",
        WHY,
    ),
    Mutation(
        "who is about to preempt is not said to be next",
        "mailcore/scheduler/explain.py",
        "    if candidate is not None and preemptible(current) and",
        "    if candidate is None and preemptible(current) and",
        f"{WHY} -k missing",
    ),
]
