"""Ways to break what a list promises to programs, and to lead the mail of local programs elsewhere."""

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
    Mutation(
        "sendmail reads the configuration of the current directory",
        "mailcore/cli/postfix/main.py",
        "    path = Path(given) if given else INSTALLED\n",
        '    path = Path(given or "waypost.toml")\n',
        "tests/cli/postfix/test_sendmail.py -k current_directory",
    ),
    Mutation(
        "sendmail -bs takes parameters that have no effect",
        "mailcore/cli/postfix/stdin_smtp.py",
        "for row in OFFERED for each in row.mail}\n",
        "for row in EXTENSIONS for each in row.mail}\n",
        "tests/cli/postfix/test_stdin_smtp.py -k not_offered",
    ),
]
