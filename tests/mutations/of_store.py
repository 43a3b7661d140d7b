"""Ways to break a queue that a store keeps: a node that goes with its disk takes mail along, or brings some back."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

LANE, STORE = "mailcore/log/lane.py", "mailcore/log/store.py"
CHECKPOINT, RETIRING, SPOOL = (f"mailcore/queue/{name}.py" for name in ("checkpoint", "retiring", "spool"))
TESTS = "tests/queue/test_laws_store.py"
_EACH = "        for writer, batch in zip(writers, batches, strict=True):\n"

MUTATIONS = [
    Mutation(
        "a lane is written before its commit",
        LANE,
        f"        store.commit(changes, ends)\n{_EACH}            try:\n                writer._write",
        f"{_EACH}            writer._write(batch._pieces, batch.end)\n        store.commit(changes, ends)\n"
        "        for writer, batch in ():\n            try:\n                writer._write",
        TESTS,
    ),
    Mutation(
        "restart positions are committed before the lanes that they cover",
        CHECKPOINT,
        "        write_together(self.batches, store, changes)\n",
        "        write_together([], store, changes)\n        write_together(self.batches, store, store.changes())\n",
        TESTS,
    ),
    Mutation(
        "a store has no marks",
        CHECKPOINT,
        "            changes.marks(store.name(path), offsets, value)\n",
        "            store.name(path)\n",
        TESTS,
    ),
    Mutation(
        "the segment of a mark has the wrong name in the store",
        CHECKPOINT,
        "            if not self.queue.disk.exists(path):\n                path",
        "            if base in self.queue.bodies.retired.get(lane, ()):\n                path",
        TESTS,
    ),
    Mutation(
        "a segment is retired on this node alone",
        RETIRING,
        "                changes.rename(store.name(each.path), store.name(retired_path(each.path)))\n",
        "                store.name(each.path)\n",
        TESTS,
    ),
    Mutation(
        "what is deleted here stays in the store",
        STORE,
        "        store.commit(changes, {})\n",
        "        assert changes is not None\n",
        TESTS,
    ),
    Mutation(
        "the data of a message is on this node alone",
        SPOOL,
        "            self._store.commit(changes, {})\n",
        "            assert changes is not None\n",
        TESTS,
    ),
    Mutation(
        "a client waits for a store without end",
        "mailcore/receiver/stored.py",
        "call_later(self._stores.commit_wait_s, finish, UNKNOWN)",
        "call_later(3600.0, finish, UNKNOWN)",
        "tests/receiver/test_stored.py -k too_long",
    ),
    Mutation(
        "new clients wait behind a database that does not answer",
        "mailcore/receiver/stored.py",
        "        return longest_s >= self._stores.commit_wait_s\n",
        "        return longest_s < 0\n",
        "tests/receiver/test_stored.py -k too_long",
    ),
    Mutation(
        "a dot is sent when the lease is over",
        "mailcore/deliverer/message_data.py",
        "        if self.files.deadline.is_over:\n            return OVER\n",
        "",
        "tests/deliverer/test_deadline.py -k no_dot",
    ),
    Mutation(
        "a delivery begins when the lease is over",
        "mailcore/deliverer/deliverer.py",
        "        if self.deadline.is_over:\n            return _deferred(work, OVER)\n",
        "",
        "tests/deliverer/test_deadline.py -k begins",
    ),
    Mutation(
        "a dot waits behind data in our memory",
        "mailcore/deliverer/transaction.py",
        "                await connection.drained(limits.data_timeout_s)\n",
        "                pass\n",
        "tests/deliverer/test_deadline.py -k decided",
    ),
    Mutation(
        "entries are given out when the lease is over",
        "mailcore/manager/flow.py",
        "if self.is_ending or not self.context.may_deliver():",
        "if self.is_ending:",
        "tests/manager/test_leasing.py -k lease",
    ),
    Mutation(
        "a deliverer gets an entry before it hears of the lease",
        "mailcore/manager/links.py",
        "                    manager.leasing.tell(self._deliverer)\n",
        "                    pass\n",
        "tests/manager/test_leasing.py -k hears",
    ),
    Mutation(
        "a full database is a damaged disk",
        "mailcore/replication/store.py",
        "errno.ENOSPC if error.sqlstate == _FULL else errno.EIO",
        "errno.EIO",
        "tests/replication/test_store.py -k refuses",
    ),
]
