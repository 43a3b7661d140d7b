"""Says which operations are about the machine of a node: no other node asks them, and none is asked them by another."""

from __future__ import annotations

__all__ = ["OF_THE_NODE"]

# Configuration, kept files, users, routes, the log, processes and disks are there once on each node. A message is handed in
# at a node by its own clients.
OF_THE_NODE = frozenset((
    "certificates", "transports", "parameters", "check_changes", "settings", "settings_change", "settings_effects",
    "settings_history", "settings_return", "kept", "kept_make", "kept_put", "kept_remove", "kept_text", "kept_use",
    "users", "user_put", "user_remove", "routes", "resolve", "log", "nodes", "node_order", "places", "cut", "inject",
    "inject_begin", "inject_data", "inject_end", "processes", "disks", "simulate",
))  # fmt: skip
