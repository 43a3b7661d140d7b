"""Changes the users who log in: in the file of this host, or, where nodes share them, in the database and then in the file.

Of several nodes, a change of one user is made in the users that the database has, so that it goes together with a change of
another one, made elsewhere at the same moment. The file of this node is a copy; the process that takes over what other nodes
change does the rest if this one is killed.

Keeps law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mailcore.config.managed_history import State
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import USERS, ChangedMeanwhile, Changing, Shared
from mailcore.faults import Code, FaultError
from mailcore.users.user import User
from mailcore.users.user_file import (
    UserFileError,
    UserTable,
    changing,
    locked,
    read_text,
    replace_file,
    table_of,
    text_of,
)

__all__ = ["change_users"]

TRIES = 5  # of a change, while other nodes change other users
T = TypeVar("T")
Edit = Callable[[dict[str, User]], T]


def change_users(settings: Settings, shared: Shared | None, edit: Edit[T], who: str = "", why: str = "") -> T:
    """Lets ``edit`` change the users, by name, and returns what it returned; nothing is changed after an exception.

    Raises what ``edit`` raises; UserFileError for a file with a fault; FaultError, after which nothing has changed unless its
    code is OUTCOME_UNKNOWN; OSError. ``edit`` is asked again if another node was faster.
    """
    path, like = settings.users_file, settings.queue_directory / "incoming.0"
    if shared is None or not shared.is_on():
        with changing(path, like) as users:
            return edit(users)
    if why_not := shared.why_not(USERS):
        raise FaultError(f"{why_not}; nothing was changed", code=Code.CONFLICT)
    state = State("", 0.0, who, why, [], "", node=settings.nodes.node or socket.gethostname())
    for _ in range(TRIES):
        with shared.changing(USERS) as change, locked(path):
            own = read_text(path)
            found = _newest(change, path, own)
            result = edit(found.users)
            state.at, state.text = time.time(), text_of(found.users, found.salt_key)
            if state.text == change.newest.state.text:
                return result
            try:
                written = change.write(state)
            except ChangedMeanwhile:
                continue
            with contextlib.suppress(
                OSError, UserFileError
            ):  # the process that takes over what other nodes change does it
                if read_text(path) == own:  # else it was edited at this moment
                    change.taking(written.text)
                    replace_file(path, written.text, like)
                    change.taken(written.version, written.text)
            return result
    raise FaultError("other users are changed at this moment; nothing was changed", code=Code.BUSY)


def _newest(change: Changing, path: Path, own: str) -> UserTable:
    """Returns the users that all nodes have. Raises FaultError if this node has others, or cannot use them; OSError."""
    newest = change.newest
    if own != newest.state.text and not change.is_ours(own):
        raise FaultError(
            f"{path} was changed by hand, or the database was restored to an earlier time: it differs from what all nodes"
            " have; waypost node settings --take users, or --give users, decides; nothing was changed",
            code=Code.CONFLICT,
        )
    found = table_of(newest.state.text, path)
    if found.faults:
        raise FaultError(
            f"version {newest.version} of the users can't be used at this node: {found.faults[0]}; nothing was changed",
            code=Code.CONFLICT,
        )
    return found
