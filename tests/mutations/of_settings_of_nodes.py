"""Ways to break the settings that all nodes have once."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

ROWS = "tests/replication/test_settings_rows.py"
TAKING = "tests/nodes/test_taking.py"
SEALED = "tests/nodes/test_sealed_settings.py"
NODES = "tests/nodes/test_settings.py"
USERS = "tests/nodes/test_users_taken.py"

MUTATIONS = [
    Mutation(
        "settings are written for an older version",
        "mailcore/replication/statements.py",
        "where kind = $1 and version = $2 and asked = $3 returning version",
        "where kind = $1 and $2 = $2 and $3 = $3 returning version",
        ROWS,
    ),
    Mutation(
        "a change of settings that is under way counts after its outcome was asked for",
        "mailcore/replication/statements.py",
        "where kind = $1 and version = $2 and asked = $3 returning version",
        "where kind = $1 and version = $2 and $3 = $3 returning version",
        ROWS,
    ),
    Mutation(
        "a file that was changed by hand is replaced",
        "mailcore/nodes/taking.py",
        "self._is_state(connection, change, kind, own, noted or 0)",
        "self._is_state(connection, change, kind, own, noted or 0) and noted is None",
        TAKING,
    ),
    Mutation(
        "a second node's own settings are replaced",
        "mailcore/nodes/taking.py",
        "(noted is not None and kind != TUNED) or not self._is_empty(kind, own)",
        "noted is not None and kind != TUNED",
        TAKING,
    ),
    Mutation(
        "a sealed state counts at any version",
        "mailcore/nodes/settings_store.py",
        '    return f"{NAMES[kind]} of version {version}"\n',
        "    return NAMES[kind]\n",
        SEALED,
    ),
    Mutation(
        "a version without a state counts as an empty one",
        "mailcore/nodes/settings_store.py",
        '        raise NotSealed(f"the database lacks',
        '        return EMPTY\n        raise NotSealed(f"the database lacks',
        f"{SEALED} -k without_a_state",
    ),
    Mutation(
        "a change counts for another state than it was checked with",
        "mailcore/control/managing.py",
        "newest.state.text != checked.managed_text or not is_newest",
        "not is_newest",
        f"{TAKING} -k behind_the_check",
    ),
    Mutation(
        "a change that would stop the mail of a node is taken over",
        "mailcore/nodes/taking.py",
        "if faults := self._faults(in_force, new):",
        "if faults := self._faults(new, new):",
        f"{TAKING} -k stop_the_mail",
    ),
    Mutation(
        "what was decided to be given undoes what was changed since",
        "mailcore/nodes/taking.py",
        "decision.what == GIVE and decision.version != change.version:",
        "decision.what == GIVE and decision.version > change.version:",
        f"{TAKING} -k node_that_is_down_gives",
    ),
    Mutation(
        "a value is set here before all nodes have it",
        "mailcore/manager/overrides.py",
        "            state = State(",
        "            self.take(*new)\n            state = State(",
        NODES,
    ),
    Mutation(
        "a change of one user undoes that of another at another node",
        "mailcore/control/changing_users.py",
        "    found = table_of(newest.state.text, path)\n",
        "    found = table_of(own, path)\n",
        f"{USERS} -k goes_together",
    ),
    Mutation(
        "users change here before all nodes have them",
        "mailcore/control/changing_users.py",
        "            try:\n                written",
        "            replace_file(path, state.text, like)\n            try:\n                written",
        f"{USERS} -k only_when_all_nodes",
    ),
    Mutation(
        "users that were edited by hand are replaced",
        "mailcore/nodes/taking.py",
        "            return change.is_ours(own)\n",
        "            return True\n",
        f"{USERS} -k by_hand",
    ),
    Mutation(
        "users of an earlier version that were put back by hand are replaced",
        "mailcore/nodes/settings_store.py",
        "if mark is None else [mark]",
        "if mark is None else [*notes.files.get(kind, []), mark]",
        f"{USERS} -k put_back_by_hand",
    ),
    Mutation(
        "users are replaced by those of a database that was restored",
        "mailcore/nodes/settings_store.py",
        "not rows.has_state(self.connection, self._kind, noted)",
        "noted",
        f"{USERS} -k restored_to_an_earlier",
    ),
]
