"""Makes a backup: which files go into it, and where they come from. Mail and portal keep running.

| in the archive | what |
|---|---|
| `config/waypost.toml`, `config/managed.toml`, `config/tuned.toml` | the configuration, and what was set live |
| `config/managed-history.jsonl` | the states of managed.toml |
| `keys/secret.key`, `keys/tls/...` | what sessions are signed and secrets of TOTP are locked with; the receiver's TLS |
| `portal/portal.sqlite3` or `portal/portal.pgdump` | the portal's database |
| `events/...`, `reports/...` | on request: what reports are made of, and their tables |
| `queue/...`, `spool/...`, `maildrop/...` | on request: ``snapshot``, and ``maildrop`` |
| `shards/01/...` | of a node with several shards: `queue`, `spool`, `events` and `tuned.toml` of each further one |
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from mailcore.backup.archive import OF_SHARDS, REFERENCES, Head, place_in_archive
from mailcore.backup.database import copy_database, database_url, portal_environment, sqlite_path
from mailcore.backup.maildrop import MaildropCopy
from mailcore.backup.places import OF_STARTS
from mailcore.backup.postgresql import is_postgresql
from mailcore.backup.snapshot import Snapshot, SnapshotFailed
from mailcore.backup.writer import Writer
from mailcore.config.events_copy import COPY
from mailcore.config.kept_files import DIRECTORY as KEPT
from mailcore.config.known_shards import DRAINED, read_others
from mailcore.config.managed import HISTORY
from mailcore.config.managed import NAME as MANAGED
from mailcore.config.portal import OF_NODES
from mailcore.config.settings import Settings
from mailcore.config.shards import all_of
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsTooNew, read_all_positions
from mailcore.queue.exported import EXPORTED, read_exported
from mailcore.queue.from_maildrop import DIRECTORY
from mailcore.queue.identity import look
from mailcore.queue.spool import FANOUT
from mailcore.traces.progress import TRACES

__all__ = ["Made", "make_backup"]

VERSION_TRIES = 3  # a report that is made again meanwhile gets another version


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a backup."""

    path: Path
    parts: tuple[str, ...]
    files: int
    bytes_read: int
    bytes_written: int
    notes: tuple[str, ...] = ()  # parts that are missing in it, and why


def make_backup(
    settings: Settings,
    config: Path,
    path: Path,
    *,
    queue: bool,
    reports: bool,
    now: float,
    host: str,
    environment: Mapping[str, str],
    copied: Callable[[str], None] = lambda name: None,
) -> Made:
    """Writes the backup. ``copied`` is called for each file. Raises OSError, DatabaseFailed, and as ``Snapshot.take``; then
    there is no file."""
    if queue:
        for each in _shards_of(settings):
            _refuse_missing_disks(each)
    parts = ["configuration", "keys", "portal", *(["reports"] if reports else []), *(["queue"] if queue else [])]
    notes: list[str] = []
    head = Head(metadata.version("waypost"), now, host, tuple(parts), str(config.absolute()))
    if queue and _may_refer(settings):  # an older Waypost would not take such a queue for newer than its own
        head = msgspec.structs.replace(head, format=REFERENCES)
    shards = _shards_of(settings) if queue or reports else [settings]
    if len(shards) > 1:
        head = msgspec.structs.replace(head, format=OF_SHARDS, shards=tuple(each.shard or 0 for each in shards))
    writer = Writer(path, head)
    snapshots = [Snapshot(str(each.queue_directory), str(each.spool_directory)) for each in shards]
    try:
        environment = portal_environment(config, environment)
        _configuration(writer, settings, config, environment)
        url = database_url(settings, environment)
        copy = copy_database(url, settings.home, writer.folder)
        if url == OF_NODES:
            notes.append(
                "the portal's data is in the database of [nodes], and not in this backup: back up PostgreSQL itself"
            )
        elif copy is None:
            where = sqlite_path(url, settings.home)
            notes.append(f"no database of a portal: there is no {where}, and DATABASE_URL names no other")
        if queue and settings.nodes.is_on:
            notes.append("the mail of other shards is not in this backup: it has that of this home's own shard")
            if owner := _owner_elsewhere(settings):
                notes.append(
                    f"node {owner} has this home's own shard now: what the backup has of its mail is as old as its files here"
                )
        writer.add_folder("home", settings.home)
        writer.add_folder("portal", settings.home / "portal")
        if copy is not None:
            original = sqlite_path("" if is_postgresql(url) else url, settings.home)
            writer.add_file(f"portal/{copy.name}", str(copy), like=original if original.exists() else original.parent)
        for each in shards[1:]:
            _place(writer, each)
        if reports:  # before the queue, so that the exported positions are not beyond its lanes
            for each in shards:
                _events(writer, each.events_directory, place_in_archive(each.shard or 0))
            _reports(writer, settings.reports_directory)
        told: dict[str, Any] = {}
        if queue:
            maildrop = MaildropCopy(settings.home / DIRECTORY, writer.folder, settings.receiver.message_size_limit)
            maildrop.take()
            for snapshot in snapshots:  # one after the other: no message is in two shards
                snapshot.take()
            left = maildrop.left(snapshots[0])  # the first shard takes what is dropped
            notes += [f"{why}; it is not in the backup" for why in maildrop.refused]
            writer.add_folder(DIRECTORY, settings.home / DIRECTORY)
            for name in left:
                writer.add_file(f"{DIRECTORY}/{name}", str(maildrop.path(name)))
                copied(f"{DIRECTORY}/{name}")
            of_shards = {}
            for each, snapshot in zip(shards, snapshots, strict=True):
                of_shards[str(each.shard or 0)] = _queue(writer, each, snapshot, copied)
            told = {**of_shards.pop("0"), "maildrop": left}
            if of_shards:
                told["shards"] = of_shards
        writer.finish(told)
    finally:
        for snapshot in snapshots:
            snapshot.drop()
        writer.abandon()
    return Made(path, tuple(parts), writer.files, writer.bytes_read, path.stat().st_size, tuple(notes))


def _owner_elsewhere(settings: Settings) -> str:
    """Returns the name of the other node that has the shard of this home, as this one has read last; "" if there is none."""
    others = read_others(settings.node_run_directory)
    if others is None:
        return ""
    return next((row.node for row in others.shards if row.number == others.own and row.node != others.node), "")


def _shards_of(settings: Settings) -> list[Settings]:
    """Returns the settings of every shard that was ever started; drained ones too, for their events."""
    first, *others = all_of(settings)
    return [first, *(each for each in others if each.place.exists() or each.queue_directory.exists())]


def _place(writer: Writer, settings: Settings) -> None:
    """Adds what a shard but the first has beside its queue, spool and events."""
    prefix = place_in_archive(settings.shard or 0)
    writer.add_folder(prefix.partition("/")[0], settings.place.parent)
    writer.add_folder(prefix.rstrip("/"), settings.place)
    for path in (settings.tuned_file, settings.place / DRAINED):
        with contextlib.suppress(FileNotFoundError):
            writer.add_file(f"{prefix}{path.name}", str(path))


def _queue(writer: Writer, settings: Settings, snapshot: Snapshot, copied: Callable[[str], None]) -> dict[str, Any]:
    """Adds the queue of a snapshot; returns its data for the manifest."""
    prefix = place_in_archive(settings.shard or 0)
    _folders(writer, f"{prefix}queue", settings.queue_directory, list(snapshot.sizes))
    _folders(writer, f"{prefix}spool", settings.spool_directory, [f"{folder:02x}" for folder in range(FANOUT)])
    for each in snapshot.files():
        writer.add_file(f"{prefix}{each.name}", each.path, each.size)
        copied(f"{prefix}{each.name}")
    return {
        "positions": None if snapshot.positions is None else msgspec.msgpack.encode(snapshot.positions).hex(),
        "ends": snapshot.ends(),
        "taken": snapshot.being_taken(),
        "younger": snapshot.younger(),
        "retained": snapshot.retained(),
    }


def _may_refer(settings: Settings) -> bool:
    """Returns True if a message in the queue may refer to data in another record."""
    with contextlib.suppress(PositionsTooNew, FileNotFoundError):
        if any(each.refers for each in read_all_positions(Disk(), str(settings.queue_directory))):
            return True
    return settings.queue.refer_deferred


def _refuse_missing_disks(settings: Settings) -> None:
    """Raises SnapshotFailed if queue or spool does not carry the identity of the home: the backup would lack its mail."""
    looks = look(Disk(), {name: str(path) for name, path in settings.identified_directories.items()})
    for each in looks:
        if each.why_not and each.name in ("queue", "spool"):
            raise SnapshotFailed(each.why_not)


def _configuration(writer: Writer, settings: Settings, config: Path, environment: Mapping[str, str]) -> None:
    writer.add_file("config/waypost.toml", str(config))
    for place in (settings.home / "tuned.toml", settings.users_file, settings.home / MANAGED, settings.home / HISTORY):
        with contextlib.suppress(FileNotFoundError):
            writer.add_file(f"config/{place.name}", str(place))
    if environment.get("WAYPOST_SECRET_KEY"):
        writer.add_bytes("keys/secret.key", environment["WAYPOST_SECRET_KEY"].encode(), settings.home / "portal")
    else:
        with contextlib.suppress(FileNotFoundError):
            writer.add_file("keys/secret.key", str(settings.home / "portal" / "secret.key"))
    kept = settings.home / KEPT
    _folders(writer, KEPT, kept, sorted(path.name for path in kept.glob("*") if path.is_dir()))
    for file in sorted(kept.glob("*/*")):
        if file.is_file():
            writer.add_file(f"{KEPT}/{file.relative_to(kept)}", str(file))
    for name, path in (("certificate", settings.receiver.tls_certificate), ("key", settings.receiver.tls_key)):
        if path and not Path(path).is_relative_to(kept):
            writer.add_file(f"keys/tls/{name}.pem", path)
    done = {settings.receiver.tls_certificate, settings.receiver.tls_key}
    for number, each in enumerate(settings.certificate, 1):
        for name, path in (("certificate", each.certificate), ("key", each.key)):
            if path not in done and not Path(path).is_relative_to(kept):  # sections may share a file
                done.add(path)
                writer.add_file(f"keys/tls/{number}/{name}.pem", path)


def _folders(writer: Writer, name: str, directory: Path, below: Iterable[str]) -> None:
    writer.add_folder(name, directory)
    for each in below:
        writer.add_folder(f"{name}/{each}", directory / each)


def _events(writer: Writer, directory: Path, prefix: str) -> None:
    """Positions first, and then of each lane what lies below: what is exported meanwhile is exported again after a restore,
    from a queue that may have gone another way."""
    exported = read_exported(Disk(), str(directory / EXPORTED))
    if exported is None:
        return
    _folders(writer, f"{prefix}events", directory, [EXPORTED])
    state = msgspec.structs.replace(exported, pins={}, pinned_until=0.0)
    place = directory / EXPORTED
    writer.add_bytes(f"{prefix}events/{EXPORTED}/positions.json", msgspec.json.encode(state), place)
    for name, path in _files(directory):
        # Traces of a restored queue begin at its end; the events of other nodes are in the database.
        if name.startswith((f"{EXPORTED}/", f"{TRACES}/", f"{COPY}/")):
            continue
        writer.add_folder(f"{prefix}events/{name}".rpartition("/")[0], path.parent)
        lane, _, offset = path.stem.rpartition(".")
        if path.suffix == ".parquet" and lane != "windows":
            known = exported.lanes.get(lane)
            if known is None or not offset.isdigit() or int(offset) >= known.at:
                continue
        with contextlib.suppress(FileNotFoundError):  # it was removed for its age
            writer.add_file(f"{prefix}events/{name}", str(path))


def _reports(writer: Writer, directory: Path) -> None:
    """Adds the reports. Each is a link to a directory, its version, which never changes but is removed once there is a
    newer one."""
    links: dict[str, str] = {}
    _folders(writer, "reports", directory, sorted(path.name for path in directory.glob("*") if path.is_dir()))
    for link in sorted(path for path in directory.glob("*/*") if path.is_symlink()):
        for _ in range(VERSION_TRIES):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(link)
                version = Path(os.path.normpath(link.parent / target))
                for below, path in _files(version, hidden=True):
                    name = f"reports/{version.relative_to(directory)}/{below}"
                    writer.add_file(name, str(path))
                    writer.add_folder(name.rpartition("/")[0], path.parent)
                links[str(link.relative_to(directory))] = target
                break
    writer.add_bytes("reports.json", msgspec.json.encode(links))


def _files(directory: Path, hidden: bool = False) -> Iterator[tuple[str, Path]]:
    """Yields plain files; hidden files, which are not complete, only with ``hidden``."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(each for each in folders if hidden or each[0] != ".")
        for each in sorted(names):
            path = Path(folder, each)
            if (hidden or each[0] != ".") and each not in OF_STARTS and path.is_file() and not path.is_symlink():
                yield str(path.relative_to(directory)), path
