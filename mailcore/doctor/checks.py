"""All checks, side by side, each with a time of its own that it may take.

Laws: no check changes anything. A check that takes longer than it may, or fails by itself, is a finding; what it found until
then counts. Threads, because what hangs (a disk, a name server) must not keep the others waiting, and nobody waits for it at
the end either.

Keeps law: doctor-changes-nothing (docs/laws.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from mailcore.doctor import (
    balance,
    certificates,
    clock,
    disk,
    lag,
    limits,
    log,
    memory,
    names,
    permissions,
    portal,
    ports,
    processes,
    reverse,
    sync,
    versions,
)
from mailcore.doctor.finding import Finding, not_known, warn
from mailcore.doctor.host import Patient

__all__ = ["ALONE", "CHECKS", "Check", "examine"]


class Check(NamedTuple):
    subject: str
    look: Callable[[Patient], Iterable[Finding]]
    limit_s: float


# In front of the others, which would be measured with it.
ALONE = (Check("disk", sync.look, 10.0),)
CHECKS = (
    Check("processes", processes.look, 5.0),
    Check("ports", ports.look, 10.0),
    Check("names", names.look, 20.0),
    Check("reverse", reverse.look, 15.0),
    Check("clock", clock.look, 6.0),
    Check("disk", disk.look, 5.0),
    Check("permissions", permissions.look, 5.0),
    Check("lag", lag.look, 12.0),
    Check("certificates", certificates.look, 12.0),
    Check("versions", versions.look, 10.0),
    Check("balance", balance.look, 5.0),
    Check("log", log.look, 10.0),
    Check("limits", limits.look, 5.0),
    Check("memory", memory.look, 5.0),
    Check("portal", portal.look, 30.0),
)


class _Running:
    """One check in a thread of its own; findings are kept as they come."""

    def __init__(self, check: Check, patient: Patient) -> None:
        self.check = check
        self._patient = patient
        self._findings: list[Finding] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"doctor {check.subject}")
        self._until = time.monotonic() + check.limit_s
        self._thread.start()

    def _run(self) -> None:
        try:
            for each in self.check.look(self._patient):
                self._findings.append(each)
        except PermissionError as error:
            place = error.filename or self.check.subject
            who = "this user may not look at it"
            self._findings.append(not_known(str(place), who, "Run it as root, or as the user Waypost runs as."))
        except OSError as error:
            place = error.filename or self.check.subject
            self._findings.append(not_known(str(place), error.strerror or str(error)))
        except Exception as error:  # a fault of a check is told, and the others are worth as much as before
            told = f"the check itself failed: {type(error).__name__}: {error}"
            self._findings.append(not_known(self.check.subject, told, "Please report this as a fault of Waypost."))

    def findings(self) -> list[Finding]:
        """What it found when it has ended, or its time is over."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        found = list(self._findings)
        if self._thread.is_alive():
            told = f"did not come to an end within {self.check.limit_s:g} s"
            found.append(
                warn(self.check.subject, told, "Find out what it waits for: a disk, a name server, a process.")
            )
        return [msgspec.structs.replace(each, subject=self.check.subject) for each in found]


def examine(patient: Patient, checks: Sequence[Check] = CHECKS, alone: Sequence[Check] = ALONE) -> list[Finding]:
    """All findings, in the order of the checks."""
    found: list[Finding] = []
    for check in alone:
        found += _Running(check, patient).findings()
    running = [_Running(check, patient) for check in checks]
    for each in running:
        found += each.findings()
    return found
