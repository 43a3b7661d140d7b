"""The processes of a node for the other nodes, beside its shards: one watches their shards, one passes questions on.

Both have the driver of the database and its threads; the process of the node, which forks, must not. One that sends no pulse
any more hangs: it is killed and started again, as other children are.
"""

from __future__ import annotations

import os
import signal
import time

import setproctitle

from mailcore.config.settings import Settings
from mailcore.maillog.maillog import MailLog
from mailcore.supervisor.forked import end_with
from mailcore.supervisor.pulse import PULSE, Pulse
from mailcore.supervisor.start import TITLE, Process, Role, close_all_but, forked
from mailcore.supervisor.supervisor import BACKOFF_S_MAX, both_clocks, say

__all__ = ["Beside", "beside_of"]

AGAIN_S = 1.0
# A step of the one that watches asks each server of the database, and Patroni, and waits for those that do not answer.
STEP_S = {"spare": 60.0}


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
        self.pulse: Pulse | None = None
        self.hung_s = 0.0  # it sent no pulse for this long and was killed; 0.0 if it was not
        self.due = 0.0
        self.started_at = 0.0  # wall clock, for people
        self.since_boot_s = 0.0  # at the same moment
        self.restarts = -1
        self._role = role

    def keep(self, settings: Settings, log: MailLog) -> bool:
        """Starts it, and again when it has ended. Returns whether it has changed."""
        has_changed = False
        if self.process is not None and self.process.poll() is None:
            self._feel(settings)
        if self.process is not None and self.process.poll() is not None:
            self._ended(self.process, log)
            has_changed = True
        if self.process is None and self.due <= time.monotonic():
            log.flush()  # or the copy would have its lines, too
            parent, pulse = os.getpid(), None
            try:
                pulse = Pulse()
                writer = pulse.writer
                self.process = forked(lambda: self._run(settings, parent, writer))
            except OSError as error:  # no memory, no free process or descriptor
                if pulse is not None:
                    pulse.close()
                say(f"{self.name} can't be started: {error.strerror}; retrying every {BACKOFF_S_MAX:.0f} s")
                self.due = time.monotonic() + BACKOFF_S_MAX
                return has_changed
            pulse.started()
            self.pulse = pulse
            self.started_at, self.since_boot_s = both_clocks()
            self.restarts += 1
            log.started(self.name, str(self.process.pid))
            has_changed = True
        return has_changed

    def _feel(self, settings: Settings) -> None:
        """Kills it if it has sent no pulse for ``supervisor.silent_s``, or for as long as one of its steps may take."""
        if self.process is None or self.pulse is None or self.hung_s:
            return
        silent_s = self.pulse.silent_s()
        if silent_s > max(settings.supervisor.silent_s, STEP_S.get(self.name, 0.0)):
            self.hung_s = silent_s
            self.process.kill()

    def _ended(self, process: Process, log: MailLog) -> None:
        code = process.returncode
        assert code is not None
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if self.hung_s:
            how, self.hung_s = f"{how}, as it had hung for {self.hung_s:.0f} s", 0.0
        log.child_ended(self.name, process.pid, how)
        say(f"{self.name} (process {process.pid}) ended with {how}")
        if self.pulse is not None:
            self.pulse.close()
        self.due, self.process, self.pulse = time.monotonic() + AGAIN_S, None, None

    def _run(self, settings: Settings, parent: int, writer: int) -> int:
        """Runs in the copy of the process of the node; returns its exit status."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        close_all_but((writer,))
        os.environ[PULSE] = str(writer)
        if not end_with(parent):
            return 1
        setproctitle.setproctitle(f"{TITLE}{self.name} {settings.home}")
        self._role.load()(settings, parent)
        return 0
