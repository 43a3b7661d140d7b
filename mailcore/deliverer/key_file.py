"""A key that signs mail, with its names; its file is read again when it changes.

Law: if a changed file cannot be used, the key before stays in use, and the log says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from mailcore.deliverer.message_data import DataError
from mailcore.dkim.key import BadKey, SigningKey, load_key
from mailcore.dkim.signature import Signer

__all__ = ["CannotSign", "Complain", "KeyFile", "KeySettings"]

LOOK_S = 1.0

Complain = Callable[[str, str], None]  # path of a key, reason


class KeySettings(Protocol):
    """The names of a key, and its file."""

    @property
    def domain(self) -> str:
        """Returns the domain that the key speaks for."""

    @property
    def selector(self) -> str:
        """Returns the key's name in the DNS."""

    @property
    def key(self) -> str:
        """Returns the path of the file."""


class CannotSign(DataError):
    """A key cannot be used; the message says which, and why."""

    reply = "the DKIM key of the sender's domain cannot be used on this host"
    event = "mail_not_signed"


class KeyFile:
    """One key, which is read again when its file changes. ``algorithm``: the only one that is allowed, if there is one."""

    def __init__(self, settings: KeySettings, complain: Complain, algorithm: str = "") -> None:
        self.settings = settings
        self._algorithm = algorithm
        self._complain = complain
        self._seen: tuple[int, ...] | None = None
        self._look_at = 0.0
        self._key: SigningKey | None = None
        self._reason = ""

    def signer(self, now: float) -> Signer:
        """Returns the key with its names. Raises CannotSign."""
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            self._look()
        if self._key is None:
            raise CannotSign(f"{self.settings.key}: {self._reason}")
        return Signer(self.settings.domain, self.settings.selector, self._key)

    def _look(self) -> None:
        path = self.settings.key
        seen: tuple[int, ...] = ()
        try:
            status = os.stat(path)
            seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        except OSError:
            pass
        if seen == self._seen and self._key is not None and not self._reason:
            return
        changed, self._seen = seen != self._seen, seen
        try:
            key = load_key(path)
            if self._algorithm not in ("", key.algorithm):
                raise BadKey(f"must be a key for {self._algorithm}")
            self._key, self._reason = key, ""
        except BadKey as bad:
            self._reason = str(bad)
            if changed:
                self._complain(path, self._reason)
