"""The whole appliance on a faked clock (libfaketime, Debian's package faketime), which can be set while it runs.

Only the wall clock is faked, and with it the times of files; the monotonic clock is real.
"""

from __future__ import annotations

import glob
import os
import subprocess
import time
from pathlib import Path

from tests.end_to_end.appliance import COMMAND
from tests.running.running_core import RunningCore, Sections

__all__ = ["Clock", "TimedCore"]

LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"
# Python sleeps until an instant of the monotonic clock, for which this library answers EINVAL. Every Python reads this first.
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"


class Clock:
    """Sets the time of the appliance: an offset in a file, which libfaketime reads each time the clock is read."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._moves: list[tuple[float, float]] = []  # since when, in real time; offset

    def set(self, at: float) -> None:
        began = time.time()
        new = self.path.with_suffix(".new")
        new.write_text(f"{at - began:+.6f}\n")
        new.replace(self.path)
        self._moves.append((began, at - began))

    def now(self) -> float:
        return self.of(time.time())

    def of(self, real: float) -> float:
        return real + next(offset for since, offset in reversed(self._moves) if since <= real)


class TimedCore(RunningCore):
    """Runs a core on a faked clock."""

    def __init__(self, directory: Path, routes: dict[str, str], sections: Sections, clock: Clock) -> None:
        super().__init__(directory, routes, sections)
        (self._library,) = glob.glob(LIBRARY)
        (clock.path.parent / "sitecustomize.py").write_text(SLEEP)
        self.clock = clock

    def launch(self) -> None:
        faked = {
            "LD_PRELOAD": self._library, "FAKETIME_TIMESTAMP_FILE": str(self.clock.path), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join([str(self.clock.path.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }  # fmt: skip
        command = [str(COMMAND), "mailcore", "--config", str(self.config)]
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, env={**os.environ, **faked}
            )
