"""Holds the state of one client of the control socket while it is connected."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.control.access import Peer, RemotePeer
from mailcore.control.injection import Injection

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """A connected client, and the request of it that is being answered."""

    peer: Peer | RemotePeer
    who: str = ""  # of the request being answered
    why: str = ""
    injection: Injection | None = None  # the message it is handing in
