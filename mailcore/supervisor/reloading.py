"""A reload: the file is read again, and the processes that the change concerns start again with the new settings.

Asked for with RELOAD to the supervisor (``waypost reload``). Its result is in RESULT, in the run directory.

- law: reload-is-checked-first. The whole file is read and checked before anything ends. With a fault, or a change that needs a
  restart of the service, nothing has changed, not even for a process that is killed later.
- law: reload-refuses-no-client. The listening sockets stay open: clients that connect meanwhile wait for the next process.
  Transactions and deliveries that have begun may end, for ``supervisor.reload_s``. A client gets 421 only between two
  transactions.

Must not know: what a process does.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.config.document import ConfigError
from mailcore.config.settings import Settings
from mailcore.supervisor.settings_change import changed_keys, concerned, not_while_running

__all__ = ["RELOAD", "RESULT", "Plan", "Reload", "end_unfinished", "last_result", "plan_of", "write_result"]

RELOAD = signal.SIGUSR1  # to the supervisor
RESULT = "reload.json"  # in the run directory
KEYS_KEPT = 1_000  # of a change, in RESULT


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds the new settings and the roles that start again; or why a reload does nothing."""

    settings: Settings
    roles: frozenset[str]
    keys: tuple[str, ...]  # that changed, as in the file
    refused: tuple[str, ...] = ()


def plan_of(old: Settings, read: Callable[[], Settings], *, sockets_are_given: bool) -> Plan:
    """Reads the file and returns the plan; ``read`` raises ConfigError or OSError."""
    try:
        new = read()
    except (ConfigError, OSError) as error:
        return Plan(old, frozenset(), (), tuple(str(error).splitlines()) or (repr(error),))
    except Exception as error:  # a bug must not end what keeps all processes running
        return Plan(old, frozenset(), (), (f"internal error: {error!r}",))
    keys = tuple(each.key for each in changed_keys(old, new))
    refused = not_while_running(old, new, sockets_are_given=sockets_are_given)
    if refused:
        return Plan(old, frozenset(), keys, tuple(refused))
    return Plan(new, concerned(old, new), keys)


@dataclass(slots=True)
class Reload:
    """One reload that is under way. Times are monotonic, except those in ``result``."""

    plan: Plan
    number: int
    until: float  # processes that have not ended by then are killed
    began_at: float = field(default_factory=time.time)
    ending: set[str] = field(default_factory=set)  # names of processes that are still to end
    waiting: set[str] = field(default_factory=set)  # of processes that end when those in front of them have
    beginning: set[str] = field(default_factory=set)  # of processes that are started and have not begun their work

    @property
    def is_done(self) -> bool:
        """Returns True if every process that the change concerns works with the new settings."""
        return not (self.ending or self.waiting or self.beginning)

    def result(
        self, ended_at: float | None, killed: Sequence[str] = (), not_begun: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Returns what RESULT says. ``ended_at``: None while it lasts; ``killed``: the processes that did not end in time."""
        return {
            "number": self.number,
            "began_at": self.began_at,
            "ended_at": ended_at,
            "refused": list(self.plan.refused),
            "changed": list(self.plan.keys[:KEYS_KEPT]),
            "restarted": sorted(self.plan.roles),
            "killed": list(killed),
            "not_begun": list(not_begun),
        }


def write_result(directory: Path, result: dict[str, Any]) -> None:
    """Replaces RESULT. Raises OSError."""
    path = directory / RESULT
    new = path.with_suffix(".new")
    new.write_text(json.dumps(result))
    new.chmod(0o644)
    new.replace(path)


def end_unfinished(directory: Path, at: float) -> None:
    """Ends the reload that a supervisor before this one has begun: its processes have just started. Raises OSError."""
    result = last_result(directory)
    if result and result.get("ended_at") is None:
        write_result(directory, result | {"ended_at": at})


def last_result(directory: Path) -> dict[str, Any]:
    """Returns what RESULT says; {} if there was no reload. ``ended_at`` is None while one lasts."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((directory / RESULT).read_text())
        if isinstance(found, dict):
            return found
    return {}
