"""Balance now: what was accepted is delivered, bounced, deleted, expired, or still queued, to the last recipient."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.balance import Scope, terms
from mailcore.doctor.finding import Finding, bad, good, not_known, warn
from mailcore.doctor.host import Patient

__all__ = ["look"]

REMEDY = "Keep the journal (waypost log dump), and report it with the queue ids that waypost report names."


def look(patient: Patient) -> Iterator[Finding]:
    if patient.state is None:
        yield not_known("now", "the manager does not answer")
        return
    for kind, balance in sorted((patient.state.get("balance") or {}).items()):
        difference = balance.get("difference", 0)
        told = ", ".join(f"{balance[term.name]} {term.label}" for term in terms(Scope(kind)) if term.name in balance)
        if difference:
            yield bad(kind, f"differs by {difference}: {told}", REMEDY, **balance)
        else:
            yield good(kind, told, **balance)
    stalled = patient.state.get("stalled")
    if stalled:
        yield bad(
            "deliveries", str(stalled), "Look at disk above: deliveries go on when there is room for their records."
        )
    damage = patient.state.get("tuned_damage")
    if damage:
        yield warn(
            "tuned values", str(damage), "Set what was tuned anew; the file is kept beside, for people to look at."
        )
