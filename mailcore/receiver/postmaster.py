"""Mail for our postmaster, which every client may send (RFC 5321 4.5.1): ``<postmaster>``, and postmaster at a name of ours.

Law: it leads to the one address of the setting; nothing else is accepted that the relay policy refuses.

Pure. Keeps law: postmaster-reached, law: no-open-relay (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from mailcore.receiver.path import Path

__all__ = ["Postmaster"]

_LOCAL_PART = "postmaster"  # "without case sensitivity"


class Postmaster:
    """The address of the setting, and the names that are ours."""

    def __init__(self, address: str, names: Iterable[str]) -> None:
        local_part, _, domain = address.rpartition("@")
        self.path = Path(address, local_part, domain)
        self._names = frozenset(name.lower() for name in names if name)

    def is_meant(self, path: Path) -> bool:
        """Returns whether a recipient is our postmaster."""
        return path.local_part.lower() == _LOCAL_PART and (not path.domain or path.domain.lower() in self._names)
