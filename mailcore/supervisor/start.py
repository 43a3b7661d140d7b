"""Starts a child as a copy of the supervisor (fork), which has loaded the room before.

A fork takes milliseconds, where a fresh Python loads modules for up to half a second of CPU, and the children share the memory
of what is loaded (docs/decisions/0052-forked-children.md). ``execve`` closes descriptors, drops capabilities and names the
process; here this is done by ``_become_a_child``.

Laws
- The supervisor has no thread but its main one: a fork copies only the thread that calls it, and locks of others stay locked.
  So no room starts a thread when it is loaded (as pyarrow does: the exporter loads it in children of its own).
- A child has no descriptor of the supervisor but its standard output, standard error and those that it is given.
- A child keeps no capability that the supervisor did not have in its ambient set.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import setproctitle

from mailcore.supervisor.child import Main, run_child
from mailcore.supervisor.forked import run_and_exit
from mailcore.supervisor.users import User

__all__ = ["TITLE", "Order", "Process", "Role", "close_all_but", "forked", "prepare_role", "start"]

TITLE = "waypost: "  # how the command line of a forked child begins, before its name and home

_CAPABILITY_VERSION_3 = 0x20080522  # capset(2): two sets of 32 bits
_PR_SET_DUMPABLE = 4  # prctl(2)


class Process(Protocol):
    """A started child."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Returns the exit status, -N after signal N, or None while it runs."""

    def kill(self) -> None:
        """Sends SIGKILL."""


@dataclass(frozen=True, slots=True)
class Role:
    """The code that the children of a role run: ``load`` imports the room and returns its main."""

    load: Callable[[], Main]


@dataclass(frozen=True, slots=True)
class Order:
    """One child to start.

    ``name`` is for people ("receiver.0"). ``stored`` is the path of the settings, ``handed`` are the descriptors that the child
    keeps under their numbers, ``variables`` are set in its environment, and it runs as ``user``, None: that of the supervisor.
    """

    name: str
    role: str
    number: int
    stored: str
    handed: Sequence[int]
    variables: Mapping[str, str]
    user: User | None = None


def prepare_role(role: Role) -> None:
    """Loads the room of a role, so that its children start within milliseconds. Raises the errors of that."""
    role.load()


def start(role: Role, order: Order) -> Process:
    """Starts the child. Raises OSError if there is no memory or no free process, and the errors of loading the room."""
    main, parent = role.load(), os.getpid()
    return forked(lambda: _run_as_child(main, order, parent))


class _Forked:
    """A forked child, as the supervisor sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit status, -N after signal N, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """Sends SIGKILL; nothing if its end was seen already, because the id may belong to another process by now."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def forked(work: Callable[[], int]) -> Process:
    """Runs ``work`` in a copy of this process, which ends with the status that it returns. Raises OSError."""
    gc.freeze()  # no collection touches what is loaded, so that its pages stay shared
    sys.stdout.flush()
    sys.stderr.flush()  # or the child would write the rest, too
    pid = os.fork()
    if not pid:
        run_and_exit(work)
    return _Forked(pid)


def _run_as_child(main: Main, order: Order, parent: int) -> int:
    _become_a_child(order)
    return run_child(lambda: main, order.number, parent, order.stored)


def _become_a_child(order: Order) -> None:
    """Leaves behind what belongs to the supervisor alone: signals, descriptors, capabilities, its user and its name."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    close_all_but(order.handed)
    if (user := order.user) is not None:
        os.setgroups(user.groups)
        os.setregid(user.gid, user.gid)
        os.setreuid(user.uid, user.uid)
    if os.geteuid() != 0:
        _keep_ambient_capabilities_alone()
    os.environ.update(order.variables)
    setproctitle.setproctitle(f"{TITLE}{order.name} {_home_of(order.stored)}")


def _home_of(stored: str) -> str:
    """Returns the directory above the run directory that the settings are stored in; of a shard, above that of its node."""
    above = os.path.dirname(os.path.dirname(stored))
    return os.path.dirname(os.path.dirname(above)) if os.path.basename(above) == "shards" else above


def close_all_but(handed: Sequence[int]) -> None:
    """Closes all descriptors of this process but 0, 1, 2 and those in ``handed``."""
    first = 3
    for kept in sorted(handed):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, max(first, os.sysconf("SC_OPEN_MAX")))


def _keep_ambient_capabilities_alone() -> None:
    """Drops what ``execve`` of a program without capabilities drops (capabilities(7)). Raises OSError."""
    with open("/proc/self/status", "rb") as lines:
        found = {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    ambient, inheritable = int(found[b"CapAmb"], 16), int(found[b"CapInh"], 16)
    library = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable of capabilities 0 to 31; again of 32 to 63
    for half in (0, 1):
        low = ambient >> 32 * half & 0xFFFFFFFF
        data[3 * half : 3 * half + 3] = [low, low, inheritable >> 32 * half & 0xFFFFFFFF]
    if library.capset(header, data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    library.prctl(
        _PR_SET_DUMPABLE, 1, 0, 0, 0
    )  # a change of users cleared it, and its /proc files would belong to root
