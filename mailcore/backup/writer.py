"""Writes the file of a backup (``mailcore/backup/archive.py``).

Until the file is complete it has a temporary name beside its place and is locked while its writer runs. A file without a lock
was left by a killed writer; the next backup into the same directory removes it.

Keeps law: backup-named-when-whole (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import hashlib
import io
import os
import pwd
import secrets
import shutil
import tarfile
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from mailcore.backup.archive import HEAD, MANIFEST, Folder, Head, Manifest, Member

__all__ = ["Writer"]

MODE = 0o600
UNFINISHED = ".waypost-new"


class Writer:
    """Writes one archive under a temporary name. ``finish`` gives it its name; leaving without ``finish`` removes it."""

    def __init__(self, path: Path, head: Head) -> None:
        """Raises OSError."""
        self.path = path
        self.files = 0  # set when it is finished
        self._members: list[Member] = []
        self._folders: dict[str, Folder] = {}
        _clear_up(path.parent)
        self._new, descriptor = _begun(path)
        self._synced = os.dup(descriptor)  # the compressor closes the other
        self._file = os.fdopen(descriptor, "wb")
        self._compressor = pa.CompressedOutputStream(self._file, "zstd")
        self._tar = tarfile.open(fileobj=self._compressor, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self.add_bytes(HEAD, msgspec.json.format(msgspec.json.encode(head), indent=1) + b"\n")

    def add_bytes(self, name: str, content: bytes, like: Path | None = None) -> None:
        """Adds a file with this content; it gets the owner of ``like``."""
        info = tarfile.TarInfo(name)
        info.mode = MODE
        if like is not None and like.exists():
            info.uname, info.gname = _names(like.stat())
        self._add(info, io.BytesIO(content), len(content))

    def add_folder(self, name: str, path: str | Path) -> None:
        """Adds owner and mode of a directory; does nothing if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            self._folders[name] = Folder(status.st_mode & 0o7777, *_names(status))

    def add_file(self, name: str, path: str, size: int | None = None, like: Path | None = None) -> None:
        """Adds a file: its first ``size`` bytes, if it grows; with the owner of ``like``, if it is a copy. Raises OSError, also
        if the file is shorter."""
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = status.st_mode & 0o7777, int(status.st_mtime)
            info.uid, info.gid = status.st_uid, status.st_gid
            info.uname, info.gname = _names(status if like is None or not like.exists() else like.stat())
            self._add(info, file, status.st_size if size is None else size)

    def _add(self, info: tarfile.TarInfo, file: IO[bytes], size: int) -> None:
        info.size = size
        hashed = _Hashed(file)
        self._tar.addfile(info, hashed)  # raises OSError when the file ends before
        self._members.append(Member(info.name, size, hashed.hash.hexdigest()))

    @property
    def folder(self) -> Path:
        """Returns a directory for copies that are made for this archive; it is removed with the writer."""
        folder = _folder_of(self._new)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @property
    def bytes_read(self) -> int:
        """Returns the bytes read from files so far."""
        return sum(member.size for member in self._members)

    def finish(self, queue: dict[str, Any]) -> None:
        """Completes the archive and gives it its name. Raises OSError; FileExistsError if the name exists."""
        self.files = len(self._members)
        manifest = Manifest(tuple(self._members), self._folders, queue)
        self.add_bytes(MANIFEST, msgspec.json.encode(manifest))
        self._tar.close()
        self._compressor.close()
        os.fsync(self._synced)
        shutil.rmtree(_folder_of(self._new), ignore_errors=True)
        _name_it(self._new, self.path)
        os.close(self._synced)
        self._synced = -1
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def abandon(self) -> None:
        """Removes the file, unless it was finished."""
        if self._synced >= 0:
            for each in (
                self._tar,
                self._compressor,
                self._file,
            ):  # one that is not closed complains aloud when it goes
                with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                    each.close()
            shutil.rmtree(_folder_of(self._new), ignore_errors=True)
            self._new.unlink(missing_ok=True)
            os.close(self._synced)
            self._synced = -1


def _begun(path: Path) -> tuple[Path, int]:
    """Creates a locked file beside ``path``."""
    while True:
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        with contextlib.suppress(BlockingIOError):  # another backup has locked it and removes it
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return new, descriptor
        os.close(descriptor)


def _folder_of(new: Path) -> Path:
    return new.with_name(f"{new.name}.d")


def _clear_up(directory: Path) -> None:
    """Removes files of killed backups."""
    for new in directory.glob(f".*{UNFINISHED}"):
        with contextlib.suppress(OSError):  # another backup removed it, or is writing it
            descriptor = os.open(new, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(_folder_of(new), ignore_errors=True)
                new.unlink()
            finally:
                os.close(descriptor)


def _name_it(new: Path, path: Path) -> None:
    """Raises FileExistsError if the name exists; a file system without hard links can't tell."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError:
        new.replace(path)
    else:
        new.unlink()


class _Hashed(io.RawIOBase):
    """Reads a file and hashes what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hash.update(data)
        return data


def _names(status: os.stat_result) -> tuple[str, str]:
    """Returns the names of user and group; "" where the host has no name."""
    user = group = ""
    with contextlib.suppress(KeyError):
        user = pwd.getpwuid(status.st_uid).pw_name
    with contextlib.suppress(KeyError):
        group = grp.getgrgid(status.st_gid).gr_name
    return user, group
