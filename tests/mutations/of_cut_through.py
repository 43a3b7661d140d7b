"""Ways to break cut-through: messages that are passed on while their clients wait."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

PASSED = "tests/end_to_end/test_cut_through.py"
STOPPED = "tests/end_to_end/test_cut_through_stopped.py"

MUTATIONS = [
    Mutation(
        "the dot is sent although a recipient was refused",
        "mailcore/deliverer/transaction.py",
        "    if gate is not None and len(accepted) < gate.recipients:\n",
        "    if gate is not None and not accepted:\n",
        f"{PASSED} -k some_of_several",
    ),
    Mutation(
        "the dot is sent although the time is over",
        "mailcore/deliverer/gate.py",
        "        if self.is_closed or self.dot_sent:\n",
        "        if self.dot_sent:\n",
        "tests/deliverer/test_gate.py",
    ),
    Mutation(
        "an error behind the dot counts as a refusal of the next hop",
        "mailcore/deliverer/gate.py",
        "        return self.dot_sent and not self.refused\n",
        "        return False\n",
        "tests/deliverer/test_pass_on.py -k behind_the_250",
    ),
    Mutation(
        "big data waits in our memory behind the gate",
        "mailcore/deliverer/transaction.py",
        "    return is_timed and data.whole is not None and data.length > BLOCK_BYTES\n",
        "    return False\n",
        "tests/deliverer/test_pass_on.py -k slowly",
    ),
    Mutation(
        "a message that a next hop may have is stored",
        "mailcore/receiver/reception.py",
        "        if fate is Fate.REFUSED:\n",
        "        if fate is not Fate.PASSED_ON:\n",
        f"{PASSED} -k without_an_answer",
    ),
    Mutation(
        "a killed deliverer counts as a refusal",
        "mailcore/manager/cut_through.py",
        'passing.writer.send(Offered(passing.number, Fate.UNCERTAIN, "the delivery was broken off"))\n',
        'passing.writer.send(Offered(passing.number, Fate.REFUSED, "the delivery was broken off"))\n',
        f"{STOPPED} -k deliverer",
    ),
    Mutation(
        "a start counts what was passed on before the restart positions again",
        "mailcore/queue/fold.py",
        "        elif record.type == RecordType.PASSED and record.offset >= counted_to:\n",
        "        elif record.type == RecordType.PASSED:\n",
        "tests/queue/test_passed_on.py -k broken_off",
    ),
    Mutation(
        "a start does not count the arrivals of messages that were passed on",
        "mailcore/queue/totals.py",
        "plus(folded.passed, arrived)",
        "arrived",
        f"{STOPPED} -k behind_the_last_checkpoint",
    ),
    Mutation(
        "each client waits for a next hop that is always late",
        "mailcore/manager/cut_through.py",
        "        if self._slow.rests(destination, now):\n",
        "        if False:\n",
        "tests/end_to_end/test_cut_through.py -k later_one_is_tried",
    ),
]
