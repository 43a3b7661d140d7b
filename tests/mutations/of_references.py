"""Ways to lose data that stays in the log while its message waits, or to leave it there for ever."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

REFERRING = "tests/queue/test_referring.py"
REBUILD = "tests/queue/test_rebuild.py"
RETIRING = "tests/queue/test_retiring_power_loss.py"
UNDO = "tests/queue/test_referred_undo.py"
DELIVERER = "tests/deliverer/test_retired_segment.py"
DAYS = "tests/queue/test_five_days.py"
MOMENTS = "tests/backup/test_each_moment.py"

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
        "                left.append(unmarked._replace(start=known.start))\n        else:",
        "                pass\n        else:",
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
        "    if place is None or record is None:\n",
        "    if place or record is None:\n",
        f"{REBUILD} -k chose",
    ),
    Mutation(
        "a rebuild believes an envelope whose recipients were not written",
        "mailcore/queue/rebuild.py",
        "if _has_recipients(reader, record.offset, envelope) and ",
        "if ",
        f"{REBUILD} -k recipients_were_not_written",
    ),
    Mutation(
        "a rebuild believes an envelope whose data was not written",
        "mailcore/queue/rebuild.py",
        " and _has_data(record, envelope) else torn",
        " else torn",
        f"{REBUILD} -k data_was_not_written",
    ),
    Mutation(
        "a start counts a replacement that an earlier start refused",
        "mailcore/queue/recovery.py",
        "                if place in refused or (one.mark in OVER and place not in taken):\n",
        "                if False:\n",
        f"{REBUILD} -k not_counted",
    ),
    Mutation(
        "a start believes the journal about an envelope that a rebuild left out",
        "mailcore/queue/recovery.py",
        "        if is_rebuilt and queue_id and record.mark == GARBAGE:\n",
        "        if False:\n",
        f"{REBUILD} -k recipients_were_not_written",
    ),
    Mutation(
        "a rebuild lets two replacements of one generation stand",
        "mailcore/queue/rebuild.py",
        "            elif stands is None or place != stands.place:\n",
        "            elif stands is None:\n",
        f"{REBUILD} -k one_generation",
    ),
    Mutation(
        "a rebuild believes the journal in front of a gap",
        "mailcore/queue/rebuild.py",
        "        if not end or segment.header.previous_end > end:\n",
        "        if not end:\n",
        f"{REBUILD} -k gap",
    ),
    Mutation(
        "a rebuild believes a replacement that a recovery did not believe",
        "mailcore/queue/rebuild.py",
        "    if place in known.disbelieved or (",
        "    if (",
        f"{REBUILD} -k did_not_believe",
    ),
    Mutation(
        "a replacement that is not believed stays on the disk",
        "mailcore/queue/recovery.py",
        "        for place, queue_id in settled.disbelieved:",
        "        for place, queue_id in ():",
        f"{REBUILD} -k did_not_believe",
    ),
    Mutation(
        "a replacement that cannot be read stops the start",
        "mailcore/queue/marks.py",
        "            head = read_what_is_there(self.disk, fd, _HEAD_BYTES, offset - base)\n",
        "            head = self.disk.read(fd, _HEAD_BYTES, offset - base)\n",
        f"{REBUILD} -k stops_no_start",
    ),
    Mutation(
        "a retry of an envelope that is not believed is forgotten",
        "mailcore/queue/recovery.py",
        "        known.orders.append(retry)\n",
        "        pass\n",
        "tests/queue/test_requested.py -k older_envelope",
    ),
    Mutation(
        "the journal does not say which envelope a rebuild chose",
        "mailcore/queue/recovery.py",
        "            continuing = continued(queue, known)\n",
        "            if (continuing := continued(queue, known)) is not known:\n                continue\n",
        f"{REBUILD} -k chose",
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
        "the cut of a retired segment is not synced before the rename",
        "mailcore/queue/retiring.py",
        "            disk.sync(fd)\n",
        "            pass\n",
        f"{RETIRING} -k cut",
    ),
    Mutation(
        "a start does not know the segments that were retired",
        "mailcore/queue/bodies.py",
        "            self.retired[lane] = bases\n",
        "            pass\n",
        f"{RETIRING} -k killed",
    ),
    Mutation(
        "data in a segment of which little is needed stays there",
        "mailcore/manager/carrying.py",
        "        return self.context.queue.bodies.needed_share(active.data.path, active.data.length) < below\n",
        "        return False\n",
        DAYS,
    ),
    Mutation(
        "a FINISH does not name the data that its message lets go of",
        "mailcore/queue/queue.py",
        "self.clock(), why, report, left)\n",
        "self.clock(), why, report, None)\n",
        f"{UNDO} -k whenever",
    ),
    Mutation(
        "a deliverer knows only the name that a segment had",
        "mailcore/log/retired.py",
        "    for each in (live, retired) if path == live else (retired, live, retired):\n",
        "    for each in (path,):\n",
        DELIVERER,
    ),
    Mutation(
        "a backup leaves out the segments that no lane needs",
        "mailcore/backup/snapshot.py",
        "            self._link_bodies()\n",
        "            self._retired = {}\n",
        MOMENTS,
    ),
    Mutation(
        "a restore does not take back the marks of data that was let go since",
        "mailcore/backup/queue_files.py",
        "    for lane, offsets in told.retained.items():\n",
        "    for lane, offsets in {}.items():\n",
        MOMENTS,
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
