"""Runs all checks in parallel, each with its own time limit, and yields each finding as soon as it is known.

Laws: no check changes anything. A check that exceeds its limit, or raises, becomes a finding; its earlier findings are kept.
Checks run in daemon threads, so that a disk or a name server that hangs delays neither the other checks nor the exit.

Keeps law: doctor-changes-nothing (docs/laws.md).
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from mailcore.doctor import (
    balance,
    certificates,
    clients,
    clock,
    disk,
    identity,
    lag,
    limits,
    log,
    logins,
    maildrop,
    memory,
    milters,
    names,
    nodes,
    permissions,
    portal,
    ports,
    processes,
    recipients,
    retired,
    reverse,
    rewriting,
    routes,
    secrets,
    sync,
    tlsa,
    traces,
    versions,
)
from mailcore.doctor.finding import Finding, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.shards import in_each

__all__ = ["ALONE", "CHECKS", "Check", "in_order", "run_checks"]


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
    Check("names", names.look, 8.0),
    Check("reverse", reverse.look, 8.0),
    Check("clients", clients.look, 8.0),
    Check("clock", clock.look, 6.0),
    Check("disk", disk.look, 5.0),
    Check("identity", in_each(identity.look_at_identity), 5.0),
    Check("permissions", permissions.look, 5.0),
    Check("lag", in_each(lag.look), 12.0),
    Check("retired", in_each(retired.look), 12.0),
    Check("maildrop", maildrop.look, 5.0),
    Check("certificates", certificates.look, 12.0),
    Check("tlsa", tlsa.look, 12.0),
    Check("logins", logins.look, 5.0),
    Check("secrets", secrets.look, 5.0),
    Check("recipients", recipients.look, 5.0),
    Check("rewriting", rewriting.look, 5.0),
    Check("routes", routes.look, 5.0),
    Check("milters", milters.look, 15.0),
    Check("traces", traces.look, 10.0),
    Check("nodes", nodes.look, 25.0),
    Check("versions", versions.look, 10.0),
    Check("balance", balance.look, 5.0),
    Check("log", log.look, 10.0),
    Check("limits", limits.look, 5.0),
    Check("memory", memory.look, 5.0),
    Check("portal", portal.look, 30.0),
)


def run_checks(host: Host, checks: Sequence[Check] = CHECKS, alone: Sequence[Check] = ALONE) -> Iterator[Finding]:
    """Runs ``alone`` one after another, then ``checks`` in parallel. Yields each finding when it comes."""
    for check in alone:
        yield from _as_they_come(host, [check])
    yield from _as_they_come(host, checks)


def in_order(
    findings: Iterable[Finding], checks: Sequence[Check] = CHECKS, alone: Sequence[Check] = ALONE
) -> list[Finding]:
    """Returns the findings in the order of the checks, which is the same in each run."""
    order = {check.subject: number for number, check in reversed(list(enumerate((*alone, *checks))))}
    return sorted(findings, key=lambda each: order[each.subject])


def _as_they_come(host: Host, checks: Sequence[Check]) -> Iterator[Finding]:
    come: queue.SimpleQueue[tuple[int, Finding | None]] = queue.SimpleQueue()
    until: dict[int, float] = {}  # of the checks that have not ended
    for number, check in enumerate(checks):
        until[number] = time.monotonic() + check.limit_s
        run = functools.partial(_run, check, host, number, come)
        threading.Thread(target=run, daemon=True, name=f"doctor {check.subject}").start()
    while until:
        first = min(until, key=until.__getitem__)
        try:
            number, finding = come.get(timeout=max(0.0, until[first] - time.monotonic()))
        except queue.Empty:
            del until[first]
            number, finding = first, _overdue(checks[first])
        else:
            if number not in until:
                continue  # a late finding of a check that exceeded its limit
            if finding is None:
                del until[number]
        if finding is not None:
            yield msgspec.structs.replace(finding, subject=checks[number].subject)


def _overdue(check: Check) -> Finding:
    reason = f"did not finish within {check.limit_s:g} s"
    return warn(check.subject, reason, "Find out what blocks: a disk, a name server, a process.")


def _run(check: Check, host: Host, number: int, come: queue.SimpleQueue[tuple[int, Finding | None]]) -> None:
    """Puts the findings of one check into ``come``, and None at its end."""
    try:
        for each in check.look(host):
            come.put((number, each))
    except PermissionError as error:
        place = error.filename or check.subject
        reason = "this user has no permission to read it"
        remedy = "Run waypost doctor as root, or as the user of Waypost."
        come.put((number, not_known(str(place), reason, remedy)))
    except OSError as error:
        place = error.filename or check.subject
        reason = error.strerror or str(error)
        remedy = "Repair what the message names; then run waypost doctor again."
        come.put((number, not_known(str(place), reason, remedy)))
    except Exception as error:  # a bug in one check must not hide the findings of the others
        reason = f"this check failed: {type(error).__name__}: {error}"
        come.put((number, not_known(check.subject, reason, "Report this as a bug of Waypost.")))
    come.put((number, None))
