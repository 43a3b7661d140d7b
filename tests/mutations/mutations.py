"""Ways to break a law in the source, each with tests of which one must then fail.

A mutation replaces ``old``, which occurs once in the file, by ``new``. Whoever writes a test for a law adds here what it is
there to catch; whoever changes the code finds here what must not get lost.
"""

# ruff: noqa: E501 - lines of source stand here as they are

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTATIONS", "Mutation"]


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: str  # what pytest is given: files, and -k


LANE = "tests/log/test_lane.py"
LAWS = "tests/queue/test_laws.py"
HISTORIES = "tests/queue/test_laws_histories.py"

MUTATIONS = [
    # -- law 1
    Mutation(
        "the first sync of a segment is left out",
        "mailcore/log/lane.py",
        "                disk.sync(self._fd)\n                disk.sync_directory(self.directory)\n",
        "                disk.sync_directory(self.directory)\n",
        f"{LANE} -k law_1",
    ),
    Mutation(
        "the directory of a new segment is not synced",
        "mailcore/log/lane.py",
        "                disk.sync(self._fd)\n                disk.sync_directory(self.directory)\n",
        "                disk.sync(self._fd)\n",
        f"{LANE} -k law_1",
    ),
    Mutation(
        "later batches are not synced",
        "mailcore/log/lane.py",
        "            disk.write(self._fd, piece.buffers, piece.start - piece.base)\n            disk.sync(self._fd)\n",
        "            disk.write(self._fd, piece.buffers, piece.start - piece.base)\n",
        f"{LANE} -k law_1",
    ),
    Mutation(
        "a starting writer does not sync the directory it found",
        "mailcore/log/lane.py",
        "        self.disk.sync_directory(self.directory)\n        for base",
        "        for base",
        f"{LANE} -k killed_before_its_name",
    ),
    Mutation(
        "a starting writer does not sync what it believes",
        "mailcore/log/lane.py",
        "                self.disk.sync(segment.fd)\n                self.disk.drop_cache(segment.fd)\n",
        "",
        LANE,
    ),
    Mutation(
        "a directory that is there is not synced into its parent",
        "mailcore/log/disk.py",
        "        found = self.is_directory(path)\n",
        "        found = self.is_directory(path)\n        if found:\n            return\n",
        f"{LANE} -k another_process_made",
    ),
    Mutation(
        "a spool file's directory is not synced",
        "mailcore/queue/spool.py",
        "        self.disk.sync(self._fd)\n        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "        self.disk.sync(self._fd)\n",
        "tests/queue/test_spool.py -k law_1",
    ),
    Mutation(
        "a spool file is not synced",
        "mailcore/queue/spool.py",
        "        self.disk.sync(self._fd)\n        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "        self.disk.sync_directory(os.path.dirname(self.path))\n",
        "tests/queue/test_spool.py -k law_1",
    ),
    # -- law 2
    Mutation(
        "who comes while a sync runs is told by it",
        "mailcore/log/commit.py",
        "        waiting, self._waiting = self._waiting, []\n",
        "        waiting = self._waiting\n",
        "tests/log/test_commit.py",
    ),
    Mutation(
        "a failure reaches only its own batch",
        "mailcore/log/commit.py",
        "            waiting += self._waiting\n            self._waiting = []\n",
        "            self._waiting = []\n",
        "tests/log/test_commit.py",
    ),
    # -- law 4
    Mutation(
        "a writer begins in the middle of the file it found",
        "mailcore/log/lane.py",
        "        self._begin(max(behind, floor, previous_end), previous_end)\n",
        "        self._begin(max(floor, previous_end), previous_end)\n",
        f"{LANE} -k law_4",
    ),
    Mutation(
        "the floor is not kept",
        "mailcore/log/lane.py",
        "        self._begin(max(behind, floor, previous_end), previous_end)\n",
        "        self._begin(max(behind, previous_end), previous_end)\n",
        f"{LANE} -k law_4",
    ),
    Mutation(
        "after a failure the positions given out in vain are used again",
        "mailcore/log/lane.py",
        "            self._begin(self.end, self.durable)  #",
        "            self._begin(self._base + FIRST_RECORD, self.durable)  #",
        LANE,
    ),
    Mutation(
        "recovery forgets the positions that the journal names",
        "mailcore/queue/recovery.py",
        "        named = folded.named.get(lane, -1) + 1\n",
        "        named = 0\n",
        f"{LAWS} -k law_04",
    ),
    Mutation(
        "an envelope is believed whatever its queue id and generation",
        "mailcore/queue/queue.py",
        "            or envelope.queue_id != known.queue_id\n            or envelope.generation != known.generation\n",
        "",
        f"{LAWS} -k law_04",
    ),
    # -- law 6
    Mutation(
        "a message that a bounce took over is marked at once",
        "mailcore/queue/queue.py",
        "        if bounce is None:\n            self.awaiting_sync",
        "        if True:\n            self.awaiting_sync",
        f"{LAWS} -k law_06",
    ),
    Mutation(
        "a replaced message is marked when the journal is synced",
        "mailcore/queue/queue.py",
        "        self.awaiting_checkpoint.append(self._leave(active, spooled=False))\n",
        "        self.awaiting_sync.append((0, self._leave(active, spooled=False)))\n",
        f"{LAWS} -k law_06",
    ),
    Mutation(
        "a finished message is marked before its FINISH is synced",
        "mailcore/queue/queue.py",
        "            self.awaiting_sync.append((offset, unmarked))\n",
        "            self.mark(unmarked)\n",
        f"{LAWS} -k law_06",
    ),
    # -- law 7
    Mutation(
        "a reader reads on to the end of the file",
        "mailcore/log/reader.py",
        "        if durable is not None:\n            ends.append(durable)\n",
        "",
        "tests/log/test_reader.py -k law_7",
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
        f"{LAWS} -k law_10",
    ),
    Mutation(
        "a runner steps over what became readable while it looked at a head",
        "mailcore/queue/runner.py",
        "            self.position = max(self.position, self._records_end)\n",
        "            self.position = max(self.position, self.readable_end)\n",
        f"{LAWS} -k law_07",
    ),
    # -- law 8
    Mutation(
        "a failed writer goes on",
        "mailcore/log/lane.py",
        "                if self._failed or epoch != self._epoch:\n",
        "                if False:\n",
        f"{LANE} -k law_8",
    ),
    Mutation(
        "the header of a segment after a failure says that all of the one before counts",
        "mailcore/log/lane.py",
        "            self._begin(self.end, self.durable)  #",
        "            self._begin(self.end, self.end)  #",
        f"{LANE} -k law_8",
    ),
    Mutation(
        "a reader looks at the next header only",
        "mailcore/log/reader.py",
        "        later = self._bases[bisect.bisect_right(self._bases, base) :]\n",
        "        later = self._bases[bisect.bisect_right(self._bases, base) :][:1]\n",
        f"{LANE} tests/log/test_reader.py",
    ),
    Mutation(
        "a reader does not look for new segments",
        "mailcore/log/reader.py",
        "            self.refresh()\n            self._seen_end = self._newest_end()\n",
        "            self._seen_end = durable\n",
        "tests/log/test_reader.py -k new_segments",
    ),
    Mutation(
        "a start believes the cache after a sync that failed",
        "mailcore/log/lane.py",
        "                self.disk.drop_cache(segment.fd)\n",
        "",
        f"{LANE} -k law_8",
    ),
    Mutation(
        "a segment whose header is lost ends the lane where it begins",
        "mailcore/log/lane.py",
        "                continue\n            try:\n                # What is about",
        "                return base, behind\n            try:\n                # What is about",
        f"{LANE} -k law_8",
    ),
    # -- law 9
    Mutation(
        "restart positions are not synced",
        "mailcore/log/positions.py",
        "        disk.write(fd, [data], 0)\n        disk.sync(fd)\n",
        "        disk.write(fd, [data], 0)\n",
        "tests/log/test_positions.py",
    ),
    Mutation(
        "the directory of the restart positions is not synced",
        "mailcore/log/positions.py",
        "    disk.replace(new, current)\n    disk.sync_directory(directory)\n",
        "    disk.replace(new, current)\n",
        "tests/log/test_positions.py",
    ),
    Mutation(
        "the positions before are not kept",
        "mailcore/log/positions.py",
        "        disk.replace(current, os.path.join(directory, kept))\n",
        "        pass\n",
        "tests/log/test_positions.py",
    ),
    Mutation(
        "damaged positions take the place of those before",
        "mailcore/log/positions.py",
        "        kept = PREVIOUS if _read(disk, current) is not None else DAMAGED\n",
        "        kept = PREVIOUS\n",
        "tests/log/test_positions.py",
    ),
    Mutation(
        "lanes are not synced before the positions are written",
        "mailcore/queue/checkpoint.py",
        "        for batch in self.batches:\n            batch.write()\n",
        "        write_positions(self.disk, self.directory, self.positions)\n        for batch in self.batches:\n            batch.write()\n",
        f"{LAWS} -k law_09",
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
        f"{LAWS} -k law_09",
    ),
    # -- law 10
    Mutation(
        "the newest positions alone decide about segments",
        "mailcore/queue/checkpoint.py",
        "            positions = [p.lanes.get(lane) for p in (self.older, self.newest)]\n",
        "            positions = [p.lanes.get(lane) for p in (self.newest, self.newest)]\n",
        f"{LAWS} -k law_10",
    ),
    Mutation(
        "the newest positions alone decide about the journal",
        "mailcore/queue/checkpoint.py",
        "min(self.older.suffix, self.newest.suffix)",
        "self.newest.suffix",
        f"{LAWS} -k law_10",
    ),
    Mutation(
        "what is being worked on holds no segment",
        "mailcore/queue/checkpoint.py",
        "            browse = runner.position if lowest is None else min(lowest, runner.position)\n",
        "            browse = runner.position\n",
        f"{LAWS} -k law_10",
    ),
    Mutation(
        "a spool file goes with its mark",
        "mailcore/queue/checkpoint.py",
        "        while garbage and garbage[0][0] <= self.older.sequence:\n",
        "        while garbage:\n",
        f"{LAWS} -k law_10",
    ),
    Mutation(
        "the newest segment is deleted, too",
        "mailcore/queue/checkpoint.py",
        "zip(reader.bases, reader.bases[1:], strict=False)",
        "zip(reader.bases, [*reader.bases[1:], 0], strict=False)",
        f"{LAWS} -k law_04",
    ),
    # -- law 11
    Mutation(
        "a damaged segment is deleted like any other",
        "mailcore/queue/checkpoint.py",
        "            if self.queue.disk.exists(damaged_path(path)):\n",
        "            if False:\n",
        f"{LAWS} -k law_11",
    ),
    Mutation(
        "a damaged record ends the reading",
        "mailcore/log/segment.py",
        "                found = block.find(magic, at + 1)\n",
        "                break\n",
        "tests/log/test_segment.py",
    ),
    Mutation(
        "a damaged length is followed",
        "mailcore/log/segment.py",
        "                found = block.find(magic, at + 1)\n",
        "                found = at + HEADER_BYTES + length if length and at + HEADER_BYTES + length < len(block) else -1\n",
        "tests/log/test_segment.py",
    ),
    Mutation(
        "a block that can't be read ends the reading",
        "mailcore/log/segment.py",
        "                parts.append(bytes(upto - at))\n",
        "                raise\n",
        "tests/log/test_segment.py",
    ),
    # -- records
    Mutation(
        "the checksum is not looked at",
        "mailcore/log/segment.py",
        "                if checksum(salt, offset, type_, (body,), length) != crc:\n",
        "                if False:\n",
        "tests/log/test_record.py",
    ),
    Mutation(
        "the salt is not in the checksum",
        "mailcore/log/record.py",
        "_COVERED.pack(salt, offset, type_, length)",
        "_COVERED.pack(0, offset, type_, length)",
        "tests/log/test_record.py tests/log/test_format.py",
    ),
    Mutation(
        "the offset is not in the checksum",
        "mailcore/log/record.py",
        "_COVERED.pack(salt, offset, type_, length)",
        "_COVERED.pack(salt, 0, type_, length)",
        "tests/log/test_record.py",
    ),
    Mutation(
        "any mark but live is garbage",
        "mailcore/log/segment.py",
        "            yield Record(offset, type_, mark != GARBAGE, body, following)\n",
        "            yield Record(offset, type_, mark == 0x4C, body, following)\n",
        "tests/log/test_record.py",
    ),
    # -- the index
    Mutation(
        "an index is believed without a look at the record",
        "mailcore/log/reader.py",
        "                        and record.type == RecordType.ENVELOPE\n                        and queue_id_in(record.body) == wanted\n",
        "",
        "tests/log/test_index.py",
    ),
    Mutation(
        "what no block covers is not searched",
        "mailcore/log/reader.py",
        "            if self._has_bytes(segment, wanted, uncovered, end):\n",
        "            if False:\n",
        "tests/log/test_index.py",
    ),
    Mutation(
        "an index block counts whatever its checksum",
        "mailcore/log/index.py",
        '        if google_crc32c.extend(google_crc32c.value(struct.pack("<QQ", start, end)), packed) != crc:\n            return\n',
        "",
        "tests/log/test_index.py",
    ),
    # -- recovery
    Mutation(
        "a bounce that no checkpoint covers counts",
        "mailcore/queue/recovery.py",
        '        bounced = known.bounce is None or counts(known.bounce, "", 0)\n',
        "        bounced = True\n",
        f"{LAWS} {HISTORIES}",
    ),
    Mutation(
        "what was done before a crash is not stated anew",
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
        f"{LAWS} -k law_02",
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
]
