"""Every system call Waypost makes on its queue and spool files.

One small class, handed to whoever needs it, so that tests can put a simulated disk in its place that loses, tears and
reorders unsynced writes and fails any call. It knows paths and file descriptors, nothing of lanes or records.

Errors are OSError as the kernel gives them. Nothing here retries a failed sync: after EIO the next fsync says OK although
the data is gone (FACTS), so a failed sync ends the use of that file (DESIGN law 8).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence

__all__ = ["Buffer", "Disk", "Locked"]

Buffer = bytes | bytearray | memoryview

_IOV_MAX = 1024  # POSIX limits.h; Linux's value
_FILE_MODE = 0o640  # the queue's group may read (the deliverer, the control process), nobody else
_DIRECTORY_MODE = 0o750


class Locked(Exception):
    """Another process holds the lock on this path."""


class Disk:
    """The real disk."""

    file_mode = _FILE_MODE  # less the umask, as always
    directory_mode = _DIRECTORY_MODE

    def __init__(self) -> None:
        self._kept: set[str] = (
            set()
        )  # directories whose names this process has synced; as many as lanes and spool folders

    def create(self, path: str) -> int:
        """A new file, open for reading and writing. FileExistsError when there is one."""
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, self.file_mode)

    def open_read(self, path: str) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_write(self, path: str) -> int:
        """An existing file, to rewrite bytes in place."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all of ``buffers`` at ``offset``.

        A full disk first shows as a short write without an exception (FACTS), so the rest is tried until it is written or
        the kernel names the error.
        """
        pending = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while pending:
            written = os.pwritev(fd, pending[:_IOV_MAX], offset)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            offset += written
            done = 0
            while done < len(pending) and written >= len(pending[done]):
                written -= len(pending[done])
                done += 1
            del pending[:done]
            if written:
                pending[0] = pending[0][written:]

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes; fewer only at the end of the file."""
        data = os.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length:
            data = os.pread(fd, length - have, offset + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def read_whole(self, path: str) -> bytes:
        """A small file, to its end."""
        fd = self.open_read(path)
        try:
            return self.read(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def write_whole(self, path: str, data: Buffer) -> None:
        """A small file, replaced atomically and synced; OSError leaves what was there."""
        new = f"{path}.new"
        with contextlib.suppress(FileNotFoundError):
            self.unlink(new)
        fd = self.create(new)
        try:
            self.write(fd, [data], 0)
            self.sync(fd)
        finally:
            self.close(fd)
        self.replace(new, path)
        self.sync_directory(os.path.dirname(path))

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def size_of(self, path: str) -> int:
        return os.stat(path).st_size

    def modified(self, path: str) -> float:
        """When the file was last written to; wall clock."""
        return os.stat(path).st_mtime

    def sync(self, fd: int) -> None:
        """The file's data, and what is needed to find it, on stable storage. Never call it again on a file it failed on."""
        os.fdatasync(fd)

    def drop_cache(self, fd: int) -> None:
        """What is read next comes from the disk. After a failed sync the page cache shows what the disk has lost (FACTS)."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: str) -> None:
        """The names in ``path`` on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def create_directory(self, path: str) -> None:
        """One directory, unsynced. FileExistsError when there is one."""
        os.mkdir(path, self.directory_mode)

    def make_directory(self, path: str) -> None:
        """The directory and those above it, each synced into its parent.

        Those that are there are synced too, once by each process: who made them may have been killed before that, or be
        another process that has not come to it yet, and mail is going to hang on their names (law 1).
        """
        path = path.rstrip("/")
        if not path or path == "." or (path in self._kept and self.is_directory(path)):
            return
        parent = os.path.dirname(path) or ("/" if path.startswith("/") else ".")
        self.make_directory(parent)
        found = self.is_directory(path)
        if not found:
            with contextlib.suppress(FileExistsError):
                self.create_directory(path)
        try:
            self.sync_directory(parent)
        except OSError as error:
            # A directory above the home that we may not even open is none that we have made anything in.
            if not found or error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS):
                raise
        self._kept.add(path)

    def remove_directory(self, path: str) -> None:
        """An empty directory away."""
        os.rmdir(path)
        self._kept.discard(path.rstrip("/"))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        """What an unprivileged writer may still write on the file system of ``path``."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def lock(self, path: str) -> int:
        """An exclusive lock that ends with the process; returns the descriptor that holds it. Raises Locked."""
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, self.file_mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise Locked(f"{path} is locked by another process") from error
        return fd
