"""Ways to break what a list promises to programs."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a reader gives up when the control process ends",
        "mailcore/cli/pages.py",
        "                self._reconnection.wait(error)\n",
        "                raise\n",
        "tests/cli/test_lists.py -k killed",
    ),
    Mutation(
        "the cursor is behind a page before the page is printed",
        "mailcore/cli/pages.py",
        "                    self.notes.add(part)\n",
        "                    self.notes.add(part)\n                    self.cursor = part.cursor\n",
        "tests/cli/test_lists.py -k interrupted",
    ),
    Mutation(
        "a list with damage is complete",
        "mailcore/cli/pages.py",
        "        complete = not (pages.notes.missing() or how)\n",
        "        complete = not how\n",
        "tests/cli/test_lists.py -k damage",
    ),
]
