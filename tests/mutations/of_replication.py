"""Ways to break the store of a shard: mail that is acknowledged and on one server only, or that two owners write."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

ROOM, TESTS = "mailcore/replication", "tests/replication"
CONNECTION, FILES, LEASE, SHARD, STATE, STATEMENTS, WRITER = (
    f"{ROOM}/{name}.py" for name in ("connection", "files", "lease", "shard", "writer_state", "statements", "writer")
)

MUTATIONS = [
    Mutation(
        "a cancelled wait for the standby is a commit",
        WRITER,
        "        if answer.notices:\n",
        "        if not answer.rows:\n",
        f"{TESTS}/test_writer.py -k administrator",
    ),
    Mutation(
        "a commit without a standby is done",
        WRITER,
        "        if not as_bool(answer.rows[0][kept_at]):\n",
        "        if not answer.rows[0]:\n",
        f"{TESTS}/test_writer.py -k without_a_standby",
    ),
    Mutation(
        "an unknown outcome is taken for done",
        STATE,
        "            self.unknown = False  # the same batch again\n",
        "            self._end(Outcome.DONE)\n",
        f"{TESTS}/test_writer_state.py",
    ),
    Mutation(
        "a refused batch is given up while an attempt is on its way",
        STATE,
        "        if self.attempted:\n",
        "        if self.given_up:\n",
        f"{TESTS}/test_writer_state.py {TESTS}/test_writer.py -k two_failures or given_up",
    ),
    Mutation(
        "a time-out cancels the statement",
        CONNECTION,
        '        raise self._lost("no answer in time")\n',
        "        self._pgconn.get_cancel().cancel()\n        raise self._lost('no answer in time')\n",
        f"{TESTS}/test_connection.py -k time_out",
    ),
    Mutation(
        "a warning behind the report of a command is not seen",
        CONNECTION,
        "        if answers:\n            answers[-1].notices = self._notices\n",
        "",
        f"{TESTS}/test_connection.py -k cancelled",
    ),
    Mutation(
        "a role may hide the warning of a cancelled wait",
        CONNECTION,
        '    "client_min_messages": "notice",\n',
        "",
        f"{TESTS}/test_connection.py -k hides_warnings",
    ),
    Mutation(
        "a number may be skipped",
        STATEMENTS,
        ' and incarnation = $4"\n    " and n = $5 - 1 returning n"',
        ' and incarnation = $4"\n    " and n < $5 returning n"',
        f"{TESTS}/test_writer.py -k taken_once",
    ),
    Mutation(
        "a predecessor of the same owner may still commit",
        STATEMENTS,
        ' and epoch = $3 and incarnation = $4"\n    " and n',
        ' and epoch = $3 and incarnation >= $4"\n    " and n',
        f"{TESTS}/test_writer.py -k predecessor",
    ),
    Mutation(
        "a process that begins raises no incarnation",
        STATEMENTS,
        "do update set incarnation = writer.incarnation + 1,",
        "do update set incarnation = writer.incarnation,",
        f"{TESTS}/test_writer.py -k predecessor",
    ),
    Mutation(
        "a dropped file keeps its chunks",
        STATEMENTS,
        'using w where shard = $1 and file = any($7)),"\n    " removed',
        'using w where shard = $2 and file = any($7)),"\n    " removed',
        f"{TESTS}/test_writer.py -k everything",
    ),
    Mutation(
        "a database without synchronous standby is used",
        f"{ROOM}/guarantees.py",
        "    if not values[_NAMES].strip():\n",
        "    if values[_NAMES] is None:\n",
        f"{TESTS}/test_guarantees.py {TESTS}/test_writer.py -k refused",
    ),
    Mutation(
        "a pooler that lends servers is not noticed",
        f"{ROOM}/guarantees.py",
        "    if pid == connection.backend_pid:\n",
        "    if pid:\n",
        f"{TESTS}/test_guarantees.py -k pooler",
    ),
    Mutation(
        "a takeover leaves the rows of the writers",
        SHARD,
        "        connection.execute(TAKE_WRITERS, [seen.name, seen.epoch + 1], TIMEOUT_S)\n",
        "        pass\n",
        f"{TESTS}/test_shard.py -k takeover",
    ),
    Mutation(
        "a writer begins without looking at a takeover under way",
        STATEMENTS,
        ' where name = $1 and epoch = $3 for share"',
        ' where name = $1 and epoch = $3"',
        f"{TESTS}/test_shard.py -k begins_during",
    ),
    Mutation(
        "a takeover counts when its commit is reported",
        SHARD,
        "    return confirm_owner(connection, seen.name, seen.epoch + 1, owner)\n",
        "    return read_shard(connection, seen.name)\n",
        f"{TESTS}/test_shard.py -k cancelled or without_a_standby",
    ),
    Mutation(
        "an owner forgets the time that another one reserved",
        f"{ROOM}/reserved_ids.py",
        "        return self._reserve(0)\n",
        "        return 0\n",
        f"{TESTS}/test_reserved_ids.py",
    ),
    Mutation(
        "an owner whose shard was taken reserves time",
        STATEMENTS,
        "greatest(ids_after, $3) where name = $1 and epoch = $2 returning",
        "greatest(ids_after, $3) where name = $1 and epoch >= $2 returning",
        f"{TESTS}/test_reserved_ids.py -k reserves_nothing",
    ),
    Mutation(
        "a lease holds from when its renewal returned",
        f"{ROOM}/lease_keeper.py",
        "            self._lease.is_renewed(renewed.beat)\n",
        "            self._lease._sent_at = self._clock()\n            self._lease.is_renewed(renewed.beat)\n",
        f"{TESTS}/test_shard.py -k from_before",
    ),
    Mutation(
        "a beat that could not be read is silence",
        LEASE,
        "        if (epoch, beat) != self._seen or answered_at - self._answered_at > self.gap_s:\n",
        "        if (epoch, beat) != self._seen:\n",
        f"{TESTS}/test_lease.py -k silent_all",
    ),
    Mutation(
        "a node takes over when a lease time has passed by the clock of the last reading",
        LEASE,
        "            self._seen, self._since = (epoch, beat), answered_at\n",
        "            self._seen, self._since = (epoch, beat), self._answered_at\n",
        f"{TESTS}/test_lease.py",
    ),
    Mutation(
        "a lease that was lost holds on",
        f"{ROOM}/lease_keeper.py",
        "        self._lease.is_lost()\n",
        "",
        f"{TESTS}/test_shard.py -k thread_keeps or bug",
    ),
    Mutation(
        "a lease is renewed while the database must not be used",
        f"{ROOM}/lease_keeper.py",
        "            if self.refusal is not None:\n",
        "            if self.refusal == ():\n",
        f"{TESTS}/test_shard.py -k must_not_be_used",
    ),
    Mutation(
        "a database that lost batches is believed",
        f"{ROOM}/confirmed.py",
        "            if (found := numbers.get(writer, 0)) < n:\n",
        "            if (found := numbers.get(writer, n)) < n - 1:\n",
        f"{TESTS}/test_confirmed.py",
    ),
    Mutation(
        "another database is believed",
        f"{ROOM}/confirmed.py",
        "        if systems and system not in systems:\n",
        "        if False:\n",
        f"{TESTS}/test_confirmed.py",
    ),
    Mutation(
        "a file of the right length is believed",
        FILES,
        "        if google_crc32c.value(data) == place.crc:\n",
        "        if len(data) == place.length:\n",
        f"{TESTS}/test_files.py",
    ),
    Mutation(
        "a file keeps what the database lacks",
        FILES,
        "                self._disk.shorten(fd, self._file.length)\n",
        "",
        f"{TESTS}/test_files.py",
    ),
    Mutation(
        "a file that no row names is left",
        FILES,
        "            disk.unlink(os.path.join(directory, name))\n            changes",
        "            changes",
        f"{TESTS}/test_files.py",
    ),
    Mutation(
        "a link in the place of a file is written through",
        FILES,
        "        return all(map(self._disk.is_own_directory, above)) and self._disk.is_own_file(self._path)\n",
        "        return all(map(self._disk.is_directory, above)) and self._disk.exists(self._path)\n",
        f"{TESTS}/test_files.py",
    ),
    Mutation(
        "a name that leads outside is made",
        FILES,
        '        if any(part in ("", ".", "..") for part in name.split("/")) or "\\0" in name:\n',
        '        if "\\0" in name:\n',
        f"{TESTS}/test_files.py -k outside",
    ),
    Mutation(
        "a damaged chunk is given out",
        f"{ROOM}/snapshot.py",
        "        if data is None or google_crc32c.value(data) != crc:\n",
        "        if data is None:\n",
        f"{TESTS}/test_snapshot.py -k damaged",
    ),
    Mutation(
        "tables of another version are used",
        f"{ROOM}/schema.py",
        "    if version != VERSION:\n",
        "    if version == -1:\n",
        f"{TESTS}/test_failover.py -k version",
    ),
]
