"""Who is examined: the settings, the processes as the supervisor wrote them down, and what the core says of itself.

The core is asked once, in front of all checks, and not for long: one that does not answer is a finding, and the checks go on
with what files and the kernel tell.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError

__all__ = ["ANSWER_S", "PROC", "Patient", "Process", "alive", "name_of", "nearest"]

ANSWER_S = 5.0  # for each question to the core
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One of the core's, as the supervisor wrote it down."""

    name: str
    pid: int | None
    started_at: float  # wall clock
    restarts: int

    @property
    def is_up(self) -> bool:
        return self.pid is not None and alive(self.pid)


@dataclass
class Patient:
    """``sources``: the addresses mail leaves by; None: the kernel is asked."""

    settings: Settings
    config: Path
    wall: Callable[[], float] = time.time
    sources: tuple[str, ...] | None = None
    resolv_conf: Path = Path("/etc/resolv.conf")
    units: Path = Path("/etc/systemd/system")  # where Ansible puts ours; a checkout has none
    processes: dict[str, Process] = field(default_factory=dict)
    answer_s: float | None = None  # how long the manager took
    state: dict[str, Any] | None = None  # of the manager; None when it gave none
    silence: str = ""  # why it gave none
    silent: set[tuple[str, int]] = field(default_factory=set)  # name servers: nobody waits for them twice

    @classmethod
    def of(cls, settings: Settings, config: Path, **more: Any) -> Patient:
        """Asks the core. Never raises for what it does or does not say."""
        patient = cls(settings, config, **more)
        patient.processes = _processes(settings.run_directory)
        began = time.monotonic()
        try:
            with ControlClient(settings.run_directory / "control.sock", who="doctor", timeout_s=ANSWER_S) as control:
                answer = control.call("state")
            patient.state = answer if isinstance(answer, dict) else None
            patient.answer_s = time.monotonic() - began
        except (ControlError, OSError) as error:
            patient.silence = str(error)
        return patient

    @property
    def runs(self) -> bool:
        """Whether the supervisor does."""
        supervisor = self.processes.get("supervisor")
        return supervisor is not None and supervisor.is_up

    def has_unit(self, name: str) -> bool:
        """Whether systemd starts it on this host."""
        return self.unit(name).is_file()

    def unit(self, name: str) -> Path:
        return self.units / f"{name}.service"

    def pids(self) -> set[int]:
        return {each.pid for each in self.processes.values() if each.pid is not None and each.is_up}

    @property
    def helo(self) -> str:
        """Our name in EHLO."""
        return self.settings.deliverer.hostname or socket.gethostname()

    @property
    def greeting(self) -> str:
        """Our name in the greeting."""
        return self.settings.receiver.hostname or socket.gethostname()


def _processes(directory: Path) -> dict[str, Process]:
    """Nothing where the supervisor never wrote it, or wrote what can't be read."""
    found: dict[str, Process] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        for name, each in json.loads((directory / "children.json").read_text()).items():
            pid = int(each["pid"]) if each["pid"] is not None else None
            found[str(name)] = Process(str(name), pid, float(each["started_at"]), int(each["restarts"]))
    return found


def alive(pid: int) -> bool:
    """Whether it runs Waypost: its number may be another's by now. A zombie is not alive."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        command = (PROC / str(pid) / "cmdline").read_bytes()
    except (OSError, IndexError):
        return False
    return state != "Z" and (b"mailcore" in command or b"waypost" in command)


def name_of(pid: int) -> str:
    """The program's name; a question mark when it is gone."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "?"


def nearest(path: Path) -> Path:
    """The path, or the nearest above it that is there."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path
