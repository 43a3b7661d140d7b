"""Ways to break a law in the source, each with tests of which one must then fail.

A mutation replaces ``old``, which occurs once in the file, by ``new``. Whoever writes a test for a law adds here what it is
there to catch; whoever changes the code finds here what must not get lost.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Mutation"]


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    tests: str  # what pytest is given: files, and -k; for ``of_recount`` the tables in which the recount shows it
