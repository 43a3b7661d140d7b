"""The host that the doctor checks: settings, processes as recorded by the supervisor, and the state of the manager.

The manager is asked once, before all checks, with a time limit. If it does not answer, checks use files and the kernel.
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

from mailcore.config.host_finder_of import our_name
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError
from mailcore.doctor.resolver import Lookups, servers_of
from mailcore.faults import Code
from mailcore.manager_answers import State

__all__ = ["ANSWER_S", "PROC", "Host", "Process", "alive", "name_of", "nearest", "processes_of"]

ANSWER_S = 5.0  # for each request to the core
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process of the core, as recorded by the supervisor in children.json."""

    name: str
    pid: int | None
    started_at: float  # wall clock
    restarts: int
    since_boot_s: float | None = None  # at ``started_at``; None if the supervisor did not record it

    @property
    def is_up(self) -> bool:
        """Tells whether the process runs now."""
        return self.pid is not None and alive(self.pid)


@dataclass
class Host:
    """Everything that checks need to know. ``sources``: addresses of outgoing mail; None asks the kernel."""

    settings: Settings
    config: Path
    wall: Callable[[], float] = time.time
    sources: tuple[str, ...] | None = None
    resolv_conf: Path = Path("/etc/resolv.conf")
    units: Path = Path("/etc/systemd/system")  # Ansible installs units here; a checkout has no units
    packaged_units: Path = Path("/usr/lib/systemd/system")  # the Debian package installs them here
    processes: dict[str, Process] = field(default_factory=dict)
    answer_s: float | None = None  # response time of the manager
    state: State | None = None  # of the manager; None without an answer
    silence: str = ""  # reason why there is no answer
    silence_code: Code | None = None  # its code
    lookups: Lookups = field(init=False)  # of the checks of names, which share what they learn about the servers

    def __post_init__(self) -> None:
        self.lookups = Lookups(servers_of(self.settings, self.resolv_conf), self.helo)

    @classmethod
    def of(cls, settings: Settings, config: Path, **more: Any) -> Host:
        """Collects processes and the manager's state. A manager that fails or does not answer is not an error."""
        host = cls(settings, config, **more)
        host.processes = processes_of(settings.run_directory)
        began = time.monotonic()
        try:
            with ControlClient(
                settings.run_directory / "control.sock", who="doctor", timeout_s=ANSWER_S, here=True
            ) as control:
                host.state = control.ask("state", State)
            host.answer_s = time.monotonic() - began
        except (ControlError, OSError) as error:
            host.silence = str(error)
            host.silence_code = error.code if isinstance(error, ControlError) else None
        return host

    @property
    def runs(self) -> bool:
        """Tells whether the supervisor runs."""
        supervisor = self.processes.get("supervisor")
        return supervisor is not None and supervisor.is_up

    def has_unit(self, name: str) -> bool:
        """Tells whether this host has a systemd service of that name."""
        return self.unit(name).is_file()

    def unit(self, name: str) -> Path:
        """Returns the path of the systemd unit, whether it exists or not."""
        own, packaged = self.units / f"{name}.service", self.packaged_units / f"{name}.service"
        return packaged if packaged.is_file() and not own.is_file() else own

    def pids(self) -> set[int]:
        """Returns the process IDs of all running processes of the core."""
        return {each.pid for each in self.processes.values() if each.pid is not None and each.is_up}

    @property
    def helo(self) -> str:
        """Returns our name in EHLO."""
        return our_name(self.settings)

    @property
    def greeting(self) -> str:
        """Returns our name in the SMTP greeting."""
        return self.settings.receiver.hostname or socket.gethostname()


def processes_of(directory: Path) -> dict[str, Process]:
    """Reads children.json; empty if it is missing or damaged."""
    found: dict[str, Process] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        for name, each in json.loads((directory / "children.json").read_text()).items():
            pid = int(each["pid"]) if each["pid"] is not None else None
            since_boot_s = float(each["since_boot_s"]) if "since_boot_s" in each else None
            started_at = float(each["started_at"])
            found[str(name)] = Process(str(name), pid, started_at, int(each["restarts"]), since_boot_s)
    return found


def alive(pid: int) -> bool:
    """Tells whether a process runs Waypost. The ID may have been reused; a zombie does not count."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
        command = (PROC / str(pid) / "cmdline").read_bytes()
    except (OSError, IndexError):
        return False
    return state != "Z" and (b"mailcore" in command or b"waypost" in command)


def name_of(pid: int) -> str:
    """Returns the name of a program; "?" if the process has ended."""
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "?"


def nearest(path: Path) -> Path:
    """Returns the path, or its nearest parent that exists."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path
