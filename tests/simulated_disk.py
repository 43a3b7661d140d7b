"""A disk held in memory that loses what was not synced, tears what was being written, and fails any call when told to.

It has the interface of ``mailcore.log.disk.Disk`` and keeps two views of everything: what processes see (the cache) and what
is on the platter. A write goes to the first and waits for a sync to reach the second; so do the names in a directory.

- ``crash(choice)`` is the power loss: a new disk as it might be found afterwards. Of each file any subset of the unsynced
  writes is there, each of them whole, torn, in part of its sectors, or as zeros where the file had grown; of each directory
  any subset of the unsynced changes of names. A single byte, or a cut of the file, is there or not.
- ``kill()`` is the end of the process only: a new disk with all that was written, locks and descriptors gone.
- ``fail(...)`` makes one call fail; a sync may also fail as was measured (docs/facts.md): EIO once, the cache shows
  the data, the disk holds zeros, and the next sync says OK.
- ``crash_before(number)`` raises ``PowerLoss`` in front of that call (counted from 1), once and for every call after it, so
  that nothing a dying process still does in its ``finally`` can reach the disk.

Choices are made by a ``Choice``: ``RandomChoice(seed)``, or ``every(...)`` which goes through all of them. The disk copies
itself for each answer, so one history can be looked at under many crashes.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mailcore.log.disk import Buffer, Disk, Locked
from tests.power_loss import Choice, PowerLoss, RandomChoice, every
from tests.simulated_files import Crashed, Directory, File, Killed, Node, apply, patch

__all__ = ["Choice", "PowerLoss", "RandomChoice", "SimulatedDisk", "every"]


@dataclass
class _Fault:
    call: str
    in_path: str
    skip: int
    error: int
    lying: bool
    written: int
    times: int


class SimulatedDisk(Disk):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.log: list[tuple[str, str]] = []  # (call, path) of all that changes or syncs something, in order
        self.capacity: int | None = None  # bytes; a write beyond is cut short and ENOSPC
        self.inodes: int | None = None  # files; one more is ENOSPC
        self.on_change: Callable[[str, str], None] | None = None  # looks on in front of every call in ``log``
        self.wall: Callable[[], float] = lambda: 0.0  # what files are stamped with
        self.identified = True  # every directory carries the identity
        self._root = Directory()
        self._open: dict[int, tuple[str, File, bool]] = {}
        self._locks: dict[int, str] = {}
        self._next_fd = 3
        self._faults: list[_Fault] = []
        self._crash_at: int | None = None

    # -- what tests ask for

    def fail(
        self,
        call: str,
        *,
        in_path: str = "",
        skip: int = 0,
        error: int = errno.EIO,
        lying: bool = False,
        written: int = 0,
        times: int = 1,
    ) -> None:
        """The call after ``skip`` good ones on a path containing ``in_path`` fails, ``times`` times. ``written``: a write
        that fails has written so much. ``lying``: a sync that fails has lost its data, the cache shows it, the next sync
        says OK."""
        self._faults.append(_Fault(call, in_path, skip, error, lying, written, times))

    def heal(self) -> None:
        self._faults.clear()

    def crash_before(self, number: int) -> None:
        """The power goes in front of the call with this number in ``log``, counted from 1."""
        self._crash_at = number

    @property
    def changes(self) -> int:
        """Calls so far that change or sync something."""
        return len(self.log)

    def crash(self, choice: Choice) -> SimulatedDisk:
        return self._copy(Crashed(choice))

    def kill(self) -> SimulatedDisk:
        return self._copy(Killed())

    def image(self, path: str) -> bytes:
        """What processes see in a file."""
        return bytes(self._file(path).cache)

    def platter(self, path: str) -> bytes:
        """What of a file is safe, whatever happens."""
        return bytes(self._file(path).platter)

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """The bytes change, on the platter and in the cache."""
        file = self._file(path)
        patch(file.platter, offset, data)
        patch(file.cache, offset, data)

    def truncate(self, path: str, length: int) -> None:
        file = self._file(path)
        assert not file.pending
        del file.platter[length:]
        del file.cache[length:]

    def break_blocks(self, path: str, start: int, end: int) -> None:
        """Reading these bytes fails with EIO from now on."""
        self._file(path).bad.append((start, end))

    def put(self, path: str, data: bytes) -> None:
        """A file, synced with its name."""
        directory, name = self._parent(path)
        directory.now[name] = directory.platter[name] = File(bytearray(data), bytearray(data))

    def unsynced(self) -> list[str]:
        """Files with writes, and directories with changes of names, that no sync has covered."""

        def below(path: str, directory: Directory) -> Iterator[str]:
            if directory.pending:
                yield path or "/"
            for name, node in directory.now.items():
                if isinstance(node, Directory):
                    yield from below(f"{path}/{name}", node)
                elif node.pending:
                    yield f"{path}/{name}"

        return list(below("", self._root))

    def used(self) -> int:
        def below(directory: Directory) -> int:
            return sum(len(n.cache) if isinstance(n, File) else below(n) for n in directory.now.values())

        return below(self._root)

    def files(self) -> int:
        def below(directory: Directory) -> int:
            return sum(1 if isinstance(n, File) else 1 + below(n) for n in directory.now.values())

        return below(self._root)

    def open_files(self) -> list[str]:
        return [path for path, _, _ in self._open.values()]

    # -- Disk

    def is_identified(self, path: str) -> bool:
        return self.identified

    def create(self, path: str) -> int:
        self._call("create", path)
        directory, name = self._parent(path)
        if name in directory.now:
            raise _error(errno.EEXIST, path)
        self._one_more(path)
        file = File(modified=self.wall())
        directory.change({name: file})
        return self._descriptor(path, file, True)

    def open_read(self, path: str) -> int:
        self._call("open_read", path, changes=False)
        return self._descriptor(path, self._file(path), False)

    def open_foreign(self, path: str) -> int:
        return self.open_read(path)

    def owner_of(self, fd: int) -> int | None:
        self._get(fd)
        return 1000

    def open_write(self, path: str) -> int:
        self._call("open_write", path, changes=False)
        return self._descriptor(path, self._file(path), True)

    def close(self, fd: int) -> None:
        if self._crash_at == 0:
            return  # a finally in a dying process
        if self._locks.pop(fd, None) is None and self._open.pop(fd, None) is None:
            raise _error(errno.EBADF, str(fd))

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        path, file, writable = self._get(fd)
        data = b"".join(buffers)
        fault = self._call("write", path, raising=False)
        if not writable:
            raise _error(errno.EBADF, path)
        if fault is not None:
            self._write(file, data[: fault.written], offset)
            raise _error(fault.error, path)
        if self.capacity is not None:
            more = max(0, offset + len(data) - len(file.cache))
            while self.used() + more > self.capacity and self.relief is not None and self.relief(1, more, 0):
                pass
            room = max(0, self.capacity - self.used() + max(0, len(file.cache) - offset))
            if room < len(data):
                self._write(file, data[:room], offset)
                raise _error(errno.ENOSPC, path)
        self._write(file, data, offset)

    def _write(self, file: File, data: bytes, offset: int) -> None:
        if data:
            patch(file.cache, offset, data)
            file.pending.append((offset, data))
            file.modified = self.wall()

    def read(self, fd: int, length: int, offset: int) -> bytes:
        path, file, _ = self._get(fd)
        self._call("read", path, changes=False)
        assert length >= 0
        assert offset >= 0
        if any(start < offset + length and offset < end for start, end in file.bad):
            raise _error(errno.EIO, path)
        return bytes(file.cache[offset : offset + length])

    def size(self, fd: int) -> int:
        path, file, _ = self._get(fd)
        self._call("size", path, changes=False)
        return len(file.cache)

    def size_of(self, path: str) -> int:
        self._call("size_of", path, changes=False)
        return len(self._file(path).cache)

    def modified(self, path: str) -> float:
        self._call("modified", path, changes=False)
        return self._file(path).modified

    def sync(self, fd: int) -> None:
        path, file, _ = self._get(fd)
        fault = self._call("sync", path, raising=False)
        if fault is not None and fault.lying:
            for offset, data in file.pending:
                if data is None:
                    continue
                kept = max(0, min(len(file.platter) - offset, len(data)))
                patch(file.platter, offset + kept, bytes(len(data) - kept))
            file.pending.clear()
        if fault is not None:
            raise _error(fault.error, path)
        for offset, data in file.pending:
            patch(file.platter, offset, data)
        file.pending.clear()

    def drop_cache(self, fd: int) -> None:
        path, file, _ = self._get(fd)
        self._call("drop_cache", path, changes=False)
        view = bytearray(file.platter)
        for offset, data in file.pending:  # dirty pages stay
            patch(view, offset, data)
        file.cache = view

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)
        directory = self._directory(path)
        for names in directory.pending:
            apply(directory.platter, names)
        directory.pending.clear()

    def replace(self, old: str, new: str) -> None:
        self._call("replace", new)
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        assert source is target, "renames between directories are not simulated"
        if old_name not in source.now:
            raise _error(errno.ENOENT, old)
        source.change({old_name: None, new_name: source.now[old_name]})

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        directory, name = self._parent(path)
        if not isinstance(directory.now.get(name), File):
            raise _error(errno.ENOENT, path)
        directory.change({name: None})

    def list(self, path: str) -> list[str]:
        self._call("list", path, changes=False)
        node = self._node(path)
        if node is None:
            return []
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return sorted(node.now)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._node(path), Directory)

    def is_own_directory(self, path: str) -> bool:
        return self.is_directory(path)

    def is_own_file(self, path: str) -> bool:
        return isinstance(self._node(path), File)

    def create_directory(self, path: str) -> None:
        self._call("create_directory", path)
        directory, name = self._parent(path)
        if name in directory.now:
            raise _error(errno.EEXIST, path)
        self._one_more(path)
        directory.change({name: Directory()})

    def remove_directory(self, path: str) -> None:
        self._call("remove_directory", path)
        directory, name = self._parent(path)
        if self._directory(path).now:
            raise _error(errno.ENOTEMPTY, path)
        directory.change({name: None})
        self._kept.discard(path)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def free_bytes(self, path: str) -> int:
        return 1 << 40 if self.capacity is None else max(0, self.capacity - self.used())

    def free_inodes(self, path: str) -> int:
        return 1 << 62 if self.inodes is None else max(0, self.inodes - self.files())

    def device(self, path: str) -> int:
        if self._node(path) is None:
            raise _error(errno.ENOENT, path)
        return 1

    def allocated(self, path: str) -> int:
        return len(self._file(path).cache)

    def allocate(self, fd: int, size_bytes: int) -> None:
        path, file, _ = self._get(fd)
        self._call("allocate", path)
        if self.capacity is not None and self.used() + size_bytes - len(file.cache) > self.capacity:
            raise _error(errno.ENOSPC, path)
        self._write(file, bytes(size_bytes - len(file.cache)), len(file.cache))

    def shorten(self, fd: int, size_bytes: int) -> None:
        path, file, _ = self._get(fd)
        self._call("shorten", path)
        if size_bytes < len(file.cache):
            patch(file.cache, size_bytes, None)
            file.pending.append((size_bytes, None))

    def _one_more(self, path: str) -> None:
        while self.inodes is not None and self.files() >= self.inodes:
            if self.relief is None or not self.relief(1, 0, 1):
                raise _error(errno.ENOSPC, path)

    def lock(self, path: str) -> int:
        self._call("lock", path)
        path = posixpath.abspath(path)
        if path in self._locks.values():
            raise Locked(f"{path} is locked by another process")
        directory, name = self._parent(path)
        if name not in directory.now:
            self._one_more(path)
            directory.change({name: File()})
        self._next_fd += 1
        self._locks[self._next_fd] = path
        return self._next_fd

    # -- inside

    def _call(self, call: str, path: str, *, changes: bool = True, raising: bool = True) -> _Fault | None:
        if self._crash_at == 0:
            raise PowerLoss
        if changes:
            if self.on_change is not None:
                self.on_change(call, path)
            if self._crash_at is not None and len(self.log) + 1 >= self._crash_at:
                self._crash_at = 0
                raise PowerLoss
            self.log.append((call, path))
        self.calls[call] += 1
        for fault in self._faults:
            if fault.call != call or fault.in_path not in path:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            if raising:
                raise _error(fault.error, path)
            return fault
        return None

    def _descriptor(self, path: str, file: File, writable: bool) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = (path, file, writable)
        return self._next_fd

    def _get(self, fd: int) -> tuple[str, File, bool]:
        if self._crash_at == 0:
            raise PowerLoss
        if fd not in self._open:
            raise _error(errno.EBADF, str(fd))
        return self._open[fd]

    def _node(self, path: str) -> Node | None:
        node: Node = self._root
        for name in posixpath.abspath(path).split("/")[1:]:
            if not name:
                continue
            if not isinstance(node, Directory) or name not in node.now:
                return None
            node = node.now[name]
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if not isinstance(node, File):
            raise _error(errno.ENOENT if node is None else errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOENT if node is None else errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, name = posixpath.split(posixpath.abspath(path))
        return self._directory(parent), name

    def _copy(self, how: Killed | Crashed) -> SimulatedDisk:
        copy = SimulatedDisk()
        copy.capacity, copy.inodes, copy.wall = self.capacity, self.inodes, self.wall
        copy._root = how.directory(self._root)
        return copy


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
