"""Ways to break the files that Waypost keeps itself."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

STORE = "mailcore/control/kept_store.py"
KEEPING = "mailcore/control/keeping.py"
TESTS = "tests/control/test_kept_store.py"

MUTATIONS = [
    Mutation(
        "a kept file is written under its own name",
        STORE,
        '            new = path.with_name(f"{path.name}{NEW}")\n',
        "            new = path\n",
        f"{TESTS} -k wherever",
    ),
    Mutation(
        "a kept file is reported before it is synced",
        STORE,
        "                os.fsync(descriptor)\n",
        "",
        f"{TESTS} -k synced",
    ),
    Mutation(
        "a kept file that is in use is removed",
        STORE,
        "            if reference in used:\n",
        "            if False:\n",
        f"{TESTS} -k needs_goes",
    ),
    Mutation(
        "a kept key is shown as a map is",
        KEEPING,
        "        if reference.kind not in (MAP, CERTIFICATE, CA):\n",
        "        if False:\n",
        "tests/end_to_end/test_kept.py -k no_answer",
    ),
    Mutation(
        "a managed setting names a kept file of another kind",
        "mailcore/config/kept_files.py",
        "        if reference.kind != kind:\n",
        "        if False:\n",
        f"{TESTS} -k managed_list",
    ),
]
