"""Applies a draft of settings, and writes all settings as one TOML text: what the pages and the HTTP API do alike.

Law: a change is entered in the audit log before the core gets it, with its reason; faults of the core change nothing.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from appliance.audit.record import audited
from appliance.common.door import door
from appliance.managed.draft import Draft
from appliance.reports import preferences
from mailcore.config.managed import REMOVED, document_text, dotted, not_managed
from mailcore.control.protocol.settings import KeyFault, SettingsChanged, SettingsKnown

__all__ = ["Faulty", "applied", "exported"]


class Faulty(ValueError):
    """Raised when the core refuses values of a draft; nothing was changed."""

    def __init__(self, faults: list[KeyFault]) -> None:
        super().__init__("; ".join(f"{fault.key} {fault.reason}" for fault in faults))
        self.faults = faults


def applied(request: HttpRequest, draft: Draft, why: str) -> SettingsChanged:
    """Returns the core's answer after a draft was written; a reload follows. Raises Faulty, ControlError."""
    arguments = draft.arguments(check=False)
    with audited(request, "settings.change", draft.subject, after=arguments, why=why) as entry:
        answer = door(request).ask_change(draft.operation, SettingsChanged, arguments, why=why)
        if answer.faults:
            raise Faulty(answer.faults)
        entry.words = ", ".join(each.key for each in answer.changed)
    preferences.give_up(key[-1] for key in (*(key for key, _ in draft.changes), *draft.removed) if key[0] == "reports")
    return answer


def exported(answer: SettingsKnown) -> str:
    """Returns all settings that can be managed as one TOML text, which can be entered elsewhere."""
    document: dict[str, Any] = {}
    removed = dict.fromkeys(dotted(each.removed) for each in answer.settings if each.removed)
    if removed:
        document[REMOVED] = list(removed)
    for each in answer.settings:
        if each.fixed or each.origin in ("removed", "tuned") or _names_files(each.value):
            continue
        table = document
        for name in each.key[:-1]:
            table = table.setdefault(name, {})
        table[each.key[-1]] = each.value
    return document_text(
        document, f"# Settings of Waypost, revision {answer.revision}, without places, files, keys and users.\n"
    )


def _names_files(value: Any) -> bool:
    """Returns whether a section [[name]] has a key that is not managed."""
    tables = value if isinstance(value, list) else []
    return any(not_managed(("", 0, name)) for table in tables if isinstance(table, dict) for name in table)
