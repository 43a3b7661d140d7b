"""Work of the process that watches, beside the watch: each has a thread, a connection and a log of its own.

A beat must be read at least every second. So what may be slow, hang or fail is in no turn of the watch: nothing that happens
here delays a takeover.

Keeps law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable
from threading import Thread

from mailcore.config.settings import Settings
from mailcore.faults import FaultError
from mailcore.maillog import MailLog

__all__ = ["Apart", "line_of"]

AGAIN_S = 1.0
BROKEN_S = 60.0  # after a fault of our own
SAID_S = 60.0  # the same reason is logged once in this time


class Apart:
    """Repeats ``work``, which returns after how many seconds it is to be done again. ``words`` begin a line of the log."""

    def __init__(self, name: str, words: str, work: Callable[[], float], settings: Settings) -> None:
        self._name = name
        self._words = words
        self._work = work
        self._settings = settings
        self._last, self._said_at = "", float("-inf")

    def start(self) -> None:
        """Begins."""
        Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        log = MailLog(self._settings.log_directory)
        while True:
            time.sleep(self._once(log))

    def _once(self, log: MailLog) -> float:
        try:
            pause_s = self._work()
        except Exception as error:  # it must not end the process, which watches the shards
            if not isinstance(error, FaultError | OSError):
                with contextlib.suppress(OSError):
                    traceback.print_exc()
                return BROKEN_S
            self._say(log, line_of(error))
            return AGAIN_S
        self._last = ""
        return pause_s

    def _say(self, log: MailLog, words: str) -> None:
        if words != self._last or time.monotonic() > self._said_at + SAID_S:
            self._last, self._said_at = words, time.monotonic()
            log.shard_waits(f"{self._words}: {words}")
            log.flush()


def line_of(error: Exception) -> str:
    """Returns what an error says."""
    return error.fault.message if isinstance(error, FaultError) else str(error)
