"""The file of the users, ``users.jsonl`` in the home: a JSON object a line. The first line is about the file.

    {"format": 1, "salt_key": "…"}
    {"name": "alice", "verifier": "$argon2id$…", "senders": ["alice@example.org"]}

Receivers read it whenever it changes; ``waypost user`` writes it. It is not on the way of mail: no other process needs it.

Nodes that have joined have one set of users: then the database has the text, and the file is this node's copy of it
(``mailcore.control.changing_users``, ``mailcore.nodes.users_taken``).

Laws
- It is replaced atomically, and synced with its directory before the command reports the change.
- A line that cannot be used is reported with its number and the reason, and never gives anyone a login.

Keeps law: users-replaced-atomically (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mailcore.faults import Code, FaultError
from mailcore.users.user import User, Users, check_user

__all__ = [
    "FILE_BYTES_MAX", "MODE", "TooLarge", "UserFileError", "UserTable", "changing", "locked", "read_text", "read_users",
    "replace_file", "table_of", "text_of",
]  # fmt: skip

FILE_BYTES_MAX = 64 << 20  # two hundred thousand users
FAULTS_SHOWN_MAX = 20
MODE = 0o640  # the group is the receivers'
FORMAT = 1


class _Head(msgspec.Struct, kw_only=True):
    """The first line."""

    format: int = FORMAT
    salt_key: str = ""


class UserFileError(Exception):
    """A file that is not right. The message has a line for each fault; ``usable`` has the users of all other lines."""

    def __init__(self, faults: Sequence[str], usable: Users | None = None) -> None:
        more = [f"and {len(faults) - FAULTS_SHOWN_MAX} more"] if len(faults) > FAULTS_SHOWN_MAX else []
        super().__init__("\n".join([*faults[:FAULTS_SHOWN_MAX], *more]))
        self.usable = usable


class TooLarge(FaultError):
    """Raised for users that would make the file larger than it may be; it is not changed."""

    default = Code.CONFLICT


class UserTable(NamedTuple):
    """The content of a file: the users by name, the key of made-up salts, and a fault for each line that cannot be used."""

    users: dict[str, User]
    salt_key: str
    faults: list[str]


def read_users(path: Path) -> Users:
    """Reads the file; without a file there are no users. Raises UserFileError, and OSError if it cannot be read."""
    found = _table(_read(path), path)
    users = Users(found.users.values(), found.salt_key.encode())
    if found.faults:
        raise UserFileError(found.faults, users)
    return users


def read_text(path: Path) -> str:
    """Returns the text of the file; "" without one. Other bytes than UTF-8 stay as they are. Raises UserFileError, OSError."""
    return _read(path).decode(errors="surrogateescape")


def table_of(text: str, path: Path) -> UserTable:
    """Returns what a text has. ``path`` is named in the faults."""
    return _table(text.encode(errors="surrogateescape"), path)


def text_of(users: Mapping[str, User], salt_key: str) -> str:
    """Returns the text of a file with these users. Without a ``salt_key`` it gets a new one. Raises TooLarge."""
    encode = msgspec.json.Encoder().encode
    head = _Head(salt_key=salt_key or secrets.token_hex(32))
    data = b"\n".join([encode(head), *(encode(user) for _, user in sorted(users.items())), b""])
    if len(data) > FILE_BYTES_MAX:
        raise TooLarge(f"the users would take {len(data)} bytes; at most {FILE_BYTES_MAX} are allowed")
    return data.decode()


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return b""
    if len(data) > FILE_BYTES_MAX:
        raise UserFileError([f"{path}: the file is larger than {FILE_BYTES_MAX} bytes"])
    return data


def _table(data: bytes, path: Path) -> UserTable:
    users: dict[str, User] = {}
    faults = []
    key = ""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            if number == 1 and b'"salt_key"' in line:
                head = msgspec.json.decode(line, type=_Head)
                if head.format != FORMAT:
                    raise ValueError(f"format is {head.format}, which is of a newer Waypost; this one reads {FORMAT}")
                key = head.salt_key
                continue
            user = msgspec.json.decode(line, type=User)
            check_user(user)
            if user.name in users:
                raise ValueError(f"{user.name} is there twice")
            users[user.name] = user
        except (ValueError, msgspec.MsgspecError) as error:  # a verifier is never part of the text
            faults.append(f"{path}:{number}: {error}")
    return UserTable(users, key, faults)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keeps other processes of this host from changing the file. Raises OSError."""
    lock = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def changing(path: Path, like: Path) -> Iterator[dict[str, User]]:
    """Yields the users by name, and writes them at the end of the block. One change at a time; nothing after an exception.

    Raises UserFileError (a file with a fault is not written over), TooLarge and OSError.
    """
    with locked(path):
        found = _table(_read(path), path)
        if found.faults:
            raise UserFileError(found.faults)
        yield found.users
        replace_file(path, text_of(found.users, found.salt_key), like)


def replace_file(path: Path, text: str, like: Path) -> None:
    """Replaces the file, and syncs it with its directory. Raises OSError.

    A new file gets the owner of the home and the group of ``like``, a directory of the receivers.
    """
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        owner, group = _owner(path, like)
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (owner, group):
            os.fchown(fd, owner if owner != status.st_uid else -1, group)
        os.fchmod(fd, MODE)
        with open(fd, "wb", closefd=False) as file:
            file.write(text.encode(errors="surrogateescape"))
        os.fsync(fd)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _owner(path: Path, like: Path) -> tuple[int, int]:
    """Returns the user and the group that the file should have."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_uid, status.st_gid
    home = path.parent.stat()
    with contextlib.suppress(FileNotFoundError):
        return home.st_uid, like.stat().st_gid
    return home.st_uid, home.st_gid
