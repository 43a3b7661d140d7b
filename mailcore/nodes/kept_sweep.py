"""Removes the sealed kept files from the database to which no state of the managed settings refers any more.

The history is bounded (``settings_rows.STATES_MAX``), and a state of it may be returned to. A file is written before the state
that names it, so one that was added or named by a change within the last day stays.

Nothing is removed by a node that is not in, or that cannot read the newest state: it does not know what is in use. Files that
only states of an earlier authority name go: no node reads those.
"""

from __future__ import annotations

import tomllib

from mailcore.config.kept_files import references_in
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import MANAGED
from mailcore.nodes.settings_store import SettingsStore, states_in, why_not_in
from mailcore.replication import settings_rows as rows
from mailcore.replication.connection import Connection

__all__ = ["EVERY_S", "FIRST_S", "STAYS_S", "SweepingKept", "sweep_kept"]

FIRST_S = 600.0
EVERY_S = 6 * 3600.0
STAYS_S = 86_400  # a change takes seconds; a command that waits for a person may take longer


class SweepingKept:
    """Sweeps from time to time, over a connection of its own."""

    def __init__(self, settings: Settings) -> None:
        self._store = SettingsStore(settings)
        self._is_first = True

    def once(self) -> float:
        """Sweeps, and returns when to do it again. Raises FaultError, OSError."""
        if self._is_first:
            self._is_first = False
            return FIRST_S
        if self._store.is_on():
            connection = self._store.connect()
            try:
                sweep_kept(connection, self._store)
            finally:
                connection.close()
        return EVERY_S


def sweep_kept(connection: Connection, store: SettingsStore, stays_s: int = STAYS_S) -> list[str]:
    """Removes what no state refers to, and returns the references. Raises FaultError, OSError."""
    old = rows.old_kept(connection, stays_s)
    if not old or why_not_in(connection, store.settings):
        return []
    newest, used = 0, set[str]()
    for state in states_in(connection, store.seal(), MANAGED):
        newest = state.version
        try:
            used.update(str(each) for each in references_in(tomllib.loads(state.text)))
        except ValueError:
            return []
    if newest != rows.read_heads(connection).get(MANAGED, 0):
        return []
    return [each for each in old if each not in used and rows.remove_kept(connection, each, stays_s)]
