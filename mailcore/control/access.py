"""Identifies the process at the other end of the socket by the kernel's report (SO_PEERCRED), and decides its rights.

The daemon's user, root, and members of the socket's group for changes may change things; all other users that the socket's
mode lets connect may read. The name of the acting person is accepted only from root and from the daemon's user, who could
write it into the journal anyway; for other clients it is their login name.

A client of another node has the rights that this node has decided for it in the same way, and no operation of the machine.

Keeps law: peer-decides-rights (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from mailcore.control.protocol.operation import Access
from mailcore.frames import ForClient

__all__ = ["Peer", "RemotePeer", "group_id", "peer_of"]

WORD_CHARACTERS = 200  # of a client's who and why; they are written into records
SO_PEERGROUPS = 59  # asm-generic/socket.h, Linux 4.13; Python has no name for it
_CREDENTIALS = struct.Struct("iII")
_GROUPS_BYTES = 1024  # the maximum in Python: 256 groups; for a user with more groups only the primary group counts


@dataclass(frozen=True, slots=True)
class Peer:
    """A process at the other end of the socket, as the kernel names it."""

    pid: int
    uid: int
    groups: frozenset[int]

    def may(self, access: Access, group: int | None) -> bool:
        """Returns whether this process may ask for an operation; ``group``: the group that may change things, or None."""
        if access is Access.INTERNAL:
            return False
        if access is Access.READ or self.trusted:
            return True
        return group is not None and group in self.groups

    @property
    def trusted(self) -> bool:
        """Returns whether the process runs as root or as the daemon's user."""
        return self.uid in (0, os.geteuid())

    def who(self, word: str) -> str:
        """Returns the name that goes into the record: ``word`` from a trusted client, otherwise the login name."""
        name = _login(self.uid)
        if self.trusted and word:
            name = word[:WORD_CHARACTERS]
        return f"{name} (uid {self.uid})"

    def elsewhere(self, shard: int, group: int | None) -> ForClient:
        """Returns what another node hears of this process, which asks it about a shard."""
        return ForClient(shard, _login(self.uid), self.uid, self.may(Access.CHANGE, group), self.trusted)


@dataclass(frozen=True, slots=True)
class RemotePeer:
    """A process at another node, as that node has identified it."""

    given: ForClient

    @property
    def uid(self) -> int:
        """Returns its user there."""
        return self.given.uid

    def may(self, access: Access, group: int | None) -> bool:
        """Returns whether this process may ask for an operation: the other node has decided it."""
        return access is Access.READ or (access is Access.CHANGE and self.given.may_change)

    def who(self, word: str) -> str:
        """Returns the name that goes into the record, with the node."""
        name = word if self.given.is_trusted and word else self.given.user
        return f"{name[:WORD_CHARACTERS]} (uid {self.given.uid}) at {self.given.node[:WORD_CHARACTERS]}"


def peer_of(getsockopt: Callable[[int, int, int], bytes]) -> Peer:
    """Returns the peer, from the socket's ``getsockopt``. Raises OSError."""
    pid, uid, gid = _CREDENTIALS.unpack(getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    groups = {gid}
    with contextlib.suppress(OSError):  # an older kernel: the primary group is all we know
        data = getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, _GROUPS_BYTES)
        groups.update(struct.unpack(f"{len(data) // 4}I", data[: len(data) // 4 * 4]))
    return Peer(pid, uid, frozenset(groups))


def group_id(name: str) -> int | None:
    """Returns the group's number; None for "" and for a group this host does not have."""
    try:
        return grp.getgrnam(name).gr_gid if name else None
    except KeyError:
        return None


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "unknown"
