"""The exporter's answers for reports over all nodes: the portal, which makes and mails them, may not ask the database itself.

``gather`` fetches event files of all shards, a step each time (``gathering``); ``letter`` says which node mails the report of a
day (``letters``).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from mailcore.config.settings import Settings
from mailcore.faults import Code, Fault, FaultError
from mailcore.log.disk import Locked
from mailcore.nodes.gathering import Gatherer
from mailcore.nodes.letters import Letters

__all__ = ["answer"]

QUEUE_ID_MAX = 200


def answer(settings: Settings, operation: str, arguments: Mapping[str, Any]) -> dict[str, Any] | Fault:
    """Does one step of ``gather``, or of ``letter``: it claims, notes a queue id (``sent``) or gives the turn back
    (``release``). Raises OSError."""
    try:
        if operation == "gather":
            since, until, keep = (_date(arguments, name) for name in ("since", "until", "keep"))
            return _told(Gatherer(settings).gather(since, until, keep))
        day, queue_id = _date(arguments, "day"), str(arguments.get("sent") or "")[:QUEUE_ID_MAX]
        letters = Letters(settings)
        if arguments.get("release"):
            return _told(letters.release(day))
        return _told(letters.sent(day, queue_id) if queue_id else letters.claim(day))
    except Locked:
        return Fault(Code.BUSY, "the events of all shards are being fetched at this moment")
    except FaultError as error:
        return error.fault


def _told(answered: msgspec.Struct) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(answered)
    return told


def _date(arguments: Mapping[str, Any], name: str) -> str:
    try:
        return datetime.date.fromisoformat(str(arguments.get(name))).isoformat()
    except ValueError:
        raise FaultError(f"{name} must be a date such as 2026-11-20", code=Code.INVALID, argument=name) from None
