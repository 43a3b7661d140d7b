"""Every system call that Waypost makes on its queue and spool files.

One small class, passed as an argument, so that tests can use a simulated disk that loses, tears and reorders unsynced writes
and fails any call. It knows paths and file descriptors, and nothing about lanes or records.

Errors are OSError as the kernel raises them. Nothing here retries a failed sync: after EIO the next fsync succeeds although
the data is lost (docs/facts.md), so a failed sync ends the use of that file.

A ``Guard`` refuses to open, list, create or remove anything in a directory that is not the one any more that was checked at the
start: its disk was unmounted, or another one lies above it. A segment of another queue may have the same name.

A ``Relief`` frees space that was set aside, and then a write or the creation of a name that found the disk full is repeated. A
sync is not.

Keeps law: no-sync-retry, law: one-identity, law: delivery-has-room (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence

__all__ = ["Buffer", "Disk", "Exchanged", "Guard", "Locked", "Relief", "is_full"]

Buffer = bytes | bytearray | memoryview
Relief = Callable[[int, int, int], bool]  # device, bytes and names needed -> whether something was freed there

_IOV_MAX = 1024  # POSIX limits.h; Linux's value
_FILE_MODE = 0o640  # the queue's group may read: the deliverer and the control process
_DIRECTORY_MODE = 0o750
_FILL_BYTES = 1 << 20  # written at once where a file system cannot allocate
_UNLIMITED = 1 << 62


def is_full(error: BaseException | None) -> bool:
    """Returns True for an OSError that says that the disk or a quota is full, and for an error raised from one."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


class Locked(Exception):
    """Another process holds the lock on this path."""


class Exchanged(OSError):
    """Raised if a guarded directory is not ours any more. Its text is the reason."""

    def __init__(self, why_not: str) -> None:
        super().__init__(errno.ESTALE, why_not)

    def __str__(self) -> str:
        return str(self.strerror)


class Guard:
    """Watches a directory. ``why_not`` reads its identity and returns why it is not ours; "" if it is."""

    def __init__(self, directory: str, why_not: Callable[[], str]) -> None:
        self.directory = directory.rstrip("/")
        self._why_not = why_not
        self._seen = (-1, -1)  # device and inode of the directory when it was ours

    def holds(self, path: str) -> bool:
        """Returns True if the path is the directory or is in it."""
        return path == self.directory or path.startswith(f"{self.directory}/")

    def check(self) -> None:
        """Raises OSError unless the directory is the one that was ours. It costs one stat, and a read if it was exchanged."""
        try:
            status = os.stat(self.directory)
        except FileNotFoundError:
            self.confirm()
            raise
        if (status.st_dev, status.st_ino) != self._seen:
            self.confirm()

    def confirm(self) -> None:
        """Reads the identity. Raises OSError unless it is ours."""
        self._seen = (-1, -1)
        if why_not := self._why_not():
            raise Exchanged(why_not)
        status = os.stat(self.directory)
        self._seen = (status.st_dev, status.st_ino)


class Disk:
    """The real disk."""

    file_mode = _FILE_MODE  # the umask applies
    directory_mode = _DIRECTORY_MODE
    guards: tuple[Guard, ...] = ()  # of this process; none in one that runs alone
    relief: Relief | None = None  # frees what was set aside; only the manager has it

    def __init__(self) -> None:
        self._kept: set[str] = (
            set()
        )  # directories whose names this process has synced; bounded by lanes and spool folders

    def guard_of(self, path: str) -> Guard | None:
        """Returns the guard of the innermost directory that holds the path."""
        guards = [guard for guard in self.guards if guard.holds(path)]
        return max(guards, key=lambda guard: len(guard.directory), default=None)

    def check(self, path: str) -> None:
        """Raises OSError if the guarded directory that holds the path was exchanged."""
        if self.guards and (guard := self.guard_of(path)) is not None:
            guard.check()

    def is_identified(self, path: str) -> bool:
        """Returns True if the directory that holds the path carries the identity of this process, which is read again.

        Returns False in a process that runs alone. Raises OSError, with the reason, if the directory was exchanged.
        """
        guard = self.guard_of(path)
        if guard is not None:
            guard.confirm()
        return guard is not None

    def _relieve(self, error: OSError, where: int | str, size_bytes: int, names: int) -> None:
        """Frees what was set aside on the disk of ``where``. Raises ``error`` if it is another one, or nothing is left."""
        if self.relief is None or not is_full(error) or not self.relief(os.stat(where).st_dev, size_bytes, names):
            raise error

    def create(self, path: str) -> int:
        """Creates a file, open for reading and writing. Raises FileExistsError if it exists."""
        self.check(path)
        while True:
            try:
                return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, self.file_mode)
            except OSError as error:
                self._relieve(error, os.path.dirname(path) or ".", 0, 1)

    def open_read(self, path: str) -> int:
        """Opens a file for reading; returns its descriptor."""
        self.check(path)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_foreign(self, path: str) -> int:
        """Opens a file that another user may have put there, for reading: follows no link and waits for no writer."""
        self.check(path)
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def owner_of(self, fd: int) -> int | None:
        """Returns the user id of an open file's owner; None if it is not a plain file, or has more than one name."""
        status = os.fstat(fd)
        return status.st_uid if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else None

    def open_write(self, path: str) -> int:
        """Opens an existing file, to rewrite bytes in place; returns its descriptor."""
        self.check(path)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Closes a descriptor."""
        os.close(fd)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        """Writes all of ``buffers`` at ``offset``.

        A full disk first gives a short write without an error (docs/facts.md), so the rest is written again until all of it
        is written or the kernel gives the error.
        """
        pending = [memoryview(buffer) for buffer in buffers if len(buffer)]
        while pending:
            try:
                written = os.pwritev(fd, pending[:_IOV_MAX], offset)
                if written == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                self._relieve(error, fd, sum(map(len, pending)), 0)
                continue
            offset += written
            done = 0
            while done < len(pending) and written >= len(pending[done]):
                written -= len(pending[done])
                done += 1
            del pending[:done]
            if written:
                pending[0] = pending[0][written:]

    def read(self, fd: int, length: int, offset: int) -> bytes:
        """Reads up to ``length`` bytes; fewer only at the end of the file."""
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
        """Reads a small file to its end."""
        fd = self.open_read(path)
        try:
            return self.read(fd, self.size(fd), 0)
        finally:
            self.close(fd)

    def write_whole(self, path: str, data: Buffer) -> None:
        """Replaces a small file atomically and syncs it. Raises OSError, and then the old file is unchanged."""
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
        """Returns the size of an open file in bytes."""
        return os.fstat(fd).st_size

    def size_of(self, path: str) -> int:
        """Returns the size of a file in bytes. Raises FileNotFoundError."""
        return os.stat(path).st_size

    def modified(self, path: str) -> float:
        """Returns the time of the last write to the file, in wall-clock seconds."""
        return os.stat(path).st_mtime

    def sync(self, fd: int) -> None:
        """Syncs the file's data, and the metadata needed to read it, to stable storage. Never call it again after it failed."""
        os.fdatasync(fd)

    def drop_cache(self, fd: int) -> None:
        """Makes the next read come from the disk: after a failed sync the page cache shows data that the disk lost."""
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: str) -> None:
        """Syncs the names in the directory ``path`` to stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, old: str, new: str) -> None:
        """Renames a file atomically, replacing ``new`` if it exists. Unsynced."""
        self.check(new)
        while True:
            try:
                return os.replace(old, new)
            except OSError as error:  # the directory needs another block for the name
                self._relieve(error, os.path.dirname(new) or ".", 0, 0)

    def unlink(self, path: str) -> None:
        """Removes a name. Unsynced. Raises FileNotFoundError."""
        self.check(path)
        os.unlink(path)

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted; an empty list if it does not exist."""
        self.check(path)
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_directory(self, path: str) -> bool:
        """Returns True if the path is a directory."""
        return os.path.isdir(path)

    def is_own_directory(self, path: str) -> bool:
        """Returns True if the path is a directory and not a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_own_file(self, path: str) -> bool:
        """Returns True if the path is a plain file, not a link, with one name."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def create_directory(self, path: str) -> None:
        """Creates one directory. Unsynced. Raises FileExistsError."""
        self.check(path)
        while True:
            try:
                return os.mkdir(path, self.directory_mode)
            except OSError as error:
                self._relieve(error, os.path.dirname(path) or ".", 0, 1)

    def make_directory(self, path: str) -> None:
        """Makes the directory and those above it, and syncs each into its parent.

        Existing directories are synced too, once per process: the process that created one may have been killed before it
        synced, or may not have synced yet, and mail will depend on the names (law: durable-before-250).
        """
        path = path.rstrip("/")
        if not path or path == "." or (path in self._kept and self.is_directory(path)):
            return
        self.check(path)
        parent = os.path.dirname(path) or ("/" if path.startswith("/") else ".")
        self.make_directory(parent)
        found = self.is_directory(path)
        if not found:
            with contextlib.suppress(FileExistsError):
                self.create_directory(path)
        try:
            self.sync_directory(parent)
        except OSError as error:
            # We have created nothing in a directory above the home that we may not open.
            if not found or error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS):
                raise
        self._kept.add(path)

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        self.check(path)
        os.rmdir(path)
        self._kept.discard(path.rstrip("/"))

    def exists(self, path: str) -> bool:
        """Returns True if the path exists."""
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        """Returns the bytes that an unprivileged writer may still write on the file system of ``path``."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def free_inodes(self, path: str) -> int:
        """Returns how many files an unprivileged user may still create there; 2^62 if the file system has no limit."""
        status = os.statvfs(path)
        return status.f_favail if status.f_files else _UNLIMITED

    def device(self, path: str) -> int:
        """Returns a number that paths on the same file system share. Raises FileNotFoundError."""
        return os.stat(path).st_dev

    def allocated(self, path: str) -> int:
        """Returns the bytes that a file occupies on the disk, at most its size. Raises FileNotFoundError."""
        status = os.stat(path)
        return min(status.st_size, status.st_blocks * 512)

    def allocate(self, fd: int, size_bytes: int) -> None:
        """Makes a file longer, by bytes that the disk then really holds for it. Raises OSError, and the file is as it was.

        A file system that cannot allocate, or that compresses the zeros, gets random bytes instead.
        """
        before = self.size(fd)
        try:
            try:
                os.posix_fallocate(fd, before, size_bytes - before)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                    raise
            if os.fstat(fd).st_blocks * 512 < size_bytes:
                for at in range(before, size_bytes, _FILL_BYTES):
                    os.pwrite(fd, os.urandom(min(_FILL_BYTES, size_bytes - at)), at)
        except OSError:
            os.ftruncate(fd, before)
            raise

    def shorten(self, fd: int, size_bytes: int) -> None:
        """Makes a file shorter and frees what lay beyond. Unsynced."""
        os.ftruncate(fd, size_bytes)

    def lock(self, path: str) -> int:
        """Takes an exclusive lock that ends with the process; returns the descriptor that holds it. Raises Locked."""
        self.check(path)
        while True:
            try:
                fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, self.file_mode)
                break
            except OSError as error:  # a lane that is new has no lock file yet
                self._relieve(error, os.path.dirname(path) or ".", 0, 1)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise Locked(f"{path} is locked by another process") from error
        return fd
