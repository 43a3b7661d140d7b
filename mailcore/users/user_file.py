"""The file of the users, ``users.jsonl`` in the home: a JSON object a line. The first line is about the file.

    {"format": 1, "salt_key": "…"}
    {"name": "alice", "verifier": "$argon2id$…", "senders": ["alice@example.org"]}

Receivers read it whenever it changes; ``waypost user`` writes it. It is not on the way of mail: no other process needs it.

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
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from mailcore.users.user import User, Users, check_user

__all__ = ["FILE_BYTES_MAX", "MODE", "UserFileError", "changing", "read_users"]

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


def read_users(path: Path) -> Users:
    """Reads the file; without a file there are no users. Raises UserFileError, and OSError if it cannot be read."""
    found, key, faults = _read(path)
    users = Users(found, key.encode())
    if faults:
        raise UserFileError(faults, users)
    return users


def _read(path: Path) -> tuple[list[User], str, list[str]]:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return [], "", []
    if len(data) > FILE_BYTES_MAX:
        raise UserFileError([f"{path}: the file is larger than {FILE_BYTES_MAX} bytes"])
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
    return list(users.values()), key, faults


@contextlib.contextmanager
def changing(path: Path, like: Path) -> Iterator[dict[str, User]]:
    """Yields the users by name, and writes them at the end of the block. One change at a time; nothing after an exception.

    A new file gets the owner of the home and the group of ``like``, a directory of the receivers. Raises UserFileError (a file
    with a fault is not written over) and OSError.
    """
    lock = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found, key, faults = _read(path)
        if faults:
            raise UserFileError(faults)
        users = {user.name: user for user in found}
        yield users
        encode = msgspec.json.Encoder().encode
        head = _Head(salt_key=key or secrets.token_hex(32))
        lines = [encode(head), *(encode(user) for _, user in sorted(users.items())), b""]
        _replace(path, b"\n".join(lines), lock, like)
    finally:
        os.close(lock)


def _replace(path: Path, data: bytes, directory: int, like: Path) -> None:
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
            file.write(data)
        os.fsync(fd)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    os.fsync(directory)


def _owner(path: Path, like: Path) -> tuple[int, int]:
    """Returns the user and the group that the file should have."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_uid, status.st_gid
    home = path.parent.stat()
    with contextlib.suppress(FileNotFoundError):
        return home.st_uid, like.stat().st_gid
    return home.st_uid, home.st_gid
