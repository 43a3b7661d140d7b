"""Acknowledged against arrived: what is missing, what came twice, what was altered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mailcore.lab.arrival import Arrival
from tests.ledger.ledger import Ledger, State

__all__ = ["Comparison", "compare"]

SHOWN = 5  # of each list in a failed assertion


@dataclass(slots=True)
class Comparison:
    """Pairs are (id, recipient)."""

    missing: list[tuple[str, str]] = field(default_factory=list)  # acknowledged, not arrived
    duplicates: Counter[tuple[str, str]] = field(default_factory=Counter)  # arrivals beyond the first
    repeated: int = 0  # transactions that brought at least one pair again: deliveries made twice
    altered: list[str] = field(default_factory=list)  # ids whose content differs from what was sent
    strangers: list[Arrival] = field(default_factory=list)  # with an id or a recipient never sent: bounces, for one
    unfinished: list[str] = field(default_factory=list)  # arrived although the final dot never left
    refused: list[str] = field(default_factory=list)  # arrived although it was answered with 4xx or 5xx
    doubtful: int = 0  # arrived, in doubt: allowed

    def __str__(self) -> str:
        return (
            f"missing {len(self.missing)} {self.missing[:SHOWN]}, "
            f"duplicates {self.duplicates.total()} in {self.repeated} deliveries {self.duplicates.most_common(SHOWN)}, "
            f"altered {len(self.altered)} {self.altered[:SHOWN]}, strangers {len(self.strangers)} "
            f"{self.strangers[:SHOWN]}, unfinished {self.unfinished[:SHOWN]}, "
            f"refused but arrived {len(self.refused)} {self.refused[:SHOWN]}, in doubt but arrived {self.doubtful}"
        )

    @property
    def clean(self) -> bool:
        """Each once, byte for byte, and nothing else."""
        return not (self.lost or self.duplicates or self.strangers or self.refused)

    @property
    def lost(self) -> bool:
        """What no crash excuses. A message refused for a failing disk may still arrive; it is no loss."""
        return bool(self.missing or self.altered or self.unfinished)


def compare(ledger: Ledger, arrivals: Iterable[Arrival]) -> Comparison:
    """Every arrival is of use: an altered message does not count as arrived."""
    result = Comparison()
    seen: set[tuple[str, str]] = set()
    counted: set[str] = set()
    for arrival in arrivals:
        ledger_id = arrival.id or arrival.sender.partition("@")[0]
        entry = ledger.sent.get(ledger_id)
        if entry is None or not set(arrival.recipients) <= set(entry.recipients):
            result.strangers.append(arrival)
            continue
        if arrival.sha256 != entry.sha256 or arrival.sender.partition("@")[0] != ledger_id:
            result.altered.append(ledger_id)
            continue
        pairs = [(ledger_id, recipient) for recipient in arrival.recipients]
        again = [pair for pair in pairs if pair in seen]
        result.duplicates.update(again)
        result.repeated += bool(again)
        seen.update(pairs)
        if ledger_id not in counted:
            counted.add(ledger_id)
            if entry.state is State.SENDING:
                result.unfinished.append(ledger_id)
            elif entry.state in (State.DEFERRED, State.REFUSED):
                result.refused.append(ledger_id)
            elif entry.state is State.IN_DOUBT:
                result.doubtful += 1
    for entry in ledger.acknowledged:
        result.missing += [(entry.id, each) for each in entry.recipients if (entry.id, each) not in seen]
    return result
