"""A queue on a real disk, written by the simulated machine, with a look at it in front of each call that changes it."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mailcore.envelope import Status
from mailcore.log.disk import Buffer, Disk
from mailcore.manager.carrying import Way
from mailcore.queue.active import Active
from mailcore.queue.bodies import LOOK_S
from mailcore.queue.lanes import HOLD
from tests.queue.simulated_machine import RETRY_S, UNDO_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import begun, deliver_all

__all__ = ["History", "WatchedDisk", "close_below", "data_of"]

SEGMENT_BYTES = 6000  # two messages of SIZE
SIZE = 2500


def data_of(queue_id: str) -> bytes:
    """The data of a message, as the machine accepts it."""
    return (b"Subject: " + queue_id.encode() + b"\r\n").ljust(SIZE, b".")


def close_below(path: Path) -> None:
    """Closes the files below a directory that this process has open, as the end of a process does.

    No object may be left that would close one of them later.
    """
    gc.collect()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{path}/"):
                os.close(int(name))


class WatchedDisk(Disk):
    """The real disk, with ``on_change`` in front of each call that changes something. It does not wait for syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.on_change: Callable[[], None] = lambda: None

    def _changing(self) -> None:
        self.changes += 1
        self.on_change()

    def create(self, path: str) -> int:
        self._changing()
        return super().create(path)

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        self._changing()
        super().write(fd, buffers, offset)

    def replace(self, old: str, new: str) -> None:
        self._changing()
        super().replace(old, new)

    def unlink(self, path: str) -> None:
        self._changing()
        super().unlink(path)

    def shorten(self, fd: int, size_bytes: int) -> None:
        self._changing()
        super().shorten(fd, size_bytes)

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class History:
    """Messages that are deferred, delivered, carried, referred to, held and deleted; the same calls each time."""

    def __init__(self, home: Path, patched: pytest.MonkeyPatch) -> None:
        for name, directory in (("HOME", "queue"), ("SPOOL", "spool")):
            patched.setattr(f"tests.queue.simulated_machine.{name}", str(home / directory))
        self.disk, self.outside = WatchedDisk(), OutsideMemory()
        self.outside.now = float(int(time.time()))  # for the manager that reads the copy
        self.machine = SimulatedMachine(cast(Any, self.disk), self.outside, SEGMENT_BYTES)
        self.machine.queue.journal.segment_bytes = (
            1 << 30
        )  # a backup fails if the journal is deleted from its moment on
        carrying: Any = self.machine.passes.carrying
        carrying.way, carrying.waits = self._way, lambda active, lane: False
        self._next = Way.REFER
        self.ids: dict[str, str] = {}  # by name

    def _way(self, active: Active, lane: str) -> Way:
        """Held data is neither carried nor referred to if it is large, nor is that of a pass that broke off."""
        return Way.SPOOL if lane == HOLD or active.may_have_file else self._next

    def live(self) -> None:
        self._accept("first", "second", "held", "deleted")
        self._passes(first=Way.REFER, second=Way.REFER, held=Way.REFER, deleted=Way.REFER)
        self._others()
        self._order("hold", "held")
        self._order("delete", "deleted")
        self._checkpoints(2)
        self.machine.wait(RETRY_S)
        self._passes(first=Way.REFER, second=Way.CARRY)
        self._others()
        self._checkpoints(2)
        self.machine.wait(RETRY_S)
        self._passes(first=Way.CARRY, second=Way.REFER)
        self._checkpoints(1)
        self._others()
        self._order("undelete", "deleted")
        self._checkpoints(2)
        self._passes(deleted=Way.REFER)
        self._order("delete", "deleted")
        self._checkpoints(1)
        self.machine.wait(RETRY_S)
        self._passes(first=Way.REFER, second=None)
        self._checkpoints(3)
        self.machine.wait(UNDO_S)
        self.machine.drain_deleted()
        self.machine.sync()
        self._checkpoints(3)
        self.machine.wait(LOOK_S)
        self._checkpoints(2)

    def _accept(self, *names: str) -> None:
        for name in names:
            self.ids[name] = self.machine.accept(size=SIZE)
        self.machine.durable()

    def _passes(self, **ways: Way | None) -> None:
        """All messages that are due have a pass, one for each name. The data of each goes its way; None: delivered."""
        left = {self.ids[name]: way for name, way in ways.items()}
        while left:
            active = begun(self.machine)
            way = left.pop(active.queue_id)
            self._next = way or self._next
            self.machine.attempt(active, {0: Status.DELIVERED if way is None else Status.DEFERRED})
            self.machine.end(active)

    def _others(self) -> None:
        """Two messages fill a segment and are delivered, so that the lane does not need the segments in front of it."""
        self._accept("other", "another")
        for _ in range(2):
            deliver_all(self.machine, begun(self.machine))

    def _order(self, operation: str, name: str) -> None:
        self._next = Way.REFER
        self.machine.checkpoint()  # it rests where it can be read
        self.machine.order(self.machine.claim(self.ids[name]), operation)

    def _checkpoints(self, count: int) -> None:
        for _ in range(count):
            self.machine.checkpoint()
