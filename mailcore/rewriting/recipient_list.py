"""A file that lists valid recipients, as Postfix's relay_recipient_maps: an address, or ``@domain`` for all of a domain.

Only the first word of a line counts; Postfix's sources have another one behind it, such as OK. A line that begins with a space
belongs to the one before; ``#`` begins a comment.

Laws
- A file is read as a whole or not at all; a fault names file and line.
- Files without any address are a fault: a script that failed, rather than a domain without recipients (decision 0041).

Keeps law: recipients-stay-good (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.rewriting.budget import Budget
from mailcore.rewriting.map_text import MapFault, read_text
from mailcore.rewriting.rewriting import Maps
from mailcore.routing.address import comparable, comparable_domain, is_mailbox, split
from mailcore.routing.route import RouteError, domain_name

__all__ = ["RecipientList", "is_rewritten", "read_recipients"]

_ESCAPED = re.compile(r"\\(.)")
FAULTS_MAX = 20  # lines that are named; the rest is counted


class RecipientList:
    """The valid recipients. ``delimiter`` has the characters that begin an extension; "" without extensions."""

    def __init__(self, entries: frozenset[str], delimiter: str = "") -> None:
        self._entries = entries
        self._delimiter = delimiter

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, address: str) -> bool:
        """Returns whether an address is valid: with its extension, without it, or because of its domain."""
        entries = self._entries
        local_part, domain = split(comparable(address))
        if local_part.startswith('"') and f"{local_part}@{domain}" not in entries:
            local_part = _ESCAPED.sub(r"\1", local_part[1:-1])  # RFC 5321 4.1.2: "kim" and kim are one mailbox
        if f"{local_part}@{domain}" in entries or f"@{domain}" in entries:
            return True
        if not self._delimiter:
            return False
        at = min((at for at in (local_part.find(each, 1) for each in self._delimiter) if at > 0), default=0)
        return at > 0 and f"{local_part[:at]}@{domain}" in entries


def read_recipients(paths: Sequence[str], delimiter: str = "") -> RecipientList:
    """Reads all files. Raises MapFault, one line for each fault."""
    entries: set[str] = set()
    faults: list[str] = []
    for path in paths:
        try:
            entries |= _entries(path)
        except MapFault as fault:
            faults += str(fault).splitlines()
    if not entries and not faults:
        faults.append(f"{', '.join(paths)}: no address is in it; all recipients would be refused")
    if faults:
        raise MapFault("\n".join(faults))
    return RecipientList(frozenset(entries), delimiter)


def is_rewritten(maps: Maps, address: str, budget: Budget) -> bool:
    """Returns whether an address is an alias or has a canonical one, which makes it valid. Raises PatternTooSlow."""
    with budget:
        return any(each.find(address, budget) is not None for each in (*maps.recipient_canonical, *maps.aliases))


def _entries(path: str) -> set[str]:
    entries: set[str] = set()
    faults: list[str] = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip() or line[0].isspace() or line[0] == "#":
            continue
        word = line.split(None, 1)[0]
        key = _key(word)
        if word.startswith("*@"):
            faults.append(
                f"{path}:{number}: {word!a} must be {word[1:]!a}, which stands for all addresses of the domain"
            )
        elif key:
            entries.add(key)
        else:
            faults.append(f"{path}:{number}: {word!a} is neither an address nor @domain")
    if faults:
        more = [f"{path}: and {counted(len(faults) - FAULTS_MAX, 'more line')}"] if len(faults) > FAULTS_MAX else []
        raise MapFault("\n".join(faults[:FAULTS_MAX] + more))
    return entries


def _key(word: str) -> str:
    """Returns an address or @domain in the form in which it is compared; "" if it is neither."""
    if not word.startswith("@"):
        return comparable(word) if is_mailbox(word) else ""
    try:
        return f"@{domain_name(comparable_domain(word[1:]))}"
    except RouteError:
        return ""
