"""The file of the users who log in (``mailcore.users.user_file``) at a node that shares them: read, checked, and replaced.

Keeps law: settings-once, law: users-replaced-atomically (docs/laws.md).
"""

from __future__ import annotations

from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.faults import Code, FaultError
from mailcore.nodes.settings_store import Change
from mailcore.users.user_file import UserFileError, locked, read_text, replace_file, table_of

__all__ = ["UsersFile"]


class UsersFile:
    """The file of one node. Its caller holds the lock of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._path = settings.users_file
        self._like = settings.queue_directory / "incoming.0"  # its group is the receivers'

    def text(self) -> str:
        """Returns what the file has. Raises FaultError, OSError."""
        try:
            return read_text(self._path)
        except UserFileError as error:
            raise FaultError(str(error), code=Code.CONFLICT) from None

    def is_empty(self, text: str) -> bool:
        """Returns whether a text has neither a user nor a fault."""
        found = table_of(text, self._path)
        return not found.users and not found.faults

    def why_not(self, text: str) -> str:
        """Returns why a text cannot be the users of this node; "" if it can."""
        faults = table_of(text, self._path).faults
        return str(UserFileError(faults)).replace("\n", "; ") if faults else ""

    def take(self, change: Change, text: str, own: str) -> None:
        """Replaces the file, which has ``own``, by the newest text. Raises FaultError, OSError."""
        with locked(self._path):
            if self.text() != own:  # a hand edit at this moment
                raise FaultError(f"{self._path} was changed at this moment", code=Code.CONFLICT)
            change.taking(text)
            replace_file(self._path, text, self._like)
            change.taken(change.version, text)

    def put_aside(self, own: str, at: float) -> None:
        """Keeps what this node had, where a person finds it again. Raises OSError."""
        replace_file(Path(f"{self._path}.aside.{round(at)}"), own, self._like)
