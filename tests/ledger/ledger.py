"""What was sent and what the server said to it: the one side of the comparison.

Every attempt has an id of its own. Its state only moves forward: SENDING, then IN_DOUBT from the moment the final dot
may have left, then ACKNOWLEDGED (250), DEFERRED (4xx) or REFUSED (5xx); if the connection breaks it stays what it was.
"""

from __future__ import annotations

import enum
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Ledger", "Sent", "State"]


class State(enum.StrEnum):
    SENDING = "sending"  # the final dot has not left: it must not arrive
    IN_DOUBT = "in doubt"  # it may arrive or not
    ACKNOWLEDGED = "acknowledged"  # it must arrive
    DEFERRED = "deferred"  # 4xx: the server did not take it; the client sends it again
    REFUSED = "refused"  # 5xx


@dataclass(slots=True)
class Sent:
    """One attempt. ``recipients`` are those that got their 250 at RCPT."""

    id: str
    recipients: tuple[str, ...] = ()
    sha256: str = ""  # of the content as on the wire, stuffing undone
    size_bytes: int = 0
    state: State = State.SENDING
    reply: str = ""
    at: float = 0.0  # wall clock, of the last change of state


@dataclass(slots=True)
class Ledger:
    """All attempts by id."""

    sent: dict[str, Sent] = field(default_factory=dict)

    def open(self, ledger_id: str) -> Sent:
        assert ledger_id not in self.sent, f"the id {ledger_id} was used before"
        entry = Sent(id=ledger_id, at=time.time())
        self.sent[ledger_id] = entry
        return entry

    def move(self, entry: Sent, state: State, reply: str = "") -> None:
        entry.state = state
        entry.reply = reply
        entry.at = time.time()

    def of(self, state: State) -> list[Sent]:
        return [entry for entry in self.sent.values() if entry.state is state]

    @property
    def acknowledged(self) -> list[Sent]:
        return self.of(State.ACKNOWLEDGED)

    @property
    def acknowledged_recipients(self) -> int:
        return sum(len(entry.recipients) for entry in self.acknowledged)

    def save(self, path: Path) -> None:
        """One line of JSON for each attempt, for a look afterwards."""
        with path.open("w", encoding="utf-8") as out:
            for entry in self.sent.values():
                line = {name: getattr(entry, name) for name in Sent.__slots__}
                out.write(json.dumps(line) + "\n")
