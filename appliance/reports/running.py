"""Runs a report in a child process: one at a time, watched, stopped at its time limit. Does not use Django.

    with held(directory) as hold:
        ended = run(command, hold, timeout_s=3600, listen=...)

Laws: two reports never run at once: the lock is the kernel's (flock), and the child inherits its descriptor, so that it is
free only when both have ended. The child ends with the process that watches it, and all its own children end with it. Its
output is read as it arrives, and bounded; a line of JSON with a ``stage`` is progress.

Keeps law: one-report-at-a-time (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType

from appliance import pipeline

__all__ = ["Busy", "Ended", "Heard", "command_of", "held", "is_held", "run"]

_PR_SET_PDEATHSIG = 1  # prctl(2)
ROOT = Path(__file__).resolve().parent.parent.parent
LINE_MAX = 2_000  # bytes of a line that are kept
LINES_MAX = 500  # of the log: its end
NICER = 5  # the mail goes first
END_S = 30.0  # to end in, once it has said all
TICK_S = 1.0  # how often the listener is asked when nothing is said


class Busy(Exception):
    """A report is being made already."""


@dataclass(frozen=True)
class Heard:
    """The progress that the child reported, and the end of its log."""

    stage: str
    share: float  # 0 to 1
    log: str


@dataclass(frozen=True)
class Ended:
    """The result of a child process."""

    status: int  # as of subprocess: negative after a signal
    log: str
    why: str  # "", or why we ended it


def command_of(
    day: date | str,
    events: Path,
    output: Path,
    zone: str,
    master: str,
    keep_classes: bool = False,
    shards: Mapping[int, Path] = MappingProxyType({}),
    nodes: Path | None = None,
    nodes_fault: str = "",
) -> list[str]:
    """Returns the pipeline's command line. ``keep_classes``: Java's, for faster starts; takes half a minute once.
    ``shards``: the events of further shards, by number; ``nodes``: what says where those of all nodes are,
    and ``nodes_fault`` why they were not fetched for this run."""
    command = [
        sys.executable, "-m", pipeline.__name__, str(day), "--events", str(events), "--output", str(output),
        "--zone", zone, "--master", master,
        *(each for number, directory in sorted(shards.items()) for each in ("--shard", f"{number}={directory}")),
        *(() if nodes is None else ("--nodes", str(nodes), f"--nodes-fault={nodes_fault}")),
    ]  # fmt: skip
    return [*command, "--keep-classes"] if keep_classes else command


@contextmanager
def held(directory: Path) -> Iterator[int]:
    """Holds the lock for making reports; yields its file descriptor. Raises Busy."""
    directory.mkdir(parents=True, exist_ok=True)
    hold = os.open(directory / "run.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another report is running") from None
        yield hold
    finally:
        os.close(hold)


def is_held(directory: Path) -> bool:
    """Returns whether a report is being made."""
    try:
        hold = os.open(directory / "run.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(hold, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(hold)
    return False


def run(
    command: Sequence[str], hold: int, *, timeout_s: float, listen: Callable[[Heard], bool], directory: Path = ROOT
) -> Ended:
    """Runs it to its end. ``listen`` hears of it each second and says False to have it ended."""
    child = subprocess.Popen(  # noqa: S603  # our own command line
        [sys.executable, "-m", __name__, str(os.getpid()), *command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(hold,),
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    reading = _Reading()
    end = time.monotonic() + timeout_s
    why = ""
    try:
        with selectors.DefaultSelector() as selector, child.stdout as pipe:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
            told = 0.0
            open_ = True
            while open_:
                if selector.select(TICK_S):
                    data = os.read(pipe.fileno(), 1 << 16)
                    open_ = bool(data)
                    reading.feed(data)
                elif child.poll() is not None:
                    break  # a process it left behind holds the pipe
                if time.monotonic() - told >= TICK_S:
                    told = time.monotonic()
                    why = "stopped" if not listen(reading.heard) else why
                    why = f"took longer than {timeout_s:.0f} s" if told > end else why
                    if why:
                        break
            if not why:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(END_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # with all that it started: a session of its own
        status = child.wait()
    return Ended(status, reading.heard.log, why)


class _Reading:
    """Lines out of what is read, however it is cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._stage, self._share = "starting", 0.0

    @property
    def heard(self) -> Heard:
        return Heard(self._stage, self._share, "\n".join(self._lines))

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:LINE_MAX]  # of an endless line the beginning
        for line in lines:
            self._line(line[:LINE_MAX].decode(errors="replace").rstrip())
        if not data and self._rest:
            self._line(self._rest.decode(errors="replace").rstrip())
            self._rest = b""

    def _line(self, line: str) -> None:
        if line.startswith("{"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                told = json.loads(line)
                self._stage, self._share = str(told["stage"])[:200], min(max(float(told.get("share", 0)), 0.0), 1.0)
                return
        if line:
            self._lines.append(line)


def _become(parent: int, command: Sequence[str]) -> None:
    """Runs the command in the child process: with low priority, and ending when the parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    os.nice(NICER)
    os.execv(command[0], list(command))  # noqa: S606  # it is what this process is for


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
