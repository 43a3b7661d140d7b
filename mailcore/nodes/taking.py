"""Takes over what all nodes have once: values set live, managed settings with their history, and the users who log in.

The process that watches for the node looks twice a second whether the database has another version, writes it into the file of
this node, and lets it come into force as a change made here would: by a reload, or by the managers, which follow their file.

- law: settings-once. A file of this node is replaced only while what it has is a state of the database's history that is not
  older than what this node has taken over: else it was changed by hand, or is this node's own. Then it stays, and why is
  written down for all who ask, here and in the database, until a person decides (``decision``).
- What this node runs with is compared with the file after each change, too, so that a reload that was refused is written down.
- The first node that is in gives what it has, with its history, if the database has nothing.

The order in which a killed process has done its work does not matter: each look compares the files with the database.
"""

from __future__ import annotations

import contextlib
import os
import time
import tomllib
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from mailcore.config.document import ConfigError
from mailcore.config.kept_files import Reference, kept_path, references_in
from mailcore.config.managed import Managed, dotted, revision_of
from mailcore.config.managed_history import ManagedHistory, State
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.shared_settings import (
    KINDS,
    MANAGED,
    NAMES,
    STATUS,
    TUNED,
    USERS,
    KindStatus,
    SharedStatus,
    of_each_node,
)
from mailcore.config.tuned import in_force, parsed, text_of
from mailcore.faults import FaultError
from mailcore.log.disk import Disk
from mailcore.maillog import MailLog
from mailcore.nodes.decision import GIVE, Decision, decisions, forget_decision
from mailcore.nodes.node_files import CERTIFICATE, directory_of
from mailcore.nodes.parameters import node_of, parameters_of
from mailcore.nodes.settings_seal import Seal
from mailcore.nodes.settings_store import Busy, Change, SettingsStore, states_in, why_not_in
from mailcore.nodes.users_taken import UsersFile
from mailcore.replication import settings_rows as rows
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.guarantees import open_checked
from mailcore.scheduler.parameters import SUSPENDED_UNTIL
from mailcore.supervisor.child import SETTINGS_NAME, stored_settings
from mailcore.supervisor.reloading import RELOAD, RESULT, last_result
from mailcore.supervisor.settings_change import changed_keys, concerned

__all__ = ["KeptFiles", "Taking", "take_forever"]

LOOK_EVERY_S = 0.5
AGAIN_S = 1.0
FAILED_S = 5.0  # after a failure, if nothing that was looked at has changed
RELOAD_S = 10.0  # a reload that has not begun by then is asked for again: its signal was lost
PUBLISH_S = 2.0  # those who ask see that this process lives
BUSY_S = 5.0  # a change is made in less: only with a hundred thousand users it takes longer
OWN_WHO = "waypost"
FIRST_WHY = "the {} of the first node"
DECIDE = "decide with waypost node settings --take or --give"


Faults = Callable[[Settings, Settings], Sequence[tuple[str, str]]]  # keys and reasons


class KeptFiles(Protocol):
    """Where this node keeps the files that settings refer to."""

    def read(self, reference: Reference) -> bytes:
        """Returns what a file has. Raises FaultError."""

    def put(self, kind: str, name: str, content: bytes) -> Reference:
        """Writes and syncs a file. Raises FaultError, ValueError."""


class _NotTaken(Exception):
    """Raised with the reason why something is not taken over now."""


class _NotIn(_NotTaken):
    """Raised if this node is not one of those that share settings; the database then has no row of it, either."""


class _Failed(NamedTuple):
    """A look that failed: what was there, until when it is not looked at again, and the error."""

    state: object
    until: float
    error: Exception


class Taking:
    """Looks at the settings of all nodes.

    ``faults`` returns why other settings cannot come into force in the place of those that are, on this host. ``say`` gets
    lines for the log about what was taken over, ``warn`` about what was not; ``reload`` asks the process of the node.
    """

    def __init__(
        self,
        settings: Settings,
        files: SettingsFiles,
        kept: KeptFiles,
        *,
        faults: Faults,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        reload: Callable[[], None],
        disk: Disk | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._files = files
        self._kept = kept
        self._faults = faults
        self._say = say
        self._warn = warn
        self._reload = reload
        self._disk = disk or Disk()
        self._wall = wall
        self._clock = clock
        self._store = SettingsStore(settings, self._disk)
        self._history = ManagedHistory(settings.home, self._disk)
        self._users = UsersFile(settings)
        self._source = Path(settings.source)
        self._source_read: object = None  # of which file this is known
        self._is_managed = settings.portal.manages
        self._status = SharedStatus(kinds={kind: KindStatus() for kind in KINDS})
        self._noted: dict[str, KindStatus] = {}  # as the database has it of this node
        self._settled: dict[str, object] = {}  # kind -> what was there when nothing was left to do
        self._looked: dict[str, object] = {}  # kind -> what was there at the last look
        self._failed: dict[str, _Failed] = {}
        self._busy_since: dict[str, float] = {}  # kind -> when another process was first seen to change it
        self._unusable: tuple[object, str] | None = (
            None  # the version and keys that cannot come into force here, and why
        )
        # For which files a reload was asked, the number of the one before, when, and whether it was asked for again.
        self._asked: tuple[object, int, float, bool] | None = None
        self._published_at = float("-inf")
        self._published = b""

    def look(self, connection: Connection) -> None:
        """Looks once. Raises StoreError."""
        if not self._store.is_on():
            with contextlib.suppress(FileNotFoundError):
                (self._settings.run_directory / STATUS).unlink()
            return
        newest = rows.read_heads(connection)
        for kind in KINDS:
            status = self._status.kinds[kind]
            version = newest.get(kind, 0)
            is_in = True
            try:
                trouble = self._look_at(connection, kind, version)
                self._busy_since.pop(kind, None)
            except Busy as busy:
                if self._clock() < self._busy_since.setdefault(kind, self._clock()) + BUSY_S:
                    continue  # that process may have written a version newer than this one has read
                trouble = (
                    f"version {version} can't be compared, nor taken over: {busy.fault.message}. If it stays so, end the"
                    f" process that holds {self._store.lock_path}"
                )
            except (_NotTaken, FaultError, OSError, ValueError, ConfigError) as error:
                if isinstance(error, FaultError) and connection.closed:
                    raise
                trouble = error.fault.message if isinstance(error, FaultError) else str(error)
                self._settled.pop(kind, None)
                if kind not in self._failed and kind in self._looked:
                    self._failed[kind] = _Failed(self._looked[kind], self._clock() + FAILED_S, error)
                self._busy_since.pop(kind, None)
                is_in = not isinstance(error, _NotIn)
                if not isinstance(error, StoreError):  # a decision that cannot be carried out is not tried again
                    forget_decision(self._settings, kind)
            status.newest = version
            if trouble and trouble != status.trouble:
                self._warn(f"{NAMES[kind]} of all nodes: {trouble}")
            status.trouble = trouble
            status.version = self._store.notes().versions.get(kind, 0)
            if is_in and (noted := msgspec.structs.replace(status, newest=0)) != self._noted.get(kind):
                rows.note_taken(connection, rows.NodeTaken(node_of(self._settings), kind, status.version, trouble))
                self._noted[kind] = noted
        self._status.trouble = ""
        self._publish()

    def away(self, why: str) -> None:
        """Writes down that the database cannot be asked."""
        if self._store.is_on():
            self._status.trouble = f"the database of the nodes cannot be asked: {why}"
            self._publish()

    def _publish(self) -> None:
        self._status.at = 0.0
        data = msgspec.json.encode(self._status)
        if data == self._published and self._clock() < self._published_at + PUBLISH_S:
            return
        self._status.at = self._wall()
        path = self._settings.run_directory / STATUS
        new = path.with_suffix(".new")
        with contextlib.suppress(OSError):  # for people
            new.write_bytes(msgspec.json.encode(self._status))
            new.chmod(0o644)
            new.replace(path)
            self._published, self._published_at = data, self._clock()

    # -- one kind

    def _look_at(self, connection: Connection, kind: str, newest: int) -> str:
        """Returns why this node has not what the database has; "" if it has. Raises what ``look`` writes down."""
        if kind == MANAGED and not self._manages():
            return f"[portal] manages is false in {self._source}: this node keeps to that file"
        decision = decisions(self._settings).get(kind)
        state = self._as_it_is(kind, newest)
        if decision is None and self._settled.get(kind) == state:
            return self._status.kinds[kind].trouble
        failed = self._failed.pop(kind, None)
        if decision is None and failed is not None and failed.state == state and self._clock() < failed.until:
            self._failed[kind] = failed
            raise failed.error
        self._looked[kind] = state
        if why := why_not_in(connection, self._settings):
            raise _NotIn(why)
        with self._store.lock():
            trouble = self._compare(connection, kind, decision)
        if decision is not None:
            forget_decision(self._settings, kind)
        if kind == MANAGED and not trouble:
            why_not = self._bring_into_force()
            with self._store.lock():
                self._complete_history(connection)
            if why_not is None:
                self._settled.pop(kind, None)
                return ""
            trouble = why_not
        if self._as_it_is(kind, newest) == state:  # else something has changed meanwhile, perhaps by this
            self._settled[kind] = state
        return trouble

    def _manages(self) -> bool:
        """Returns what [portal] manages says now: a reload does not end this process."""
        if (signature := _signature(self._source)) != self._source_read:
            self._source_read = signature
            with contextlib.suppress(OSError, ValueError):  # else it is as before
                document = _document(self._source.read_text(encoding="utf-8"))
                self._is_managed = self._files.managed_path(document, self._source.parent) is not None
        return self._is_managed

    def _as_it_is(self, kind: str, newest: int) -> object:
        """Returns what a look depends on."""
        run = self._settings.run_directory
        of_managed = (self._source, run / SETTINGS_NAME, run / RESULT)
        certificate = directory_of(self._settings) / CERTIFICATE  # another authority seals otherwise
        paths = (self._path(kind), certificate, *(of_managed if kind == MANAGED else ()))
        ended = (self._text(kind),) if kind == TUNED else ()  # a value that ends changes it, too
        return (newest, *map(_signature, paths), *ended)

    def _path(self, kind: str) -> Path:
        if kind == USERS:
            return self._settings.users_file
        return self._settings.tuned_file if kind == TUNED else self._settings.home / "managed.toml"

    def _text(self, kind: str) -> str:
        """Returns what the file of this node has, without values that have ended. Raises OSError, ValueError, FaultError."""
        if kind == USERS:
            return self._users.text()
        if kind == MANAGED:
            return Managed.read(self._path(kind)).text
        try:
            return self._plain(kind, self._path(kind).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self._plain(kind, "")

    def _plain(self, kind: str, text: str) -> str:
        """Returns a text as texts are compared. Raises ValueError."""
        if kind != TUNED:
            return text
        return text_of(*in_force(*parsed(text), SUSPENDED_UNTIL, self._wall()))

    def _is_empty(self, kind: str, text: str) -> bool:
        if kind == USERS:
            return self._users.is_empty(text)
        return not (Managed(Path(), text, _document(text)).document if kind == MANAGED else any(parsed(text)))

    def _compare(self, connection: Connection, kind: str, decision: Decision | None) -> str:
        """Makes the file what the database has, or the other way round; returns why neither is done. Behind the lock."""
        change = Change(self._store, connection, self._store.seal(), kind)
        try:
            return self._compared(connection, change, kind, decision)
        finally:
            if change.connection is not connection:  # it was lost in the middle
                change.connection.close()

    def _compared(self, connection: Connection, change: Change, kind: str, decision: Decision | None) -> str:
        own = self._text(kind)
        if decision is not None and decision.what == GIVE and decision.version != change.version:
            self._warn(
                f"{NAMES[kind]} of all nodes: what was decided for version {decision.version} is dropped, because there is"
                f" version {change.version} by now; look at it, and decide again"
            )
            decision = None
        if change.version == 0 or (decision is not None and decision.what == GIVE):
            return self._give(change, kind, own, decision)
        newest = change.newest.state
        noted = self._store.notes().versions.get(kind)
        if self._plain(kind, newest.text) == own:
            self._forget_ended(kind, own)
            change.taken(change.version, own if kind == USERS else None)
            return ""
        if decision is None:
            if noted is not None and change.version < noted:
                return (
                    f"the database has version {change.version} of them, and this node has taken over version {noted}: the"
                    f" database was restored to an earlier time; {DECIDE}"
                )
            # Without values nothing is lost, but a managed file, or users, that were taken away by hand say something.
            is_own = (noted is not None and kind != TUNED) or not self._is_empty(kind, own)
            if is_own and not self._is_state(connection, change, kind, own, noted or 0):
                if noted is not None and change.is_of_another_authority(noted):
                    return (
                        f"{self._path(kind)} differs from version {change.version}; version {noted}, which this node has taken"
                        " over, was sealed by the authority before: waypost node begin --again has made another one since."
                        f" waypost node settings --take {kind} takes version {change.version} over, and --give would undo it"
                    )
                how = "was changed by hand" if noted is not None else "is this node's own"
                return f"{self._path(kind)} {how}, and differs from version {change.version}; {DECIDE}"
        self._take(connection, change, kind, newest, own, decision)
        return ""

    def _forget_ended(self, kind: str, own: str) -> None:
        """Takes the values that have ended out of the file, which managers do not write for this."""
        with contextlib.suppress(FileNotFoundError):
            if kind == TUNED and self._path(kind).read_text(encoding="utf-8") != own:
                self._disk.write_whole(str(self._path(kind)), own.encode())

    def _is_state(self, connection: Connection, change: Change, kind: str, own: str, noted: int) -> bool:
        """Returns whether what this node has is what the database had in a version that is not older than ours."""
        if kind == USERS:
            return change.is_ours(own)
        states = states_in(connection, change.seal, kind, max(0, noted - 1))
        return any(self._plain(kind, state.text) == own for state in states)

    def _take(
        self, connection: Connection, change: Change, kind: str, newest: State, own: str, decision: Decision | None
    ) -> None:
        text = newest.text
        if kind == MANAGED:
            self._fetch_kept(connection, change.seal, text)
            self._check(text, newest)
        elif kind == USERS:
            if why := self._users.why_not(text):
                raise _NotTaken(_unusable(newest, why))
        else:
            text = self._plain(kind, text)
        if decision is not None:
            self._put_aside(kind, own, decision)
        if kind == USERS:
            self._users.take(change, text, own)
        else:
            path = self._path(kind)
            self._disk.write_whole(str(path), text.encode())
            if kind == MANAGED:
                os.chmod(path, 0o644)  # every command reads it
            change.taken(change.version)
        of_whom = f"{newest.who or 'unknown'} at node {newest.node}" + (f": {newest.why}" if newest.why else "")
        self._say(f"{NAMES[kind]} of all nodes: version {change.version} is taken over ({of_whom})")

    def _check(self, text: str, newest: State) -> None:
        """Raises _NotTaken: where the change was made, other disks and addresses were asked."""
        try:
            new, _ = self._files.load_managed(self._source, text)
        except ConfigError as error:
            reason = error.faults[0].reason if error.faults else str(error)
            key = dotted(str(part) for part in error.faults[0].key) if error.faults else ""
            raise _NotTaken(_unusable(newest, f"{key} {reason}")) from None
        in_force = stored_settings(self._settings.run_directory / SETTINGS_NAME)
        if faults := self._faults(in_force, new):
            what = (newest.version, *(key for key, _ in faults))
            if (
                self._unusable is None or self._unusable[0] != what
            ):  # else it is said already, perhaps with other figures
                self._unusable = (what, "; ".join(f"{key} {reason}".strip() for key, reason in faults))
            raise _NotTaken(_unusable(newest, self._unusable[1]))

    def _fetch_kept(self, connection: Connection, seal: Seal, text: str) -> None:
        """Gets the files that settings refer to and this node lacks."""
        for reference in dict.fromkeys(references_in(_document(text))):
            if kept_path(self._settings.home, reference).exists():
                continue
            sealed = rows.read_kept(connection, str(reference))
            if sealed is not None:  # else the check says that it is missing
                self._kept.put(reference.kind, reference.name, seal.open(sealed, str(reference)))

    def _complete_history(self, connection: Connection) -> None:
        """Writes the managed states into the history of this node that it lacks."""
        last = max((each.version for each in self._history.read()[0]), default=0)
        for state in states_in(connection, self._store.seal(), MANAGED, last):
            self._history.append(state)

    def _put_aside(self, kind: str, own: str, decision: Decision) -> None:
        """Keeps what this node had, where a person finds it again."""
        if kind == MANAGED:
            words = f"put aside for the settings of all nodes: {decision.why}".removesuffix(": ")
            revision = revision_of(self._source.read_text(encoding="utf-8"), own)
            state = State(revision, self._wall(), decision.who, words, [], own, node=node_of(self._settings))
            self._history.append(state)
        elif kind == USERS:
            self._users.put_aside(own, self._wall())
        else:
            self._disk.write_whole(f"{self._path(kind)}.aside.{round(self._wall())}", own.encode())

    def _give(self, change: Change, kind: str, own: str, decision: Decision | None) -> str:
        """Makes what this node has the settings of all; returns why not."""
        node = node_of(self._settings)
        states: list[State] = []
        if kind == USERS and (why := self._users.why_not(own)):
            return f"{why}; correct the file first"
        if kind == MANAGED:
            document = _document(own)
            if keys := of_each_node(document):
                names = ", ".join(sorted({dotted(p for p in key if isinstance(p, str)) for key in keys}))
                return (
                    f"{self._path(kind)} has {names}, which is each node's own: set it in {self._source}, take it out of there,"
                    " and reload"
                )
            self._files.load_managed(self._source, own)
            for reference in dict.fromkeys(references_in(document)):
                change.keep(reference, self._kept.read(reference))
            if change.version == 0:
                states = [each for each in self._history.read()[0] if not each.version]
                for each in states:
                    each.node = node
        if not states or states[-1].text != own:
            first = FIRST_WHY.format(NAMES[kind])
            who, why = (OWN_WHO, first) if decision is None else (decision.who, decision.why)
            revision = revision_of(self._source.read_text(encoding="utf-8"), own)
            states.append(State(revision, self._wall(), who, why, [], own, node=node))
        states = states[-rows.STATES_MAX :]
        written = change.write_all(states)
        if kind == MANAGED:
            self._history.append(written)
        change.taken(written.version, own if kind == USERS else None)
        self._say(f"{NAMES[kind]} of all nodes: version {written.version} is what this node had")
        return ""

    def _bring_into_force(self) -> str | None:
        """Asks for a reload if the processes have other settings than the files; returns why they keep these.

        None: it is under way. Raises _NotTaken while it does not begin.
        """
        run = self._settings.run_directory
        try:
            old, new = stored_settings(run / SETTINGS_NAME), self._files.load(self._source)
        except ConfigError as error:
            return f"not in force on this node: {str(error).splitlines()[0]}"
        if not changed_keys(old, new) and not concerned(old, new):
            return ""
        result = last_result(run)
        if result and result.get("ended_at") is None:
            return None
        files = (_signature(self._path(MANAGED)), _signature(self._source))
        is_late = False
        if self._asked is not None and self._asked[0] == files:
            _, number, at, was_late = self._asked
            is_begun = result.get("number", 0) > number
            is_late = not is_begun and (was_late or self._clock() >= at + RELOAD_S)
        else:
            is_begun, at = False, float("-inf")
        if not is_begun:
            if self._clock() >= at + RELOAD_S:  # the first time, and again while it does not begin
                self._asked = (files, result.get("number", 0), self._clock(), is_late)
                self._reload()
            if is_late:  # not settled: nothing else would ask again
                raise _NotTaken("not in force on this node yet: it was asked for a reload, which has not begun")
            return None
        refused = [str(each) for each in result.get("refused", [])]
        if not refused:
            return None
        return f"not in force on this node: {'; '.join(refused)}"


def _unusable(newest: State, why: str) -> str:
    who = f"{newest.who or 'unknown'} at node {newest.node}"
    return f"version {newest.version} by {who} can't be used on this node: {why}"


def _document(text: str) -> dict[str, object]:
    """Raises ValueError."""
    return tomllib.loads(text)


def _signature(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def take_forever(settings: Settings, files: SettingsFiles, kept: KeptFiles, faults: Faults, parent: int) -> None:
    """Looks again and again, in a thread of its own. ``parent`` is the process of the node."""
    log = MailLog(settings.log_directory)

    def told(logs: Callable[[str], None], words: str) -> None:
        logs(words)
        log.flush()
        with contextlib.suppress(OSError):
            os.write(2, f"waypost: {words}\n".encode())

    def reload() -> None:
        if os.getppid() == parent:
            os.kill(parent, RELOAD)

    say, warn = partial(told, log.settings_taken), partial(told, log.settings_not_taken)
    taking = Taking(settings, files, kept, faults=faults, say=say, warn=warn, reload=reload)
    connection: Connection | None = None
    while True:
        pause_s = LOOK_EVERY_S
        try:
            if connection is None or connection.closed:
                connection, _ = open_checked(parameters_of(settings))
            taking.look(connection)
        except Exception as error:  # a fault here must not end the process that watches the shards
            if connection is not None:
                connection.close()
            if not isinstance(error, StoreError | OSError):
                traceback.print_exc()
            taking.away(error.fault.message if isinstance(error, FaultError) else str(error))
            pause_s = AGAIN_S
        time.sleep(pause_s)
