"""Ways to break the log."""

# ruff: noqa: E501 - lines of source stand here as they are

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

LANE = "tests/log/test_lane.py tests/log/test_lane_failures.py"
LAWS = "tests/queue/test_laws_writing.py tests/queue/test_laws_deleting.py tests/queue/test_laws_recovery.py"
HISTORIES = "tests/queue/test_laws_histories.py"

MUTATIONS = [
    Mutation(
        "the first sync of a segment is left out",
        "mailcore/log/lane.py",
        "                disk.sync(self._fd)\n                disk.sync_directory(self.directory)\n",
        "                disk.sync_directory(self.directory)\n",
        f"{LANE} -k law_durable",
    ),
    Mutation(
        "the directory of a new segment is not synced",
        "mailcore/log/lane.py",
        "                disk.sync(self._fd)\n                disk.sync_directory(self.directory)\n",
        "                disk.sync(self._fd)\n",
        f"{LANE} -k law_durable",
    ),
    Mutation(
        "later batches are not synced",
        "mailcore/log/lane.py",
        "piece.start - piece.base)\n            disk.sync(self._fd)\n",
        "piece.start - piece.base)\n",
        f"{LANE} -k law_durable",
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
        "a record that arrives during a sync counts as synced by it",
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
    Mutation(
        "a writer begins in the middle of the file it found",
        "mailcore/log/lane.py",
        "        self._begin(max(behind, floor, previous_end), previous_end)\n",
        "        self._begin(max(floor, previous_end), previous_end)\n",
        f"{LANE} -k law_position",
    ),
    Mutation(
        "the floor is not kept",
        "mailcore/log/lane.py",
        "        self._begin(max(behind, floor, previous_end), previous_end)\n",
        "        self._begin(max(behind, previous_end), previous_end)\n",
        f"{LANE} -k law_position",
    ),
    Mutation(
        "after a failure the positions given out in vain are used again",
        "mailcore/log/lane.py",
        "            self._begin(self.end, self.durable)  #",
        "            self._begin(self._base + FIRST_RECORD, self.durable)  #",
        LANE,
    ),
    Mutation(
        "a reader reads on to the end of the file",
        "mailcore/log/reader.py",
        "        if durable is not None:\n            ends.append(durable)\n",
        "",
        "tests/log/test_reader.py -k law_readable",
    ),
    Mutation(
        "a failed writer continues",
        "mailcore/log/lane.py",
        "                if self._failed or epoch != self._epoch:\n",
        "                if False:\n",
        f"{LANE} -k law_tail",
    ),
    Mutation(
        "the header of a segment after a failure says that all of the one before counts",
        "mailcore/log/lane.py",
        "            self._begin(self.end, self.durable)  #",
        "            self._begin(self.end, self.end)  #",
        f"{LANE} -k law_tail",
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
        f"{LANE} -k law_tail",
    ),
    Mutation(
        "a segment whose header is lost ends the lane where it begins",
        "mailcore/log/lane.py",
        "                continue\n            try:\n                # A segment that",
        "                return base, behind\n            try:\n                # A segment that",
        f"{LANE} -k law_tail",
    ),
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
        "            parts.append(bytes(upto - at))\n",
        "            raise\n",
        "tests/log/test_segment.py",
    ),
    Mutation(
        "the checksum is not looked at",
        "mailcore/log/segment.py",
        "                if checksum(salt, offset, type_, (body,), length) != crc and not is_envelope_good(\n",
        "                if False and not is_envelope_good(\n",
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
    Mutation(
        "the index of another segment is believed for ages",
        "mailcore/log/reader.py",
        " or not self._is_of(segment, block):\n",
        ":\n",
        "tests/lookup/test_age_filter.py",
    ),
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
]
