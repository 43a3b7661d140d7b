"""Records a report made in a terminal: user, progress, log and result.

Law: the report does not need the portal or its database. Without them it is made all the same, and is not recorded.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from datetime import date
from pathlib import Path

from django.db import DatabaseError, connection
from django.utils import timezone

from appliance.reports import runs
from appliance.reports.models import Run, State
from appliance.reports.running import Ended, Heard

__all__ = ["RecordedRun", "database_is_there"]


def database_is_there() -> bool:
    """Returns whether the database exists and may be queried. A query would create a missing SQLite file, empty and
    owned by the user of this command, and the portal could not use it."""
    return connection.vendor != "sqlite" or Path(connection.settings_dict["NAME"]).is_file()


class RecordedRun:
    """One run, begun now. Under the lock of ``running``, as all that stand as running."""

    def __init__(self, day: date) -> None:
        self._it: Run | None = None
        if database_is_there():
            with contextlib.suppress(DatabaseError):
                self._it = Run.objects.create(
                    day=day, who=_who(), by_hand=True, state=State.RUNNING, begun_at=timezone.now(), stage="starting"
                )

    def export_failed(self, why: str) -> None:
        """Stores why the core could not export the latest events; "" when it could."""
        if self._it is not None:
            with contextlib.suppress(DatabaseError):
                runs.export_failed(self._it.pk, why)

    def heard(self, told: Heard) -> bool:
        """Stores the progress. Returns False if the run was stopped on its page."""
        if self._it is not None:
            with contextlib.suppress(DatabaseError):
                return runs.heard(self._it.pk, told)
        return True

    def ended(self, came: Ended) -> None:
        """Stores the result of the run, if its start was stored."""
        if self._it is not None:
            with contextlib.suppress(DatabaseError, Run.DoesNotExist):
                runs.ended(self._it, came)

    def interrupted(self) -> None:
        """Records that the user who began the run interrupted it."""
        if self._it is not None:
            with contextlib.suppress(DatabaseError):
                Run.objects.filter(pk=self._it.pk).update(
                    state=State.STOPPED, words="interrupted at the terminal", ended_at=timezone.now()
                )


def _who() -> str:
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"user {os.getuid()}"
    return f"{name} at the terminal"
