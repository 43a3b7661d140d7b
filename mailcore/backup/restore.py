"""Restores a backup. Everything is written beside its place and checked, then renamed into place; the queue last.

Laws
- Nothing is overwritten: a home that already has such files is refused or, on request, moved aside.
- No file is put in place before the whole archive has been read and checked, and everything is synced.
- A mount point is never renamed, only the files in it.
- A queue has its marker (``mailcore/queue/restored.py``) before it has its name.
- What is restored gets an identity of its own (mailcore/queue/identity.py; decision 0023).
- While it is being put into its place ``restoring`` lies in the home, and no core starts there: killed in between, a restore is
  done again.
- A PostgreSQL database is filled only when it is empty, and before anything gets its name: if it refuses the dump, nothing is
  changed.

Keeps law: restore-overwrites-nothing, law: marker-before-queue (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import msgspec

from mailcore.backup.archive import Archive, BackupDamaged, Content, Folder, Head
from mailcore.backup.database import SQLITE, sqlite_path
from mailcore.backup.identities import directories_alone, identify_home, identify_staged
from mailcore.backup.places import (
    BEFORE,
    FOLDER_MODE,
    SUFFIX,
    give,
    give_as,
    has_something,
    is_mounted,
    make_folder,
    named,
    remove,
)
from mailcore.backup.postgresql import DUMP, Postgresql, is_postgresql
from mailcore.backup.queue_files import floors_of_events, make_floors, mend_queue
from mailcore.config.core import SHARDS_MAX
from mailcore.config.kept_files import DIRECTORY as KEPT
from mailcore.config.known_shards import DRAINED
from mailcore.config.managed import HISTORY
from mailcore.config.managed import NAME as MANAGED
from mailcore.config.settings import Settings
from mailcore.config.shards import of_shard
from mailcore.counted import counted
from mailcore.log.disk import Disk, Locked
from mailcore.queue.exported import EXPORTED, ExportedPositions, read_exported
from mailcore.queue.from_maildrop import DIRECTORY, names_of
from mailcore.queue.identity import HOME, NAME, Identity, IdentityError, write_identity
from mailcore.queue.versions import RESTORING

__all__ = ["Restore", "RestoreRefused", "Restored", "verify"]

FILE_MODE = 0o600
LOST_AND_FOUND = "lost+found"  # e2fsck's, on a disk of its own
PART = r"(?!\.{1,2}(?:/|$))[\w=.-]+"  # of a path, and no way up


class RestoreRefused(Exception):
    """Nothing was changed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    head: Head
    files: int
    parts: tuple[str, ...]
    moved: tuple[Path, ...]  # earlier files, now under another name
    notes: tuple[str, ...]  # steps that are left to the operator


def verify(path: Path) -> tuple[Head, int, int]:
    """Reads the whole archive; returns its head, the number of files, and their bytes. Raises BackupDamaged, BackupTooNew,
    OSError."""
    with Archive(path) as archive:
        for _, content in archive.files():
            content.member()
        members = archive.manifest.members
        return archive.head, len(members), sum(member.size for member in members)


@dataclass(slots=True)
class Restore:
    """Puts the files of a backup in place, step by step."""

    settings: Settings
    config: Path  # where the configuration file belongs
    now: float
    with_queue: bool = True
    aside: bool = False  # earlier files may be moved aside
    database_url: str = ""  # of the portal's; "" is SQLite in the usual place
    dump_only: bool = False  # put a dump of PostgreSQL into the home and fill no database
    config_text: str = ""  # instead of the backup's
    notes: list[str] = field(default_factory=list)
    _staged: dict[Path, Path] = field(default_factory=dict)  # place -> where the file is until then; in this order
    _moved: list[Path] = field(default_factory=list)
    _links: dict[str, str] = field(default_factory=dict)
    _made_home: bool = False  # or it was empty
    _made_maildrop: bool = False
    _made_shards: list[Path] = field(default_factory=list)
    _identity: Identity | None = None  # of the restored queue; None: what carries one stays in place

    def __post_init__(self) -> None:
        settings = self.settings  # a link to a disk stays one
        queue, spool = settings.queue_directory.resolve(), settings.spool_directory.resolve()
        self.settings = dataclasses.replace(settings, queue_directory=queue, spool_directory=spool)

    def run(self, path: Path, copied: Callable[[str], None] = lambda name: None) -> Restored:
        """Restores the backup. Raises RestoreRefused, BackupDamaged, BackupTooNew, DatabaseFailed, OSError; then nothing has
        changed, unless RESTORING is in the home."""
        home = self.settings.home
        with contextlib.ExitStack() as stack:
            archive = stack.enter_context(Archive(path))
            home.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._made_home = not any(home.iterdir())
            self._made_maildrop = not (home / DIRECTORY).exists()
            with named(home):
                stack.enter_context(self._alone())
            parts = tuple(part for part in archive.head.parts if part != "queue" or self.with_queue)
            self._refuse_what_is_there(parts)
            self._note_shards(archive)
            self._note_nodes(parts)
            try:
                files = self._stage(archive, copied)
                with named(self.settings.queue_directory):
                    if "queue" in parts:
                        self._mend_queues(archive)
                    elif "reports" in parts and not self.settings.nodes.is_on:  # else the database has both
                        self._begin_behind_events()
                    for number in self._numbers(archive):
                        self._finish_shard(number, with_queue="queue" in parts)
                with named(home):
                    self._identify()
                self._sync()
                self._fill_database()
            except BaseException:
                for staged in self._staged.values():
                    remove(staged)
                raise
            with named(home):
                self._put_into_place()
        return Restored(archive.head, files, parts, tuple(self._moved), tuple(self.notes))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock of the home, so that no core runs or starts meanwhile."""
        disk = Disk()
        path = self.settings.home / "lock"
        was_there = path.exists()
        try:
            lock = disk.lock(str(path))
        except Locked:
            raise RestoreRefused(f"a Waypost runs on {self.settings.home}; stop it first") from None
        try:
            with directories_alone(disk, self._directories):
                yield
        except IdentityError as error:
            raise RestoreRefused(error.fault.message) from None
        finally:
            if not was_there:  # it would be root's
                path.unlink()
            disk.close(lock)

    @property
    def _directories(self) -> dict[str, str]:
        return {name: str(path) for name, path in self.settings.identified_directories.items()}

    def _note_shards(self, archive: Archive) -> None:
        """Says what differs if the backup has other shards than the settings."""
        numbers, wanted = [0, *self._numbers(archive)], self.settings.core.shards
        beyond = [str(number) for number in numbers if number >= wanted]
        if beyond:
            self.notes.append(
                f"the backup has {counted(len(numbers), 'shard')}, and [core] shards is {wanted}: shard {', '.join(beyond)}"
                " drains; release or delete its mail"
            )
        elif len(numbers) < wanted and {"queue", "reports"} & set(archive.head.parts):
            self.notes.append(
                f"the backup has {counted(len(numbers), 'shard')}, and [core] shards is {wanted}: the others begin empty"
            )

    def _note_nodes(self, parts: tuple[str, ...]) -> None:
        """Says what is left to do where a database keeps the queues."""
        nodes = self.settings.nodes
        if nodes.is_on and "queue" in parts:
            self.notes.append(
                "Waypost does not start with this queue, because [nodes] is on: if the database has this home's shard, it has"
                " the mail: move queue and spool away; else waypost shard import takes this queue into it, with its mail held"
            )
        if nodes.is_on and nodes.listen:
            self.notes.append(
                "the keys of this node are in no backup: run waypost node add NAME at another node, then waypost node join here"
            )

    # -- earlier files

    def _refuse_what_is_there(self, parts: tuple[str, ...]) -> None:
        settings = self.settings
        places = [*(settings.home / name for name in ("tuned.toml", MANAGED, "portal/secret.key")), self._database]
        if "reports" in parts:
            places += [settings.events_directory, settings.reports_directory]
        if "queue" in parts or "reports" in parts:
            places += [settings.spool_directory, settings.queue_directory]
            places += self._of_shards  # queues in them would be started beside the restored one
            inside = [
                path for place in self._of_shards if place.is_dir() for path in place.glob("*/**/") if is_mounted(path)
            ]
            if inside:
                raise RestoreRefused(f"{inside[0]} is a mount point; unmount it, and restore all shards onto one disk")
        there = [place for place in places if has_something(place)]
        if there and not self.aside:
            names = ", ".join(map(str, there))
            raise RestoreRefused(f"{settings.home} is not empty: {names}; --move-aside gives them another name first")

    @property
    def _of_shards(self) -> list[Path]:
        """Returns the directories that have those of the shards but the first."""
        settings = self.settings
        above = (settings.home, settings.queue_directory.parent, settings.spool_directory.parent)
        return list(dict.fromkeys(each / "shards" for each in above))

    def _shard(self, number: int) -> Settings:
        return of_shard(self.settings, number)

    def _staged_at(self, path: Path) -> Path:
        """Returns where something of a shard is until it is put into its place."""
        place = next(each for each in self._of_shards if path.is_relative_to(each))
        return self._staged_for(place) / path.relative_to(place)

    @property
    def _database(self) -> Path:
        url = "" if is_postgresql(self.database_url) else self.database_url
        return sqlite_path(url, self.settings.home)

    # -- aside

    def _stage(self, archive: Archive, copied: Callable[[str], None]) -> int:
        files = 0
        for info, content in archive.files():
            place = self._place_of(info.name)
            if place is None:
                content.member()
                continue
            if info.name == "reports.json":
                self._links = _links_of(content)
                continue
            root, below = place
            target = self._staged_for(root) / below if below else self._staged_for(root)
            make_folder(target.parent)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with named(target), os.fdopen(descriptor, "wb") as file:
                for chunk in content.chunks():
                    if root != self.config or not self.config_text:
                        file.write(chunk)
                if root == self.config:
                    file.write(self.config_text.encode())
                give(target, info.uname, info.gname, info.mode & _mode_of(info.name))
                file.flush()
                os.fsync(file.fileno())
            files += 1
            copied(info.name)
        for link, target_name in self._links.items():
            made = self._staged_for(self.settings.reports_directory) / link
            make_folder(made.parent)
            made.symlink_to(target_name)
        if "queue" in archive.head.parts and self.with_queue:  # also an empty one
            make_folder(self._staged_for(self.settings.queue_directory))
            make_folder(self._staged_for(self.settings.spool_directory))
            for number in self._numbers(archive):
                make_folder(self._staged_at(self._shard(number).queue_directory))
                make_folder(self._staged_at(self._shard(number).spool_directory))
        if {"queue", "reports"} & set(archive.head.parts):
            for there in self._of_shards:  # of this host; it is moved aside
                if has_something(there):
                    make_folder(self._staged_for(there))
        for name, folder in archive.manifest.folders.items():
            self._own(name, folder)
        return files

    def _numbers(self, archive: Archive) -> list[int]:
        """Returns the shards but the first that are restored: without the queue, those that have events."""
        parts = set(archive.head.parts)
        wanted = ("queue" in parts and self.with_queue) or "reports" in parts
        return [number for number in archive.head.shards if 0 < number < SHARDS_MAX] if wanted else []

    def _own(self, name: str, folder: Folder) -> None:
        """Gives directories to their owners, as far as this host has these users."""
        top, _, below = name.partition("/")
        if top == "shards":
            place = self._place_of_shard(f"{below}/") if below else (self.settings.home / "shards", "")
            if place is not None and place[0] in self._staged:
                path = self._staged[place[0]] / place[1]
                if PurePath(below).parts[1:2] in (("queue",), ("spool",)):
                    make_folder(path)
                if path.is_dir():
                    give(path, folder.user, folder.group, folder.mode)
            return
        roots = {
            "queue": self.settings.queue_directory,
            "spool": self.settings.spool_directory,
            "events": self.settings.events_directory,
            "reports": self.settings.reports_directory,
            KEPT: self.settings.home / KEPT,
        }
        if top == "home":
            path = self.settings.home if self._made_home else Path()
        elif top == DIRECTORY:
            path = self.settings.home / DIRECTORY if self._made_maildrop else Path()
        elif top == "portal":
            path = self.settings.home / "portal"
        elif top in roots and roots[top] in self._staged:
            path = self._staged[roots[top]] / below
            if top in ("queue", "spool"):
                make_folder(path)
        else:
            return
        if path != Path() and path.is_dir():
            give(path, folder.user, folder.group, folder.mode)

    def _place_of_shard(self, below: str) -> tuple[Path, str] | None:
        """Returns the same as ``_place_of`` for what is below "shards/"."""
        number, _, rest = below.partition("/")
        top, _, under = rest.partition("/")
        if not re.fullmatch("[0-9]{2}", number) or not 0 < int(number) < SHARDS_MAX:
            raise BackupDamaged(f"shards/{below} is of no shard")
        own = self._shard(int(number))
        roots = {"queue": own.queue_directory, "spool": own.spool_directory, "events": own.events_directory}
        alone = {"": own.place, own.tuned_file.name: own.tuned_file, DRAINED: own.place / DRAINED}
        if top not in roots and rest not in alone:
            raise BackupDamaged(f"shards/{below} is nothing that this Waypost can restore")
        if top in ("queue", "spool") and not self.with_queue:
            return None
        if rest == DRAINED and not self.with_queue:  # its new queue is as empty as any
            return None
        path = roots[top] if top in roots else alone[rest]
        place = next(each for each in self._of_shards if path.is_relative_to(each))
        return place, str(path.relative_to(place) / under) if under else str(path.relative_to(place))

    def _place_of(self, name: str) -> tuple[Path, str] | None:
        """Returns (the path to rename, the path below it); None for a file that is not restored."""
        settings = self.settings
        top, _, below = name.partition("/")
        if top == "shards":
            return self._place_of_shard(below)
        if name == "reports.json":
            return settings.reports_directory, ""
        if top in ("queue", "spool"):
            root = settings.queue_directory if top == "queue" else settings.spool_directory
            return (root, below) if self.with_queue else None
        if top == DIRECTORY:  # beside what lies there: it is mail of this host, and no name is used twice
            dropped = settings.home / DIRECTORY / below
            if names_of([below]) != [below]:
                raise BackupDamaged(f"{name} is not a file of a maildrop")
            return (dropped, "") if self.with_queue and not dropped.exists() else None
        if top in ("events", "reports"):
            return (settings.events_directory if top == "events" else settings.reports_directory), below
        if top == KEPT:
            return settings.home / KEPT, below
        if name == f"portal/{SQLITE}":
            if is_postgresql(self.database_url):
                self.notes.append(
                    f"the backup's database is SQLite and this portal's PostgreSQL: it is {self._database}"
                )
            return self._database, ""
        if name == f"portal/{DUMP}":
            self._look_at_postgresql(settings.home / name)
            return settings.home / name, ""
        if name == "keys/secret.key":
            return settings.home / "portal" / "secret.key", ""
        if name == "config/tuned.toml":
            return settings.home / "tuned.toml", ""
        if name in (f"config/{MANAGED}", f"config/{HISTORY}"):
            return settings.home / name.removeprefix("config/"), ""
        if name == "config/users.jsonl":
            return settings.users_file, ""
        paths = {
            "config/waypost.toml": self.config,
            "keys/tls/certificate.pem": Path(settings.receiver.tls_certificate or settings.home / "certificate.pem"),
            "keys/tls/key.pem": Path(settings.receiver.tls_key or settings.home / "key.pem"),
        }
        for number, each in enumerate(settings.certificate, 1):
            paths[f"keys/tls/{number}/certificate.pem"] = Path(each.certificate)
            paths[f"keys/tls/{number}/key.pem"] = Path(each.key)
        place = paths.get(name)
        if place is None:
            raise BackupDamaged(f"{name} is nothing that this Waypost can restore")
        if place.exists():  # the file here was made for this host
            self.notes.append(f"{place} is left as it is; the backup's is beside it, as {place.name}.restored")
            place = place.with_name(f"{place.name}.restored")
            place.unlink(missing_ok=True)
        return place, ""

    def _staged_for(self, place: Path) -> Path:
        staged = self._staged.get(place)
        if staged is None:
            staged = place / SUFFIX if is_mounted(place) else place.with_name(f"{place.name}{SUFFIX}")
            self._staged[place] = staged
            # Files outside the home, such as certificates, are not only ours.
            staged.parent.mkdir(FOLDER_MODE if staged.is_relative_to(self.settings.home) else 0o755, True, True)
            remove(staged)
        return staged

    def _mend_queues(self, archive: Archive) -> None:
        told = dict(archive.manifest.queue)
        of_shards = told.pop("shards", {})
        self._mend_queue(self._staged_for(self.settings.queue_directory), told, archive.head.made_at)
        for number in self._numbers(archive):
            if not isinstance(of_shards, dict) or not isinstance(of_shards.get(str(number)), dict):
                raise BackupDamaged(f"the data of the queue of shard {number} is missing in the manifest")
            self._mend_queue(
                self._staged_at(self._shard(number).queue_directory), of_shards[str(number)], archive.head.made_at
            )

    def _mend_queue(self, queue: Path, told: Mapping[str, Any], made_at: float) -> None:
        before = set(queue.iterdir())
        mend_queue(queue, told, made_at, self.now)
        give_as(queue, [each for each in queue.iterdir() if each not in before])

    def _finish_shard(self, number: int, *, with_queue: bool) -> None:
        """Gives a shard, while it is aside, an identity, and the mark without which it would start before all is restored."""
        own = self._shard(number)
        staged = {
            name: self._staged_at(path) for name, path in own.identified_directories.items() if name != HOME
        }  # the events of an exporter that is off have none
        staged["events"] = self._staged_at(own.events_directory)
        place = self._staged_at(own.place)
        make_folder(place)
        if not with_queue and (exported := read_exported(Disk(), str(staged["events"] / EXPORTED))) is not None:
            self._begin_behind(exported, staged["queue"], staged["spool"])
        folders = {name: folder for name, folder in staged.items() if folder.is_dir()}
        if folders:
            identity = identify_staged(folders, own.place, self.now)
            write_identity(Disk(), str(place), identity)
            give_as(place, [place / NAME])
        (place / RESTORING).touch()
        self._made_shards.append(own.place)

    def _begin_behind_events(self) -> None:
        """Creates lanes that begin where the events of the old ones end, or new events would get the same names."""
        events = self._staged.get(self.settings.events_directory)
        exported = None if events is None else read_exported(Disk(), str(events / EXPORTED))
        if exported is None:
            return
        queue = self._staged_for(self.settings.queue_directory)
        spool = self._staged_for(self.settings.spool_directory)  # the new queue names no file of an earlier one
        self._begin_behind(exported, queue, spool)

    def _begin_behind(self, exported: ExportedPositions, queue: Path, spool: Path) -> None:
        make_folder(queue)
        make_folder(spool)
        make_floors(queue, floors_of_events(exported), self.now)
        give_as(self.settings.home, [spool, queue, *queue.rglob("*")])

    def _identify(self) -> None:
        """Gives what is restored an identity, while it is aside."""
        staged = {name: self._staged.get(Path(path)) for name, path in self._directories.items()}
        folders = {name: folder for name, folder in staged.items() if folder is not None}
        self._identity = identify_staged(folders, self.settings.home, self.now) if folders else None

    def _sync(self) -> None:
        """Syncs the directories; the files are synced already."""
        disk = Disk()
        for staged in self._staged.values():
            folders = [folder for folder, _, _ in os.walk(staged)] if staged.is_dir() else []
            for each in [*folders, str(staged.parent)]:
                disk.sync_directory(each)

    # -- PostgreSQL

    def _look_at_postgresql(self, dump: Path) -> None:
        """Checks the database before anything is changed. Raises DatabaseFailed."""
        if is_postgresql(self.database_url) and not self.dump_only:
            Postgresql(self.database_url).refuse_unless_empty()
            return
        why = "" if self.dump_only else "the backup's database is PostgreSQL, and the settings here name none; "
        self.notes.append(
            f"{why}the dump is {dump}; bring it back into an empty database with: pg_restore --single-transaction --no-owner "
            f"--dbname=... {dump}"
        )

    def _fill_database(self) -> None:
        place = self.settings.home / "portal" / DUMP
        if place not in self._staged or self.dump_only or not is_postgresql(self.database_url):
            return
        was_there = (self.settings.home / RESTORING).exists()
        self._mark_home()  # killed behind this, it is a restore that has not come to its end
        database = Postgresql(self.database_url)
        try:
            database.fill(self._staged[place])
        except BaseException:
            if not was_there:
                (self.settings.home / RESTORING).unlink()
            raise
        remove(self._staged.pop(place))
        self.notes.append(f"the portal's database, {database}, was empty and has been filled")

    # -- into place

    def _mark_home(self) -> None:
        (self.settings.home / RESTORING).touch()
        Disk().sync_directory(str(self.settings.home))

    def _put_into_place(self) -> None:
        disk = Disk()
        home = self.settings.home
        self._mark_home()
        last = self.settings.queue_directory
        for place in sorted(self._staged, key=lambda place: place == last):
            if self._staged[place].parent == place:
                self._fill_mounted(place)
                continue
            if has_something(place):
                self._move_aside(place)
            elif place.is_dir():
                remove(place)  # directories without a file in them, as a package makes
            os.rename(self._staged[place], place)
            disk.sync_directory(str(place.parent))
        if self._identity is not None:
            identify_home(self._identity, self._directories)
        for place in self._made_shards:
            (place / RESTORING).unlink()
            disk.sync_directory(str(place))
        (home / RESTORING).unlink()
        disk.sync_directory(str(home))

    def _fill_mounted(self, place: Path) -> None:
        """Fills a mount point; names that begin with a dot are not mail (``mailcore/lookup/browse.py``)."""
        staged = self._staged[place]
        kept = (SUFFIX, BEFORE, LOST_AND_FOUND)
        there = [each for each in place.iterdir() if not each.name.startswith(kept)]
        if any(map(has_something, there)):
            aside = place / f"{BEFORE}{self.now:.0f}"
            make_folder(aside)
            for each in there:
                os.rename(each, aside / each.name)
            self._moved.append(aside)
        else:
            for each in there:
                remove(each)
        for each in staged.iterdir():
            os.rename(each, place / each.name)
        owner = staged.stat()
        os.chown(place, owner.st_uid, owner.st_gid)
        place.chmod(owner.st_mode & 0o7777)
        staged.rmdir()
        Disk().sync_directory(str(place))

    def _move_aside(self, place: Path) -> None:
        aside = place.with_name(f"{place.name}{BEFORE}{self.now:.0f}")
        os.rename(place, aside)
        self._moved.append(aside)
        if place == self._database:  # what SQLite keeps beside it would be played into the restored file
            for beside in list(place.parent.iterdir()):
                if beside.name.startswith(f"{place.name}-"):
                    os.rename(beside, aside.with_name(aside.name + beside.name.removeprefix(place.name)))


def _mode_of(name: str) -> int:
    """Returns the largest permitted mode of a file: a receiver reads the key of its certificate as a member of its
    group."""
    if name.startswith(f"{DIRECTORY}/"):
        return 0o640  # its group is that of Waypost
    if name.startswith("keys/tls/"):
        return 0o640 if name.endswith("key.pem") else 0o644
    return FILE_MODE if name.startswith(("keys/", "portal/")) else 0o777


def _links_of(content: Content) -> dict[str, str]:
    links: dict[str, str] = {}
    try:
        found = msgspec.json.decode(content.everything(), type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise BackupDamaged(f"reports.json: {error}") from error
    for link, target in found.items():
        # One folder below the reports, as it is made; nothing may lead out of them.
        if not re.fullmatch(f"{PART}/{PART}", link) or not re.fullmatch(rf"\.\./{PART}/{PART}", target):
            raise BackupDamaged(f"reports.json: {link!r} leads to {target!r}")
        links[link] = target
    return links
