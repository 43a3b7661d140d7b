"""Ways to break the queue."""

# ruff: noqa: E501 - lines of source stand here as they are

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

LAWS = "tests/queue/test_laws_writing.py tests/queue/test_laws_deleting.py tests/queue/test_laws_recovery.py"
HISTORIES = "tests/queue/test_laws_histories.py"

MUTATIONS = [
    Mutation(
        "the home's identity is written after those of its directories",
        "mailcore/queue/identity.py",
        "        disk.make_directory(home)\n        write_identity(disk, home, own)\n",
        "        disk.make_directory(home)\n",
        "tests/queue/test_identity.py -k first_start",
    ),
    Mutation(
        "a directory without an identity is always a new one",
        "mailcore/queue/identity.py",
        "    marked = {} if own is None else own.marked\n",
        "    marked: dict[str, str] = {}\n",
        "tests/queue/test_identity.py -k had_the_identity",
    ),
    Mutation(
        "a directory that was exchanged is written to",
        "mailcore/log/disk.py",
        "        if self.guards and (guard := self.guard_of(path)) is not None:\n",
        "        if not self.guards and (guard := self.guard_of(path)) is not None:\n",
        "tests/queue/test_identity.py -k guard",
    ),
    Mutation(
        "the sweep does not look at the identity",
        "mailcore/queue/sweep.py",
        "        return disk.is_identified(self._queue.directory) and disk.is_identified(self._queue.spool.directory)\n",
        "        return disk is not None\n",
        "tests/queue/test_sweep.py -k identity",
    ),
    Mutation(
        "a spool file's directory is not synced",
        "mailcore/queue/spool.py",
        "        self.disk.sync(self._fd)\n        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "        self.disk.sync(self._fd)\n",
        "tests/queue/test_spool.py -k law_durable",
    ),
    Mutation(
        "a spool file is not synced",
        "mailcore/queue/spool.py",
        "        self.disk.sync(self._fd)\n        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "tests/queue/test_spool.py -k law_durable",
    ),
    Mutation(
        "recovery forgets the positions that the journal names",
        "mailcore/queue/recovery.py",
        "        named = folded.named.get(lane, -1) + 1\n",
        "        named = 0\n",
        f"{LAWS} -k law_position",
    ),
    Mutation(
        "an envelope is believed without a check of queue id and generation",
        "mailcore/queue/queue.py",
        "            or envelope.queue_id != known.queue_id\n            or envelope.generation != known.generation\n",
        "",
        f"{LAWS} -k law_position",
    ),
    Mutation(
        "a message that a bounce took over is marked at once",
        "mailcore/queue/queue.py",
        "        if bounce is None:\n            self.awaiting_sync",
        "        if True:\n            self.awaiting_sync",
        f"{LAWS} -k law_mark",
    ),
    Mutation(
        "a replaced message is marked when the journal is synced",
        "mailcore/queue/queue.py",
        "        self.awaiting_checkpoint.append(self._leave(active, spooled=False))\n",
        "        self.awaiting_sync.append((0, self._leave(active, spooled=False)))\n",
        f"{LAWS} -k law_mark",
    ),
    Mutation(
        "a finished message is marked before its FINISH is synced",
        "mailcore/queue/queue.py",
        "            self.awaiting_sync.append((offset, unmarked))\n",
        "            self.mark(unmarked)\n",
        f"{LAWS} -k law_mark",
    ),
    Mutation(
        "a replacement counts as soon as it is written",
        "mailcore/queue/recovery.py",
        "        if place is None or recorded is None or place.offset >= recorded.end:\n            return False\n        reader = queue.reader(place.lane)\n",
        "        if place is None:\n            return False\n        recorded, reader = LanePosition(0, 1 << 60), queue.reader(place.lane)\n",
        f"{LAWS} {HISTORIES}",
    ),
    Mutation(
        "a bounce that is delivered and deleted no longer counts",
        "mailcore/queue/recovery.py",
        "        if place.offset < recorded.browse and reader.is_deleted(place.offset):\n            return True",
        "        if False:\n            return True",
        f"{LAWS} -k law_deletion",
    ),
    Mutation(
        "a runner steps over what became readable while it looked at a head",
        "mailcore/queue/runner.py",
        "            self.position = max(self.position, self._records_end)\n",
        "            self.position = max(self.position, self.readable_end)\n",
        f"{LAWS} -k law_readable",
    ),
    Mutation(
        "lanes are not synced before the positions are written",
        "mailcore/queue/checkpoint.py",
        "        for batch in self.batches:\n            batch.write()\n",
        "        write_positions(self.disk, self.directory, self.positions)\n        for batch in self.batches:\n            batch.write()\n",
        f"{LAWS} -k law_checkpoint",
    ),
    Mutation(
        "marks are not synced before the positions are written",
        "mailcore/queue/checkpoint.py",
        "                    self.disk.sync(fd)\n",
        "                    pass\n",
        HISTORIES,
    ),
    Mutation(
        "the working suffix starts at the newest START",
        "mailcore/queue/checkpoint.py",
        "            next(iter(queue.starts), queue.journal.end),\n",
        "            next(reversed(queue.starts), queue.journal.end),\n",
        f"{LAWS} -k law_checkpoint",
    ),
    Mutation(
        "the newest positions alone decide about segments",
        "mailcore/queue/checkpoint.py",
        "            positions = [p.lanes.get(lane) for p in (self.older, self.newest)]\n",
        "            positions = [p.lanes.get(lane) for p in (self.newest, self.newest)]\n",
        f"{LAWS} -k law_deletion",
    ),
    Mutation(
        "the newest positions alone decide about the journal",
        "mailcore/queue/checkpoint.py",
        "min(self.older.suffix, self.newest.suffix)",
        "self.newest.suffix",
        f"{LAWS} -k law_deletion",
    ),
    Mutation(
        "what is being worked on holds no segment",
        "mailcore/queue/checkpoint.py",
        "            browse = runner.position if lowest is None else min(lowest, runner.position)\n",
        "            browse = runner.position\n",
        f"{LAWS} -k law_deletion",
    ),
    Mutation(
        "a spool file goes with its mark",
        "mailcore/queue/checkpoint.py",
        "        while garbage and garbage[0][0] <= self.older.sequence:\n",
        "        while garbage:\n",
        f"{LAWS} -k law_deletion",
    ),
    Mutation(
        "the newest segment is deleted, too",
        "mailcore/queue/checkpoint.py",
        "zip(reader.bases, reader.bases[1:], strict=False)",
        "zip(reader.bases, [*reader.bases[1:], 0], strict=False)",
        f"{LAWS} -k law_position",
    ),
    Mutation(
        "a damaged segment is deleted like any other",
        "mailcore/queue/checkpoint.py",
        "            if not self.queue.disk.exists(damaged_path(reader.path(base))):\n",
        "            if True:\n",
        f"{LAWS} -k law_damage",
    ),
    Mutation(
        "a bounce that no checkpoint covers counts",
        "mailcore/queue/recovery.py",
        '        bounced = known.bounce is None or counts(known.bounce, "", 0)\n',
        "        bounced = True\n",
        f"{LAWS} {HISTORIES}",
    ),
    Mutation(
        "a restated message forgets the recipients that were done",
        "mailcore/queue/fold.py",
        "    known.done.update(start.done)\n",
        "",
        f"{LAWS} {HISTORIES}",
    ),
    Mutation(
        "a DELIVERY is not folded",
        "mailcore/queue/fold.py",
        "                        known.done.add(verdict.number)\n",
        "                        pass\n",
        f"{LAWS} -k law_verdict",
    ),
    Mutation(
        "the older positions are believed although the journal knows better",
        "mailcore/queue/recovery.py",
        "    if not proven:\n        return positions\n",
        "    if True:\n        return positions\n",
        HISTORIES,
    ),
    Mutation(
        "recovery finishes before its positions are written",
        "mailcore/queue/recovery.py",
        "    queue.journal.sync()  # after it was taken",
        "    # after it was taken",
        f"{LAWS} {HISTORIES}",
    ),
    Mutation(
        "what was deleted out of hold forgets that",
        "mailcore/queue/undelete.py",
        "        return envelope.held_before\n",
        "        return None\n",
        "tests/queue/test_undelete.py",
    ),
    Mutation(
        "a delete that waits for deliveries forgets the hold before it",
        "mailcore/queue/undelete.py",
        "    if order is not None and HELD in order.arguments:\n",
        "    if False:\n",
        "tests/queue/test_undelete.py",
    ),
    Mutation(
        "what lay deleted in a backup is delivered when it is undeleted",
        "mailcore/queue/restored.py",
        "        return self.why if why is None and active.offset < self.lanes.get(active.lane, 0) else why\n",
        "        return why\n",
        "tests/queue/test_undelete.py",
    ),
]
