"""Balance: every accepted recipient is delivered, bounced, deleted, expired or still queued."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from mailcore.balance import Scope, terms
from mailcore.config.lines import report
from mailcore.config.tuned_check import ignored
from mailcore.doctor.finding import AFTER_PROCESSES, Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.manager_answers import State

__all__ = ["look"]

REMEDY = "Keep a copy of the journal (waypost log dump) and report a bug with the queue IDs listed in the daily report."


def look(host: Host) -> Iterator[Finding]:
    """Yields one finding for each balance of the manager, and warnings about deliveries and tuned values."""
    yield from _tuned(host)
    if host.state is None:
        yield not_known("balance", "cannot check: the manager process does not answer", AFTER_PROCESSES)
        return
    since = _since(host.state)
    for kind, balance in sorted(msgspec.structs.asdict(host.state.balance).items()):
        difference = balance["difference"]
        counts = ", ".join(f"{balance[term.name]} {term.label}" for term in terms(Scope(kind)))
        if difference:
            found = f"does not add up, difference {difference}: {counts}; {since}"
            yield bad(kind, found, REMEDY, **balance, counted_since=host.state.counted_since)
        else:
            yield good(kind, f"{counts}; {since}", **balance, counted_since=host.state.counted_since)
    if stalled := host.state.stalled:
        yield bad(
            "deliveries",
            f"one at a time: {stalled}",
            "See the findings on disk. A delivery frees space; all go out again when the disk has room for their records.",
        )
    if full := host.state.active_full:
        yield warn(
            "active set",
            full,
            "Mail for other destinations waits. Suspend or reroute these destinations, or raise message_active_limit.",
        )
    if damage := host.state.tuned_damage:
        yield warn("tuned values", damage, "Set the lost values again; the damaged file is kept under another name.")


def _since(state: State) -> str:
    """Returns when the counts of the balance began, and why nothing before is counted."""
    moment = datetime.fromtimestamp(state.counted_since).isoformat(" ", "seconds")
    return f"counted since {moment}" + (f", because {state.counted_note}" if state.counted_note else "")


def _tuned(host: Host) -> Iterator[Finding]:
    """Yields a finding for each value of tuned.toml that is not in force."""
    path = host.settings.home / "tuned.toml"
    try:
        faults = ignored(path, host.settings)
    except ValueError as error:  # damaged: the next start sets it aside
        yield warn("tuned values", f"{path}: {error}", "Correct the file while Waypost is stopped.")
        return
    for line in report(path, faults).splitlines():
        yield warn(
            "tuned values", line, "Stop Waypost, correct or delete the line, and start it: it rewrites the file."
        )
