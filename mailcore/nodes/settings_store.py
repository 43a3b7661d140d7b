"""The settings of all nodes in the database, as one node reads and changes them; and what this node has written down of it.

A change is made behind a lock of the node, and is in the database before it is in a file here. A process that is killed behind
its commit leaves the rest to the process that watches (``taking``): it takes over what the database has, like that of any node.

Keeps law: settings-once, law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mailcore.config.kept_files import Reference
from mailcore.config.managed_history import State
from mailcore.config.settings import Settings
from mailcore.config.shared_settings import NAMES, USERS, ChangedMeanwhile, Newest, status_in
from mailcore.faults import Code, FaultError
from mailcore.log.disk import Disk
from mailcore.nodes.node_files import CERTIFICATE, directory_of, read_authority
from mailcore.nodes.parameters import node_of, parameters_of
from mailcore.nodes.settings_seal import GIVE_AGAIN, NotSealed, Seal
from mailcore.replication import settings_rows as rows
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Lost, StoreError
from mailcore.replication.guarantees import open_checked
from mailcore.replication.node_trust import read_trust

__all__ = ["Busy", "Change", "Notes", "SettingsStore", "states_in", "why_not_in"]

LOCK = "settings.lock"  # beside the keys of the node
NOTES = "settings.json"  # there, too: the versions that this node has taken over
LOCK_WAIT_S = 15.0
DECIDE_S = 20.0  # for an outcome that is unknown
AGAIN_S = 0.5
# A state of the users has all of them: up to 64 MB of text, of which a third to a half is left when it is compressed.
USERS_BOUNDS = rows.Bounds(states_max=100, bytes_max=128 << 20, timeout_s=30.0, page=1)
_BOUNDS = {USERS: USERS_BOUNDS}
_MARKS_MAX = 8  # after that many files that could not be written the oldest goes
_STATE_BYTES_MAX = 160 << 20  # of one that is compressed: JSON in JSON needs more than the file
EMPTY = State("", 0.0, "", "", [], "")


class Busy(FaultError):
    """Raised if another process of this node changes settings."""

    default = Code.BUSY


class Notes(msgspec.Struct):
    """The versions that this node has taken over, by kind; a kind is missing if it never took any."""

    versions: dict[str, int] = {}
    files: dict[str, list[str]] = {}  # by kind: the marks of what the file has, or is about to have (``Seal.mark``)


def why_not_in(connection: Connection, settings: Settings) -> str:
    """Returns why this node is not one of those that share settings; "" if it is. Raises StoreError."""
    node = node_of(settings)
    try:
        own = ssl.PEM_cert_to_DER_cert((directory_of(settings) / CERTIFICATE).read_text("ascii"))
    except (OSError, ValueError):
        own = b""
    if own and any((row.node, row.certificate) == (node, own) for row in read_trust(connection)):
        return ""
    return f"node {node} is not in, and keeps the settings that it has: run waypost node join"


def states_in(connection: Connection, seal: Seal, kind: str, above: int = 0) -> Iterator[State]:
    """Yields the states above a version, the oldest first. Raises StoreError.

    Those that this authority has not sealed are skipped: after ``waypost node begin --again`` they are of the one before.
    """
    bounds = _bounds(kind)
    while found := rows.read_states(connection, kind, above, bounds.page, bounds):
        for row in found:
            above = row.version
            with contextlib.suppress(NotSealed):
                yield _opened(seal, kind, row)


def _state_at(connection: Connection, seal: Seal, kind: str, version: int) -> State:
    """Returns the state of a version. Raises NotSealed, StoreError."""
    found = rows.read_states(connection, kind, version - 1, 1, _bounds(kind))
    if not found or found[0].version != version:
        raise NotSealed(f"the database lacks version {version} of the {NAMES[kind]}; {GIVE_AGAIN}")
    return _opened(seal, kind, found[0])


def _opened(seal: Seal, kind: str, row: rows.StateRow) -> State:
    plain = seal.open(row.sealed, _place(kind, row.version))
    if kind == USERS:
        plain = zlib.decompressobj().decompress(plain, _STATE_BYTES_MAX)
    state = msgspec.json.decode(plain, type=State)
    state.version = row.version
    return state


def _bounds(kind: str) -> rows.Bounds:
    return _BOUNDS.get(kind, rows.SMALL)


class Change:
    """A change that is being made, with a connection, behind the lock of the node."""

    def __init__(self, store: SettingsStore, connection: Connection, seal: Seal, kind: str) -> None:
        self._store = store
        self.connection = connection
        self.seal = seal
        self._kind = kind
        self._bounds = _bounds(kind)
        self._head = rows.ask_head(connection, kind, self._bounds)
        self._newest: Newest | None = None

    @property
    def version(self) -> int:
        """Returns the newest version; 0 if there is none."""
        return self._head.version

    @property
    def newest(self) -> Newest:
        """Returns what the database has. Raises NotSealed, StoreError.

        The number alone is not a state: a program with the database's password can raise it.
        """
        if self._newest is None:
            version = self._head.version
            state = EMPTY if version == 0 else _state_at(self.connection, self.seal, self._kind, version)
            self._newest = Newest(version, state)
        return self._newest

    def is_of_another_authority(self, version: int) -> bool:
        """Returns whether the database has a version that no node of this authority has written. Raises StoreError."""
        for row in rows.read_states(self.connection, self._kind, version - 1, 1, self._bounds):
            with contextlib.suppress(NotSealed):
                _opened(self.seal, self._kind, row)
                return False
            return row.version == version
        return False

    def taken_states(self) -> Iterator[State]:
        """Yields the states that are not older than what this node has taken over. Raises StoreError, OSError."""
        noted = self._store.notes().versions.get(self._kind, 0)
        return states_in(self.connection, self.seal, self._kind, max(0, noted - 1))

    def is_ours(self, text: str) -> bool:
        """Returns whether all nodes had this text, so that it is not a hand edit. Raises StoreError, OSError.

        The database may have forgotten the version that this node has: the states of large users are few. Then what this node
        has written down of its file counts. While it has it, that does not: after a restore the same number is another state.
        """
        notes = self._store.notes()
        noted = notes.versions.get(self._kind, 0)
        if self.version < noted:  # the database was restored to an earlier time
            return False
        is_marked = self._mark(text) in notes.files.get(self._kind, [])
        if is_marked and not rows.has_state(self.connection, self._kind, noted):
            return True
        return any(each.text == text for each in self.taken_states())

    def _mark(self, text: str) -> str:
        return self.seal.mark(text.encode(errors="surrogateescape"))

    def keep(self, reference: Reference, content: bytes) -> None:
        """Gives a kept file to all nodes, if they cannot read one of this name. Raises StoreError."""
        name = str(reference)
        sealed = rows.read_kept(self.connection, name)
        if sealed is not None:
            with contextlib.suppress(NotSealed):
                self.seal.open(sealed, name)
                if rows.touch_kept(self.connection, name):
                    return
        rows.add_kept(self.connection, name, self.seal.seal(content, name))

    def write(self, state: State) -> State:
        """Makes a state the newest one, and returns it with its version. Raises StoreError, NotSealed, FaultError."""
        return self.write_all([state])

    def write_all(self, states: Sequence[State]) -> State:
        """Writes states in their order; the last one is the newest."""
        first = self._head.version + 1
        sealed = []
        for version, each in enumerate(states, first):
            each.version = version
            plain = msgspec.json.encode(each)
            if self._kind == USERS:
                if len(plain) > _STATE_BYTES_MAX:
                    raise FaultError(
                        f"the users would take {len(plain)} bytes: too many for all nodes", code=Code.CONFLICT
                    )
                plain = zlib.compress(plain, 1)
            sealed.append((secrets.token_hex(8), self.seal.seal(plain, _place(self._kind, version))))
        until = time.monotonic() + DECIDE_S
        while True:
            if self._is_written(sealed):
                self._newest = Newest(states[-1].version, states[-1])
                return states[-1]
            head = rows.ask_head(self.connection, self._kind, self._bounds)
            if head.version != self._head.version:
                raise ChangedMeanwhile(f"the {NAMES[self._kind]} of all nodes were changed at this moment; look again")
            if time.monotonic() > until:
                raise FaultError(f"the {NAMES[self._kind]} of all nodes are busy: nothing was changed", code=Code.BUSY)
            self._head = head  # another node has asked meanwhile

    def _is_written(self, sealed: Sequence[tuple[str, bytes]]) -> bool:
        """Writes, and finds out what became of it if the connection is lost. Raises FaultError for what stays unknown."""
        try:
            return rows.write_states(self.connection, self._kind, self._head, sealed, self._bounds)
        except Lost as error:
            lost = error
        until = time.monotonic() + DECIDE_S
        while time.monotonic() < until:
            time.sleep(AGAIN_S)
            with contextlib.suppress(StoreError):
                self.connection.close()
                self.connection = self._store.connect()
                if rows.is_written(self.connection, self._kind, self._head, sealed, self._bounds):
                    return True
                raise FaultError(
                    f"the database was away: nothing was changed ({lost.fault.message})", code=Code.UNAVAILABLE
                )
        raise FaultError(
            "the database went away in the middle: whether the change was made is not known; look again when it is back",
            code=Code.OUTCOME_UNKNOWN,
        )

    def taking(self, text: str) -> None:
        """Writes down what the file of this node is about to be: a process may be killed behind it. Raises OSError."""
        self._store.note_file(self._kind, self._mark(text))

    def taken(self, version: int, text: str | None = None) -> None:
        """Writes down that this node has a version; ``text``: and what its file has. Raises OSError."""
        self._store.note(self._kind, version, None if text is None else self._mark(text))


class SettingsStore:
    """The settings of all nodes, for the processes of one node. Each call has a connection of its own."""

    def __init__(
        self, settings: Settings, disk: Disk | None = None, connect: Callable[[], Connection] | None = None
    ) -> None:
        self.settings = settings
        self._disk = disk or Disk()
        self._directory = directory_of(settings)
        self.connect = connect or (lambda: open_checked(parameters_of(settings))[0])

    def is_on(self) -> bool:
        """Returns whether this node has joined: then its settings are those of all nodes."""
        return (self._directory / CERTIFICATE).exists()

    def why_not(self, kind: str) -> str:
        """Returns why this node has other settings than the database; "" if it has taken them over."""
        if kind in self.notes().versions:
            return ""
        status = status_in(self.settings.node_run_directory)
        known = status.kinds.get(kind) if status is not None else None
        return (known.trouble if known is not None else "") or (
            f"this node has not taken over the {NAMES[kind]} of all nodes yet, which it does while Waypost runs; try again in"
            " a few seconds"
        )

    def seal(self) -> Seal:
        """Returns the seal of this node's authority. Raises FaultError."""
        try:
            return Seal(read_authority(self.settings))
        except OSError as error:
            raise FaultError(
                f"{error.filename}: {error.strerror}: run waypost node join", code=Code.CONFLICT
            ) from error

    @contextmanager
    def changing(self, kind: str) -> Iterator[Change]:
        """Begins a change. Raises FaultError if the database cannot be asked: nothing has changed."""
        seal = self.seal()
        with self.lock(LOCK_WAIT_S):
            try:
                connection = self.connect()
            except (StoreError, OSError) as error:
                raise _away(error) from error
            change = None
            try:
                if why := why_not_in(connection, self.settings):
                    raise FaultError(f"{why}; nothing was changed", code=Code.CONFLICT)
                change = Change(self, connection, seal, kind)
                yield change
            except StoreError as error:
                raise _away(error) from error
            finally:
                (change.connection if change is not None else connection).close()

    @property
    def lock_path(self) -> Path:
        """Returns the file that a process of this node locks while it changes settings or users."""
        return self._directory / LOCK

    @contextmanager
    def lock(self, wait_s: float = 0.0) -> Iterator[None]:
        """Keeps other processes of this node from changing these settings. Raises Busy, OSError."""
        descriptor = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.geteuid() == 0:  # a command of root's: Waypost may run as another user
                owner = self._directory.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            until = time.monotonic() + wait_s
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise Busy("another change of settings or users is under way on this node; try again") from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(descriptor)

    def notes(self) -> Notes:
        """Returns what this node has taken over. Raises OSError."""
        try:
            return msgspec.json.decode((self._directory / NOTES).read_bytes(), type=Notes)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Notes()

    def note(self, kind: str, version: int, mark: str | None = None) -> None:
        """Writes down that this node has a version; ``mark``: of what its file has. Raises OSError."""
        notes = self.notes()
        marks = notes.files.get(kind, []) if mark is None else [mark]
        if (notes.versions.get(kind), notes.files.get(kind, [])) != (version, marks):
            notes.versions[kind] = version
            if marks:
                notes.files[kind] = marks
            self._write(notes)

    def note_file(self, kind: str, mark: str) -> None:
        """Writes down the mark of what the file is about to have. Raises OSError."""
        notes = self.notes()
        known = notes.files.get(kind, [])
        if mark not in known:
            notes.files[kind] = [*known, mark][-_MARKS_MAX:]
            self._write(notes)

    def _write(self, notes: Notes) -> None:
        path = self._directory / NOTES
        self._disk.write_whole(str(path), msgspec.json.encode(notes) + b"\n")
        if os.geteuid() == 0:  # a command of root's: Waypost may run as another user
            owner = self._directory.stat()
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _place(kind: str, version: int) -> str:
    """Returns the place that a state is sealed for: it counts at no other."""
    return f"{NAMES[kind]} of version {version}"


def _away(error: StoreError | OSError) -> FaultError:
    if isinstance(error, NotSealed):
        return error
    words = error.fault.message if isinstance(error, FaultError) else str(error)
    return FaultError(
        f"the database of the nodes cannot be asked, so nothing was changed: {words}", code=Code.UNAVAILABLE
    )
