"""The file of a backup: a tar, compressed with zstd, whose last member lists everything in it.

```
waypost-backup.json   first: version of this format, of Waypost, when it was made, its parts
...                   the files
manifest.json         last: each member with its size and SHA-256, and data for the restore
```

`tar --zstd -tf FILE` lists it. Law: the file gets its name when it is complete and synced, and never replaces another; only its
owner may read it, because it has keys. A file without its last member, or with any byte changed, is damaged; the error says
which member.

Keeps law: backup-named-when-whole (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec
import pyarrow as pa

__all__ = [
    "FORMAT",
    "OF_SHARDS",
    "REFERENCES",
    "Archive",
    "BackupDamaged",
    "BackupTooNew",
    "Content",
    "Folder",
    "Head",
    "Manifest",
    "Member",
    "place_in_archive",
]

T = TypeVar("T")

FORMAT = OF_SHARDS = 3  # with queues or events of several shards
REFERENCES = 2  # with a queue in which messages may refer to data in other records
WITHOUT_REFERENCES = 1
HEAD = "waypost-backup.json"
MANIFEST = "manifest.json"
SMALL_MAX = 256 << 20  # of the two above; a manifest names each spool file
CHUNK_BYTES = 1 << 20
MODE = 0o600


def place_in_archive(shard: int) -> str:
    """Returns what the names of the files of a shard begin with: "", "shards/01/"."""
    return f"shards/{shard:02}/" if shard else ""


class BackupDamaged(Exception):
    """The file is not a backup, or it is damaged; the message says where."""


class BackupTooNew(Exception):
    """A newer Waypost made it."""


class Head(msgspec.Struct, frozen=True):
    """The first member of an archive: version, time and what the backup holds."""

    waypost: str
    made_at: float  # wall clock
    host: str
    parts: tuple[str, ...]  # configuration, portal, keys, reports, queue
    config: str = ""  # where the configuration file lay
    format: int = WITHOUT_REFERENCES
    shards: tuple[int, ...] = ()  # of a node with several: those in it


class Member(msgspec.Struct, frozen=True):
    """Size and checksum of one file, as the manifest has them."""

    name: str
    size: int
    sha256: str


class Folder(msgspec.Struct, frozen=True):
    """Owner, group and mode of a directory."""

    mode: int
    user: str
    group: str


class Manifest(msgspec.Struct, frozen=True):
    """The last member of an archive: every file and folder in it, and what is known of the queue."""

    members: tuple[Member, ...]
    folders: dict[str, Folder] = {}
    queue: dict[str, Any] = {}  # ``snapshot.Taken.manifest``


class Archive:
    """Reads an archive. ``files`` yields its content once; the archive is known to be complete when that has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = Manifest(())
        self._file = open(path, "rb")  # noqa: SIM115
        try:
            with self._blaming("this file is not a backup of Waypost, or its beginning is damaged"):
                self._stream = pa.CompressedInputStream(self._file, "zstd")
                self._tar = tarfile.open(fileobj=self._stream, mode="r|")  # noqa: SIM115
                first = self._tar.next()
            if first is None or first.name != HEAD or not first.isreg():
                raise BackupDamaged(f"{path} is not a backup of Waypost")
            self.head, self._first = self._read_head(first)
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def files(self) -> Iterator[tuple[tarfile.TarInfo, Content]]:
        """Yields each file; read each to its end. Raises BackupDamaged, also at the end of the iteration."""
        found = {HEAD: self._first}
        after = HEAD
        while True:
            with self._blaming(f"it is cut off or damaged behind {after}"):
                info = self._tar.next()
            if info is None:
                raise BackupDamaged(f"{self.path}: its end is missing, behind {after}")
            if not info.isreg() or not _is_inside(info.name):
                raise BackupDamaged(f"{self.path}: {info.name!r} does not belong in a backup")
            if info.name in found:
                raise BackupDamaged(f"{self.path}: {info.name} is in it twice")
            content = Content(self, info)
            if info.name == MANIFEST:
                self.manifest = self._decoded(content.everything(), MANIFEST, Manifest)
                break
            yield info, content
            found[info.name] = content.member()
            after = info.name
        for member in self.manifest.members:
            if found.pop(member.name, None) != member:
                raise BackupDamaged(f"{self.path}: {member.name} is damaged or missing")
        if not all(map(_is_inside, self.manifest.folders)):
            raise BackupDamaged(f"{self.path}: it has a directory that does not belong in a backup")
        if found:
            raise BackupDamaged(f"{self.path}: {next(iter(found))} is not in its manifest")

    def _read_head(self, info: tarfile.TarInfo) -> tuple[Head, Member]:
        content = Content(self, info)
        data = content.everything()
        version = self._decoded(data, HEAD, _Version).format
        if version > FORMAT:
            raise BackupTooNew(
                f"{self.path} has format version {version}, this Waypost reads up to {FORMAT}; restore it with the one "
                "that made it, or a newer one"
            )
        return self._decoded(data, HEAD, Head), content.member()

    def _decoded(self, data: bytes, name: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise BackupDamaged(f"{self.path}: {name}: {error}") from error

    @contextlib.contextmanager
    def _blaming(self, what: str) -> Iterator[None]:
        """Turns errors of the layers below about a damaged file into BackupDamaged."""
        try:
            yield
        except (tarfile.TarError, OSError, EOFError, ValueError, pa.ArrowException) as error:
            raise BackupDamaged(f"{self.path}: {what} ({error})") from error

    def read_from(self, file: IO[bytes], size: int, name: str) -> bytes:
        """Returns ``size`` bytes of a member. Raises BackupDamaged."""
        with self._blaming(f"{name} is cut off or damaged"):
            return file.read(size)


class Content:
    """The content of one member."""

    def __init__(self, archive: Archive, info: tarfile.TarInfo) -> None:
        self._archive = archive
        self._info = info
        file = archive._tar.extractfile(info)
        if file is None:
            raise BackupDamaged(f"{archive.path}: {info.name!r} does not belong in a backup")
        self._file = file
        self._hash = hashlib.sha256()
        self._size = 0

    def chunks(self) -> Iterator[bytes]:
        """Yields the bytes in pieces and computes their checksum."""
        while data := self._archive.read_from(self._file, CHUNK_BYTES, self._info.name):
            self._hash.update(data)
            self._size += len(data)
            yield data

    def everything(self) -> bytes:
        """Returns all bytes of a small member. Raises BackupDamaged for one above SMALL_MAX."""
        if self._info.size > SMALL_MAX:
            raise BackupDamaged(f"{self._archive.path}: {self._info.name} is too big")
        return b"".join(self.chunks())

    def member(self) -> Member:
        """Returns size and checksum; reads the rest of the content first."""
        for _ in self.chunks():
            pass
        return Member(self._info.name, self._size, self._hash.hexdigest())


class _Version(msgspec.Struct, frozen=True):
    format: int


def _is_inside(name: str) -> bool:
    parts = name.split("/")
    return not name.startswith("/") and "\0" not in name and all(part not in ("", ".", "..") for part in parts)
