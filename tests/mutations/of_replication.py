"""Ways to break the store of a shard: mail that is acknowledged and on one server only, or that two owners write."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

ROOM, TESTS = "mailcore/replication", "tests/replication"
CONNECTION, LEASE, STATE, STATEMENTS, WRITER = (
    f"{ROOM}/{name}.py" for name in ("connection", "lease", "writer_state", "statements", "writer")
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
]
