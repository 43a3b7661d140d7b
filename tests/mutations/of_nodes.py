"""Ways to break the owner step: mail of a node that is deleted, delivered by two owners, or believed although it is old."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

OWNER, WRITING, TESTS = "mailcore/nodes/owner.py", "mailcore/nodes/writing.py", "tests/nodes"
TAKING_IN = "mailcore/nodes/taking_in.py"

MUTATIONS = [
    Mutation(
        "a queue that no database has is taken for a copy",
        OWNER,
        "            self._refuse_foreign()\n",
        "",
        f"{TESTS}/test_owner.py -k left",
    ),
    Mutation(
        "a spare takes a shard over while its owner renews",
        OWNER,
        "        if watch.is_silent() or (row.is_released and row.wanted == self._node):\n",
        "        if True:\n",
        f"{TESTS}/test_owner.py -k stood_still",
    ),
    Mutation(
        "a home that has lost its shard takes it back at once",
        OWNER,
        "before is not None and not is_lost and",
        "before is not None and",
        f"{TESTS}/test_owner.py -k has_lost",
    ),
    Mutation(
        "the files of a new owner are believed",
        OWNER,
        "                kept.make_all(shown, self._disk, self._settings)\n",
        "",
        f"{TESTS}/test_owner.py -k committed",
    ),
    Mutation(
        "a manager that begins cuts what receivers write",
        "mailcore/nodes/kept.py",
        "        return base is not None and base < newest.get(lane, (0))\n",
        "        return base is not None\n",
        f"{TESTS}/test_kept.py -k manager",
    ),
    Mutation(
        "a receiver that begins compares only what it has",
        "mailcore/nodes/kept.py",
        "        return base is not None and base >= first\n",
        "        return base is not None and base in bases and base > first\n",
        f"{TESTS}/test_kept.py -k receiver",
    ),
    Mutation(
        "a receiver that begins takes the manager's marks back",
        "mailcore/nodes/kept.py",
        "    return extend(Part(",
        "    return make_equal(Part(",
        f"{TESTS}/test_kept.py -k marks",
    ),
    Mutation(
        "a process that is fenced begins again, and the others continue",
        "mailcore/supervisor/supervisor.py",
        "                    if status in LOST:\n",
        "                    if False:\n",
        f"{TESTS}/test_takeover.py -k was_stopped",
    ),
    Mutation(
        "mail of a database that went back in time is delivered",
        OWNER,
        "                    self._hold(shown, row)\n",
        "                    pass\n",
        f"{TESTS}/test_owner.py -k back_in_time",
    ),
    Mutation(
        "files that the database lost are deleted",
        OWNER,
        "                    count = kept.set_aside(self._disk, self._settings, aside)\n",
        "                    count = 0\n",
        f"{TESTS}/test_owner.py -k back_in_time",
    ),
    Mutation(
        "an event file has its name before the database has it",
        "mailcore/events/write/stored_disk.py",
        "        name = self._name(new)\n        if name",
        "        name = self._name(new)\n        super().replace(old, new)\n        old = new\n        if name",
        "tests/events/test_stored_disk.py -k refuses",
    ),
    Mutation(
        "an event file gets its name in the database with its first piece",
        "mailcore/events/write/stored_disk.py",
        "            part = part_of(name)\n",
        "            part = name\n",
        "tests/events/test_stored_disk.py -k in_pieces",
    ),
    Mutation(
        "event files that the database does not have stay among the others",
        "mailcore/nodes/stored_events.py",
        "if name not in stored]",
        "if name in stored and name not in stored]",
        f"{TESTS}/test_stored_events.py -k put_aside",
    ),
    Mutation(
        "a node that waits for a shard takes it before it is handed over",
        OWNER,
        "(row.is_released and row.wanted == self._node)",
        "row.wanted == self._node",
        f"{TESTS}/test_owner.py -k before_it_is_handed_over",
    ),
    Mutation(
        "an owner that has handed its shard over begins again",
        OWNER,
        "row.owner == self._me and not row.is_released:\n",
        "row.owner == self._me:\n",
        f"{TESTS}/test_owner.py -k hands_over",
    ),
    Mutation(
        "a node that is drained takes shards over",
        "mailcore/nodes/spare.py",
        "        if row.state not in TAKEN_STATES or self._state != OPEN:\n",
        "        if row.state not in TAKEN_STATES:\n",
        f"{TESTS}/test_watching.py -k is_left",
    ),
    Mutation(
        "files of another queue are deleted for a shard that is taken over",
        "mailcore/nodes/spare.py",
        "        if not self._is_free(derived, row):\n",
        "        if False:\n",
        f"{TESTS}/test_watching.py -k another_queue",
    ),
    Mutation(
        "a shard is open while its mail is taken in",
        TAKING_IN,
        "note.owner, state=HELD, least",
        "note.owner, state='open', least",
        f"{TESTS}/test_taking_in.py -k each_step",
    ),
    Mutation(
        "a start without a database believes files that are being taken in",
        "mailcore/queue/shard_copy.py",
        "    if disk.exists(os.path.join(queue_directory, TAKING_IN)):\n",
        "    if False:\n",
        f"{TESTS}/test_taking_in.py -k each_step",
    ),
    Mutation(
        "an earlier attempt may open a shard whose mail is taken in again",
        "mailcore/replication/statements.py",
        '    "update waypost.shard set epoch = epoch + 1, beat = beat + 1 where name = $1 and epoch = $2 and owner = $3"\n',
        '    "update waypost.shard set beat = beat + 1 where name = $1 and epoch = $2 and owner = $3"\n',
        f"{TESTS}/test_taking_in.py -k comes_too_late",
    ),
    Mutation(
        "what was taken in is not read back",
        TAKING_IN,
        "        self._verify(row, taken)\n",
        "",
        f"{TESTS}/test_taking_in.py -k must_be_what",
    ),
    Mutation(
        "the mail in the copy of a lost database gets out of sight",
        OWNER,
        "            self._refuse_orphan(connection, findings.system)\n",
        "",
        f"{TESTS}/test_taking_in.py -k lost_database",
    ),
    Mutation(
        "an import ends what a rebuild has begun",
        TAKING_IN,
        "(note.shard, note.is_held) != (source.shard, source.is_held)",
        "note.shard != source.shard",
        f"{TESTS}/test_shard_commands.py -k not_ended_as",
    ),
    Mutation(
        "a command that was stopped deletes the files of a shard that is open",
        "mailcore/replication/statements.py",
        " and epoch = $2 and owner = $3 and state in ('held', 'closed')\"\n",
        ' and (epoch = $2 or owner = $3 or true)"\n',
        f"{TESTS}/test_taking_in.py -k was_stopped",
    ),
    Mutation(
        "mail is taken in again through another database",
        TAKING_IN,
        "    if note.system != system:\n",
        "    if False:\n",
        f"{TESTS}/test_shard_commands.py -k another_database",
    ),
    Mutation(
        "a shard is closed with mail in it",
        "mailcore/nodes/closing.py",
        "    if left:\n",
        "    if False:\n",
        f"{TESTS}/test_closing.py -k not_drained",
    ),
    Mutation(
        "a shard is closed that its home has again",
        "mailcore/replication/statements.py",
        " where name = $1 and epoch = $2 and owner = $3 and state = 'draining' and wanted = '' and released = 0\"\n",
        ' where name = $1"\n',
        f"{TESTS}/test_closing.py -k comes_back_while",
    ),
    Mutation(
        "a home uses a shard again that was closed",
        OWNER,
        "        if row.state == CLOSED:\n",
        "        if False:\n",
        f"{TESTS}/test_closing.py -k does_not_use",
    ),
]
