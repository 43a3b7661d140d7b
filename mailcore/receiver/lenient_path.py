"""Addresses that the grammar of RFC 5321 refuses and that are harmless: read for trusted clients, and made valid.

Nothing but a valid path comes out: what is read here goes through ``parse_path`` once more. So no address leaves Waypost that
the next hop would have to be lenient about.

Keeps law: strict-paths (docs/laws.md).
"""

from __future__ import annotations

import re

from mailcore.config.lenient import Lenient
from mailcore.receiver.path import Path, parse_path

__all__ = ["lenient_path"]

_BRACKETS = re.compile(r"<([^<>\s]+)>")
_BARE = re.compile(r"([^<>\s]+)")
_DOTTED = re.compile(r'[^\s"(),:;<>@\[\\\]]+\Z')  # atoms and dots in any order


def lenient_path(text: str, at: int, rules: Lenient, hostname: str) -> tuple[Path, str] | None:
    """Returns a path in ``text`` from ``at`` on as ``parse_path`` does, if the rules let it pass."""
    match = _BRACKETS.match(text, at)
    if match is None and rules.without_brackets:
        match = _BARE.match(text, at)
    if match is None:
        return None
    local_part, sign, domain = match[1].rpartition("@")
    if not sign:
        if not rules.without_domain:
            return None
        local_part, domain = domain, rules.own_domain(hostname)
    if rules.dots:
        domain = domain.removesuffix(".")
        if "." in local_part and _DOTTED.match(local_part) and "" in local_part.split("."):
            local_part = f'"{local_part}"'
    parsed = parse_path(f"<{local_part}@{domain}>")
    return None if parsed is None else (parsed[0], text[match.end() :])
