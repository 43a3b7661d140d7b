"""The cost of a tree of processes: CPU, memory, syncs. Read from /proc, or counted by strace; Linux only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "READ_CALLS",
    "SYNC_CALLS",
    "Memory",
    "Trace",
    "cpu_s",
    "end_group",
    "free_port",
    "listening",
    "machine_cpu_s",
    "memory",
    "own_cpu_s",
    "tree",
    "wait_until",
]

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SYNC_CALLS = ("fsync", "fdatasync", "sync_file_range", "sync", "syncfs", "msync")
READ_CALLS = ("read", "pread64", "readv", "preadv", "preadv2")
POLL_S = 0.005


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_until(true: Callable[[], bool], what: str, timeout_s: float = 60.0, poll_s: float = POLL_S) -> None:
    """Raises TimeoutError naming ``what``."""
    end = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come about within {timeout_s:g} s")
        time.sleep(poll_s)


def listening(port: int) -> bool:
    """Whether an SMTP server greets there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.settimeout(5)
            return sock.recv(3) == b"220"
    except OSError:
        return False


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; [] when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def tree(root: int) -> list[int]:
    """The process and all below it that live."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root] if _stat(root) else []
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_s(root: int) -> float:
    """User and system time of the tree since its start, of children that ended (and were waited for) as well."""
    ticks = 0
    for pid in tree(root):
        if fields := _stat(pid):
            ticks += sum(int(each) for each in fields[11:15])  # utime, stime, cutime, cstime
    return ticks * TICK_S


def machine_cpu_s() -> float:
    """Time that all cores together were busy since boot."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def own_cpu_s() -> float:
    """Of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a tree. PSS counts a shared page once, divided among those that share it; RSS counts it for each."""

    pss: int
    rss: int
    processes: int


def memory(root: int) -> Memory:
    pss = rss = count = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            values = dict(re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE))
            pss += int(values.get("Pss", 0)) * 1024
            rss += int(values.get("Rss", 0)) * 1024
            count += 1
    return Memory(pss, rss, count)


def end_group(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGKILL) -> None:
    """Ends a process that was started with ``start_new_session=True``, and everything in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


class Trace:
    """Runs a command under strace, which stops it at the named calls only (seccomp); the others cost nothing."""

    def __init__(self, path: Path, calls: Iterable[str]) -> None:
        self._path = path
        self._calls = tuple(calls)
        self._call = re.compile(rf"^\d+ +[\d.]+ ({'|'.join(self._calls)})\(", re.MULTILINE)

    def command(self, command: list[str]) -> list[str]:
        """``-y`` names the file behind each descriptor, ``-s 0`` leaves the data out."""
        trace = ["-e", f"trace={','.join(self._calls)}", "-e", "signal=none"]
        return ["strace", "-f", "--seccomp-bpf", "-ttt", "-y", "-s", "0", "-o", str(self._path), *trace, *command]

    def total(self) -> int:
        """Returns the number of calls so far, in all processes."""
        return len(self._call.findall(self._path.read_text(errors="replace"))) if self._path.exists() else 0

    def bytes_read(self, under: Path, until: float) -> int:
        """Returns the bytes that the traced calls read from files below ``under``, up to a wall-clock time."""
        total = 0
        waiting: dict[str, bool] = {}  # thread -> whether its unfinished call is one that counts
        inside = f"<{under}/"
        for line in self._path.read_text(errors="replace").splitlines():
            thread, _, rest = line.partition(" ")
            stamp, _, call = rest.lstrip().partition(" ")
            if float(stamp) > until:
                break
            counts = inside in call
            if call.endswith("<unfinished ...>"):
                waiting[thread] = counts
                continue
            if call.startswith("<..."):
                counts = waiting.pop(thread, False)
            result = call.rpartition(" = ")[2].split(" ")[0]
            if counts and result.isdigit():
                total += int(result)
        return total
