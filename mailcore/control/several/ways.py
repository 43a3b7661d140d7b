"""The table of ways: for each operation, how it is asked of several shards.

The first shard of this node is asked for settings, kept files, users, routes and the log, which a node has once. Mail is asked
for, and changed, in the shards of all nodes (``protocol.scope``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mailcore.config.known_shards import KnownShard
from mailcore.config.waiting import Waiting
from mailcore.control.several.changes import (
    begin_injection,
    change,
    change_matching,
    go_on_injecting,
    of_message,
    set_all,
    working,
)
from mailcore.control.several.lists import events, list_at, list_queue, search
from mailcore.control.several.numbers import (
    ages,
    destinations,
    disks,
    effects,
    outcomes,
    ping,
    positions,
    processes,
    service_times,
    simulate,
    size,
    size_at,
    state,
)
from mailcore.control.several.steps import Question, Session, Steps, Way

__all__ = ["WAYS", "steps_of"]


def _of_the_node(question: Question) -> Steps:
    """Asks the first shard of this node for what is the same for all of its shards."""
    yield from question.passed_on(question.here[0])


_NODE = (
    "certificates", "transports", "parameters", "check_changes", "settings", "settings_change",
    "settings_history", "settings_return", "kept", "kept_make", "kept_put", "kept_remove", "kept_text", "kept_use",
    "users", "user_put", "user_remove", "routes", "resolve", "log", "nodes", "node_order", "places", "cut", "inject",
)  # fmt: skip
_MESSAGE = ("show", "explain", "history", "headers", "data", "add_recipients")
_CHANGES = ("delete", "undelete", "hold", "release", "retry", "delay", "reroute", "bounce")
_VALUES = ("set", "transport_set", "suspend", "resume")
WAYS: dict[str, Way] = {
    **dict.fromkeys(_NODE, _of_the_node),
    **dict.fromkeys(_MESSAGE, of_message),
    **dict.fromkeys(_CHANGES, change),
    **dict.fromkeys(_VALUES, set_all),
    "change_matching": change_matching,
    "working": working,
    "inject_begin": begin_injection,
    "inject_data": go_on_injecting,
    "inject_end": go_on_injecting,
    "list": list_queue,
    "list_at": list_at,
    "search": search,
    "events": events,
    "ping": ping,
    "processes": processes,
    "size": size,
    "size_at": size_at,
    "state": state,
    "destinations": destinations,
    "positions": positions,
    "disks": disks,
    "ages": ages,
    "outcomes": outcomes,
    "service_times": service_times,
    "simulate": simulate,
    "settings_effects": effects,
}


def steps_of(
    shards: Sequence[KnownShard],
    session: Session,
    operation: str,
    arguments: dict[str, Any],
    waits: Waiting | None = None,
) -> Steps:
    """Returns the steps of a question; of an operation that is not known those of the first shard, which says so."""
    return WAYS.get(operation, _of_the_node)(Question(shards, operation, dict(arguments), session, waits))
