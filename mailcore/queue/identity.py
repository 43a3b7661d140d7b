"""The identity of one Waypost: home, queue, spool and events carry the same one, each in a file ``identity`` (FORMAT.md).

It is written at the first start, and checked and locked by the supervisor at each, before any process is started. So a disk
that is not mounted, or is another Waypost's, stops the start, and the queue is never taken for a new one.

Laws
- All is checked before anything is written. ``first_start`` says what speaks against giving a directory its identity.
- The home's file is written first, without ``marked``; then those of the other directories; then ``marked``, which names
  them. So a kill at any point leaves a first start that the next one continues, and a directory that is named there and
  carries no identity is missing, never new.
- Each directory has a mark of its own. One that an operator replaced does not count when it comes back.
- A directory is locked before it gets its identity, and as long as the supervisor lives.

Keeps law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import google_crc32c
import msgspec

from mailcore.faults import Code, FaultError
from mailcore.log.disk import Disk, Guard, Locked
from mailcore.queue.first_start import is_empty, why_not_new

__all__ = [
    "HOME",
    "LOCK",
    "LOG",
    "NAME",
    "Held",
    "Identity",
    "IdentityDamaged",
    "IdentityError",
    "Look",
    "Token",
    "described",
    "establish",
    "guards_of",
    "is_below",
    "lock_directory",
    "look",
    "marked_as",
    "marks_of",
    "new_identity",
    "read_identity",
    "refusal",
    "write_identity",
]

Token = Callable[[], str]  # returns 32 random hexadecimal digits
NAME = "identity"
LOCK = "identity.lock"
VERSION = 1
HOME, LOG = "home", "log"
FILE_MODE = 0o644  # receivers read it too, as users of their own; there is no secret in it
SHOWN = 8  # digits that tell two identities apart for a person


class IdentityError(FaultError):
    """Raised if a directory is missing, is another Waypost's, or is in use; the message says which, and what to do."""

    default = Code.CONFLICT


class IdentityDamaged(IdentityError):
    """Raised if an identity cannot be read: it is damaged, or a newer Waypost wrote it."""


class Identity(msgspec.Struct, frozen=True):
    """Holds the file of one directory. ``directory`` is "home", "queue", "spool", "events", or "log"."""

    identity: str  # 32 hexadecimal digits, random
    directory: str
    home: str  # path of the home when it was written, for people
    created_at: float  # wall clock
    mark: str = ""  # of this directory; another one after the directory was replaced on purpose
    marked: dict[str, str] = {}  # only in the home's: the directories that have carried the identity, with their marks
    version: int = VERSION


class _Version(msgspec.Struct):
    version: int


@dataclass(frozen=True, slots=True)
class Look:
    """Holds the identity that a directory carries, and ``why_not``: why it is not the one of this home; "" if it is."""

    name: str
    directory: str
    identity: Identity | None
    why_not: str
    is_foreign: bool = False  # it carries the identity of another home
    is_damaged: bool = False


@dataclass(slots=True)
class Held:
    """The identity of this home, and the descriptors that hold its locks."""

    identity: Identity
    locks: list[int] = field(default_factory=list)


def new_identity(home: str, now: float, token: Token) -> Identity:
    """Returns the identity of a new home."""
    return Identity(token(), HOME, home, now)


def marked_as(own: Identity, name: str, token: Token) -> Identity:
    """Returns what is written into a directory of the home ``own``, with a new mark."""
    return msgspec.structs.replace(own, directory=name, mark=token(), marked={})


def read_identity(disk: Disk, name: str, directory: str) -> Identity | None:
    """Reads the identity of the directory ``name``; None if it carries none or does not exist.

    Raises IdentityDamaged, OSError.
    """
    path = os.path.join(directory, NAME)
    try:
        content = disk.read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    line, _, checksum = content.partition(b"\n")
    if checksum.strip() != b"%08x" % google_crc32c.value(line):
        raise IdentityDamaged(f"{path} is {'damaged' if content else 'empty'}; {_adopt(name, directory)}")
    try:
        version = msgspec.json.decode(line, type=_Version).version
        if version <= VERSION:
            return msgspec.json.decode(line, type=Identity)
    except msgspec.MsgspecError as error:
        raise IdentityDamaged(f"{path} is damaged: {error}; {_adopt(name, directory)}") from error
    raise IdentityDamaged(
        f"{path} has format version {version}, this Waypost reads up to {VERSION}; nothing was started or written"
    )


def _adopt(name: str, directory: str) -> str:
    return f"if {directory} is the right directory, run: waypost identity adopt {name}"


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    """Writes a directory's identity atomically and synced. Raises OSError."""
    line = msgspec.json.encode(identity)
    with _readable(disk):
        disk.write_whole(os.path.join(directory, NAME), line + b"\n%08x\n" % google_crc32c.value(line))


@contextlib.contextmanager
def _readable(disk: Disk) -> Iterator[None]:
    """Creates files that the other users of Waypost may read."""
    before, disk.file_mode = disk.file_mode, FILE_MODE
    try:
        yield
    finally:
        disk.file_mode = before


def described(identity: Identity) -> str:
    """Returns an identity in few words: its first digits, its home and its date."""
    since = datetime.fromtimestamp(identity.created_at, UTC)
    return f"{identity.identity[:SHOWN]} (home {identity.home}, since {since:%Y-%m-%d})"


def refusal(disk: Disk, own: Identity, name: str, directory: str) -> str:
    """Returns why a directory is not the one of this home that it should be; "" if it is. Raises IdentityDamaged, OSError."""
    found = read_identity(disk, name, directory)
    if found is None:
        what = _what_is_there(disk, directory)
        return (
            f"the {name} directory {directory} {what}, but this home, {described(own)}, has one: mount its disk; only if "
            f"its contents are lost, run: waypost identity adopt {name}"
        )
    if found.identity != own.identity:
        return (
            f"the {name} directory {directory} belongs to another Waypost, {described(found)}, and this home is "
            f"{described(own)}: mount the right disk or correct the configuration; only to take it over, run: "
            f"waypost identity adopt {name}"
        )
    if found.directory != name:
        return (
            f"the {name} directory {directory} is the {found.directory} directory of this home: correct the mount points "
            "or the configuration"
        )
    if own.marked.get(name, found.mark) != found.mark:
        return (
            f"the {name} directory {directory} is the one that this home had before another one replaced it: mount the disk "
            f"that replaced it; only to go back to this one, run: waypost identity adopt {name}"
        )
    return ""


def look(disk: Disk, directories: Mapping[str, str]) -> list[Look]:
    """Returns what each directory carries; changes nothing. Raises OSError."""
    looks: list[Look] = []
    own: Identity | None = None
    for name, path in directories.items():
        found: Identity | None = None
        damaged = False
        try:
            found = read_identity(disk, name, path)
            if name == HOME:
                own = found
                why_not = (
                    "" if found is not None else f"the home {path} carries no identity; it gets one at the first start"
                )
            elif own is not None and (found is not None or name in own.marked):
                why_not = refusal(disk, own, name, path)
            else:
                why_not = "" if found is None else f"the {name} directory {path} belongs to {described(found)}"
        except IdentityDamaged as error:
            why_not, damaged = error.fault.message, True
        foreign = own is not None and found is not None and found.identity != own.identity
        looks.append(Look(name, path, found, why_not, foreign, damaged))
    return looks


def _what_is_there(disk: Disk, directory: str) -> str:
    if os.path.islink(directory) and not disk.exists(directory):
        return f"is a symbolic link to {os.readlink(directory)}, which does not exist"
    if not disk.is_directory(directory):
        return "does not exist"
    return "is empty" if is_empty(disk, directory) else "carries no identity"


def establish(
    disk: Disk,
    directories: Mapping[str, str],
    log_directory: str,
    reports_directory: str,
    now: float,
    token: Token,
    lock_wait_s: float = 0.0,
) -> Held:
    """Checks the identity of a home and locks its directories; at a first start writes it.

    ``directories`` has "home" and those of "queue", "spool", "events" that are in use. The caller holds the home's lock.
    ``lock_wait_s``: a supervisor that was killed just now may still hold the other locks.
    Raises IdentityError, OSError; then nothing was written, or a first start is continued by the next one.
    """
    home = directories[HOME]
    others = {name: path for name, path in directories.items() if name != HOME}
    own = read_identity(disk, HOME, home)
    if own is None:
        _refuse_without_home(disk, home, others, log_directory)
    elif own.directory != HOME:
        raise IdentityError(
            f"the home {home} is the {own.directory} directory of {described(own)}: correct the configuration"
        )
    marked = {} if own is None else own.marked
    for name in others:
        _refuse(disk, own, name, marked, directories, log_directory, reports_directory)
    if own is None:
        own = new_identity(home, now, token)
        disk.make_directory(home)
        write_identity(disk, home, own)
    held = Held(own)
    try:
        for name, path in others.items():
            disk.make_directory(path)
            held.locks.append(lock_directory(disk, name, path, lock_wait_s))
            if name not in marked and read_identity(disk, name, path) is None:
                write_identity(disk, path, marked_as(own, name, token))
            if why_not := refusal(disk, own, name, path):  # another supervisor may have been quicker
                raise IdentityError(why_not)
        if any(name not in marked for name in others):
            held.identity = msgspec.structs.replace(own, marked={**marks_of(disk, others), **marked})
            write_identity(disk, home, held.identity)
    except BaseException:
        for lock in held.locks:
            disk.close(lock)
        raise
    _leave_witness(disk, held.identity, home, log_directory)
    return held


def marks_of(disk: Disk, directories: Mapping[str, str]) -> dict[str, str]:
    """Returns the marks of the directories that carry an identity. Raises IdentityDamaged, OSError."""
    found = {name: read_identity(disk, name, path) for name, path in directories.items()}
    return {name: identity.mark for name, identity in found.items() if identity is not None}


def _refuse(
    disk: Disk,
    own: Identity | None,
    name: str,
    marked: Mapping[str, str],
    directories: Mapping[str, str],
    log_directory: str,
    reports_directory: str,
) -> None:
    """Raises IdentityError if a directory is not ours, or may not be given an identity now."""
    directory = directories[name]
    if name not in marked and read_identity(disk, name, directory) is None:
        if why_not := why_not_new(disk, name, directories, log_directory, reports_directory):
            raise IdentityError(
                f"the {name} directory {directory} {why_not}: mount its disk; only if its contents are lost, run: waypost "
                f"identity adopt {name}"
            )
    elif own is not None and (why_not := refusal(disk, own, name, directory)):
        raise IdentityError(why_not)


def _refuse_without_home(disk: Disk, home: str, others: Mapping[str, str], log_directory: str) -> None:
    """Raises IdentityError if there was a home: another directory carries an identity, or the log says so."""
    for name, path in others.items():
        found = read_identity(disk, name, path)
        if found is None:
            continue
        if found.home != home:
            raise IdentityError(
                f"the {name} directory {path} belongs to another Waypost, {described(found)}, and the home {home} carries no "
                "identity: correct the configuration, or mount the disk of the home"
            )
        raise IdentityError(
            f"the home {home} carries no identity, but its {name} directory {path} belongs to {described(found)}: mount the "
            "disk of the home; only if its contents are lost, run: waypost identity adopt home"
        )
    with contextlib.suppress(IdentityDamaged):  # a witness only
        witness = read_identity(disk, LOG, log_directory)
        if witness is not None and witness.home == home:
            raise IdentityError(
                f"the home {home} carries no identity, but {os.path.join(log_directory, NAME)} says that it is "
                f"{described(witness)}: mount its disk; only to begin with an empty home, run: waypost identity adopt home"
            )


def _leave_witness(disk: Disk, own: Identity, home: str, log_directory: str) -> None:
    """Writes the identity into a log directory outside the home: it remains when all of the home's disk is missing."""
    if is_below(log_directory, home):
        return
    witness = msgspec.structs.replace(own, directory=LOG, marked={}, home=home)
    with contextlib.suppress(OSError):  # a start must not depend on the log
        try:
            found = read_identity(disk, LOG, log_directory)
        except IdentityDamaged:
            found = None
        if found is None or (found.home == home and found != witness):
            disk.make_directory(log_directory)
            write_identity(disk, log_directory, witness)


def is_below(path: str, directory: str) -> bool:
    """Returns True if ``path`` is in ``directory``, by name."""
    return os.path.commonpath((path, directory)) == directory.rstrip("/")


def lock_directory(disk: Disk, name: str, directory: str, wait_s: float = 0.0) -> int:
    """Locks a directory for one Waypost; returns the descriptor. Raises IdentityError, OSError."""
    until = time.monotonic() + wait_s
    while True:
        try:
            with _readable(disk):
                return disk.lock(os.path.join(directory, LOCK))
        except Locked:
            if time.monotonic() >= until:
                raise IdentityError(f"another Waypost is using the {name} directory {directory}") from None
            time.sleep(0.1)
        except OSError as error:
            if error.errno == errno.EROFS:
                error.filename = directory
            raise


def guards_of(directories: Mapping[str, str], own: Identity) -> tuple[Guard, ...]:
    """Returns guards for ``Disk.guards``: they refuse changes in a directory that is not ours any more."""

    disk = Disk()
    disk.guards = ()  # it is asked by the guards themselves

    def why_not(name: str, directory: str) -> Callable[[], str]:
        def ask() -> str:
            try:
                return refusal(disk, own, name, directory)
            except (IdentityDamaged, OSError) as error:
                return str(error)

        return ask

    return tuple(Guard(path, why_not(name, path)) for name, path in directories.items() if name != HOME)
