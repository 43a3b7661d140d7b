"""The processes of a node for the other nodes, beside its shards: one watches their shards, one passes questions on.

Both have the driver of the database and its threads; the process of the node, which forks, must not.
"""

from __future__ import annotations

import os
import signal
import time

import setproctitle

from mailcore.config.settings import Settings
from mailcore.maillog.maillog import MailLog
from mailcore.supervisor.forked import end_with
from mailcore.supervisor.start import TITLE, Process, Role, close_all_but, forked
from mailcore.supervisor.supervisor import BACKOFF_S_MAX, both_clocks, say

__all__ = ["Beside", "beside_of"]

AGAIN_S = 1.0


def beside_of(settings: Settings) -> list[str]:
    """Returns the roles of these processes: "spare", and "peers" if other nodes can reach this one."""
    if not settings.nodes.is_on:
        return []
    return ["spare", "peers"] if settings.nodes.listen else ["spare"]


class Beside:
    """One of these processes. Its name is that of its role."""

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.process: Process | None = None
        self.due = 0.0
        self.started_at = 0.0  # wall clock, for people
        self.since_boot_s = 0.0  # at the same moment
        self.restarts = -1
        self._role = role

    def keep(self, settings: Settings, log: MailLog) -> bool:
        """Starts it, and again when it has ended. Returns whether it has changed."""
        has_changed = False
        if self.process is not None and self.process.poll() is not None:
            how = f"exit status {self.process.returncode}"
            log.child_ended(self.name, self.process.pid, how)
            say(f"{self.name} (process {self.process.pid}) ended with {how}")
            self.due, self.process, has_changed = time.monotonic() + AGAIN_S, None, True
        if self.process is None and self.due <= time.monotonic():
            log.flush()  # or the copy would have its lines, too
            parent = os.getpid()
            try:
                self.process = forked(lambda: self._run(settings, parent))
            except OSError as error:  # no memory, no free process
                say(f"{self.name} can't be started: {error.strerror}; retrying every {BACKOFF_S_MAX:.0f} s")
                self.due = time.monotonic() + BACKOFF_S_MAX
                return has_changed
            self.started_at, self.since_boot_s = both_clocks()
            self.restarts += 1
            log.started(self.name, str(self.process.pid))
            has_changed = True
        return has_changed

    def _run(self, settings: Settings, parent: int) -> int:
        """Runs in the copy of the process of the node; returns its exit status."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        close_all_but(())
        if not end_with(parent):
            return 1
        setproctitle.setproctitle(f"{TITLE}{self.name} {settings.home}")
        self._role.load()(settings, parent)
        return 0
