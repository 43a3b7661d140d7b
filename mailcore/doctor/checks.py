"""Runs all checks in parallel, each with its own time limit.

Laws: no check changes anything. A check that exceeds its limit, or raises, becomes a finding; its earlier findings are kept.
Checks run in daemon threads, so that a disk or a name server that hangs delays neither the other checks nor the exit.

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
    identity,
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
from mailcore.doctor.host import Host

__all__ = ["ALONE", "CHECKS", "Check", "run_checks"]


class Check(NamedTuple):
    """One check: its name in the report, its function, and its time limit."""

    subject: str
    look: Callable[[Host], Iterable[Finding]]
    limit_s: float


# Runs before the others: their disk accesses would distort its measurement.
ALONE = (Check("disk", sync.look, 10.0),)
CHECKS = (
    Check("processes", processes.look, 5.0),
    Check("ports", ports.look, 10.0),
    Check("names", names.look, 20.0),
    Check("reverse", reverse.look, 15.0),
    Check("clock", clock.look, 6.0),
    Check("disk", disk.look, 5.0),
    Check("identity", identity.look_at_identity, 5.0),
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
    """Runs one check in its own thread and collects its findings."""

    def __init__(self, check: Check, host: Host) -> None:
        self.check = check
        self._host = host
        self._findings: list[Finding] = []
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"doctor {check.subject}")
        self._until = time.monotonic() + check.limit_s
        self._thread.start()

    def _run(self) -> None:
        try:
            for each in self.check.look(self._host):
                self._findings.append(each)
        except PermissionError as error:
            place = error.filename or self.check.subject
            reason = "this user has no permission to read it"
            self._findings.append(
                not_known(str(place), reason, "Run waypost doctor as root, or as the user of Waypost.")
            )
        except OSError as error:
            place = error.filename or self.check.subject
            reason = error.strerror or str(error)
            self._findings.append(
                not_known(str(place), reason, "Repair what the message names; then run waypost doctor again.")
            )
        except Exception as error:  # a bug in one check must not hide the findings of the others
            reason = f"this check failed: {type(error).__name__}: {error}"
            self._findings.append(not_known(self.check.subject, reason, "Report this as a bug of Waypost."))

    def findings(self) -> list[Finding]:
        """Waits until the check ends or its limit is reached, and returns its findings."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        found = list(self._findings)
        if self._thread.is_alive():
            reason = f"did not finish within {self.check.limit_s:g} s"
            found.append(warn(self.check.subject, reason, "Find out what blocks: a disk, a name server, a process."))
        return [msgspec.structs.replace(each, subject=self.check.subject) for each in found]


def run_checks(host: Host, checks: Sequence[Check] = CHECKS, alone: Sequence[Check] = ALONE) -> list[Finding]:
    """Runs ``alone`` one after another, then ``checks`` in parallel. Returns all findings in the order of the checks."""
    found: list[Finding] = []
    for check in alone:
        found += _Running(check, host).findings()
    running = [_Running(check, host) for check in checks]
    for each in running:
        found += each.findings()
    return found
