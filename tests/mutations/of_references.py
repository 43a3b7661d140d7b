"""Ways to lose data that stays in the log while its message waits, or to leave it there for ever."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

REFERRING = "tests/queue/test_referring.py"

MUTATIONS = [
    Mutation(
        "an envelope that is over is garbage although its data is referred to",
        "mailcore/queue/queue.py",
        "        value = RETAINED if unmarked.retains else GARBAGE\n",
        "        value = GARBAGE\n",
        f"{REFERRING} -k whenever",
    ),
    Mutation(
        "data that is carried on is garbage at the first checkpoint",
        "mailcore/queue/checkpoint.py",
        "            if unmarked.left is None:\n",
        "            if True:\n",
        f"{REFERRING} -k whenever",
    ),
    Mutation(
        "recovery does not wait for its second restart positions",
        "mailcore/queue/recovery.py",
        "        queue.awaiting_second = settled.left  #",
        "        for each in settled.left:\n            queue.let_go(each)  #",
        f"{REFERRING} -k second_restart_positions",
    ),
    Mutation(
        "recovery forgets data that was left behind",
        "mailcore/queue/recovery.py",
        "                left.append(unmarked._replace(start=known.start))\n        elif stands",
        "                pass\n        elif stands",
        f"{REFERRING} -k whenever",
    ),
    Mutation(
        "a record that is garbage is referred to",
        "mailcore/queue/bodies.py",
        "    if envelope.data is DataPlace.SPOOL or record.mark == GARBAGE:\n",
        "    if envelope.data is DataPlace.SPOOL:\n",
        f"{REFERRING} -k never_referred",
    ),
    Mutation(
        "the START goes before the data that the message left",
        "mailcore/queue/queue.py",
        "        value = RETAINED if unmarked.retains else GARBAGE\n",
        "        value = RETAINED if unmarked.retains else GARBAGE\n        self.starts.pop(unmarked.start, None)\n",
        f"{REFERRING} -k both_restart_positions",
    ),
    Mutation(
        "envelopes of earlier generations are garbage with their data",
        "mailcore/queue/fold.py",
        "        needed = known.stage is not Stage.REPLACED or known.data == known.place\n",
        "        needed = False\n",
        f"{REFERRING} tests/queue/test_fold.py",
    ),
    Mutation(
        "a rebuild lets two envelopes of a message stand",
        "mailcore/queue/rebuild.py",
        "    if place is None:\n        return True\n",
        "    return True\n",
        f"{REFERRING} -k whenever",
    ),
    Mutation(
        "a segment is deleted although data in it is needed",
        "mailcore/queue/retiring.py",
        "        if not alive and self.may_unlink(leaving.lane, leaving.base):  # asked after the marks were read\n",
        "        if self.may_unlink(leaving.lane, leaving.base):\n",
        f"{REFERRING} -k retired",
    ),
    Mutation(
        "a retained record counts as not needed",
        "mailcore/queue/retiring.py",
        "has_data and mark != GARBAGE)",
        "has_data and mark == 0x4C)",
        f"{REFERRING} -k retired",
    ),
    Mutation(
        "a retired segment is not cut",
        "mailcore/queue/retiring.py",
        "                disk.shorten(fd, leaving.end - leaving.base)\n",
        "                pass\n",
        f"{REFERRING} -k cut_off",
    ),
    Mutation(
        "marks in a segment that was retired meanwhile are not synced",
        "mailcore/queue/checkpoint.py",
        "                fd = open_either(self.disk.open_write, path)\n",
        "                fd = self.disk.open_write(path)\n",
        f"{REFERRING}",
    ),
    Mutation(
        "data of another message is marked as garbage",
        "mailcore/queue/marks.py",
        "if len(head) <= HEADER_BYTES or queue_id_in",
        "if len(head) <= HEADER_BYTES or False and queue_id_in",
        f"{REFERRING} -k another_message",
    ),
    Mutation(
        "restart positions do not say that messages refer to data",
        "mailcore/queue/checkpoint.py",
        "            queue.some_refer,\n",
        "            False,\n",
        f"{REFERRING} -k older_release",
    ),
]
