"""Asks the control socket for all that the metrics are made from: the answers that the portal asks for, too."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509

from mailcore.config.known_shards import known_shards, name_of
from mailcore.config.settings import Settings
from mailcore.config.shards import of_shard
from mailcore.control.client import ControlClient, ControlError, NotRunning
from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Disks, Processes
from mailcore.log.disk import Disk
from mailcore.manager_answers import Destinations, Size, State
from mailcore.metrics.exposition import Family, text_of
from mailcore.metrics.families import Answers, families
from mailcore.queue.exported import EXPORTED, UNEXPORTED, read_exported
from mailcore.queue.lanes import JOURNAL
from mailcore.traces.progress import Progress, behind, progress_directory, read_progress

__all__ = ["Asking", "certificates_of"]

R = TypeVar("R", Processes, State, Size, Destinations, Disks, AgesPart)
AGES_S = 60.0  # the ages are read from the lanes: not at each scrape
TIMEOUT_S = 5.0


class Asking:
    """Makes the text. Not for several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ages: AgesPart | None = None
        self._ages_at = float("-inf")

    def text(self, *, is_open: bool = False) -> str:
        """Returns the metrics as text, or as OpenMetrics. Raises NotRunning if there is no control process."""
        return text_of(self.families(), is_open=is_open)

    def families(self) -> list[Family]:
        """Returns the metrics. Raises NotRunning if there is no control process."""
        path = self._settings.node_run_directory / "control.sock"  # this may be the first of several shards
        with ControlClient(path, timeout_s=TIMEOUT_S, here=True) as control:
            processes = control.ask("processes", Processes)

            def ask(operation: str, result: type[R], arguments: dict[str, Any] | None = None) -> R | None:
                try:
                    return control.ask(operation, result, arguments)
                except NotRunning:
                    raise
                except ControlError:  # the manager is away, or is busy: what is not known is left out
                    return None

            state = ask("state", State)
            traced = self._traced()
            answers = Answers(
                processes=processes,
                state=state,
                size=ask("size", Size) if state is not None else None,
                destinations=ask("destinations", Destinations) if state is not None else None,
                disks=ask("disks", Disks),
                ages=self._aged(lambda: ask("ages", AgesPart)),
                export_lag_bytes=self._export_lag(state),
                export_lag_bytes_max=self._settings.export.lag_bytes_max if self._settings.export.enabled else None,
                certificates=certificates_of(self._settings),
                traces=traced,
                traces_lag_bytes=behind(_ends(state), traced) if state is not None and traced is not None else None,
            )
        return families(answers, time.time(), self._settings.metrics.destinations_max)

    def _export_lag(self, state: State | None) -> int | None:
        """Returns the bytes that are not exported; None if it is not known, or nothing is exported."""
        if state is None or not self._settings.export.enabled:
            return None
        ends = {lane: end for lane, end in _ends(state).items() if lane.partition("@")[0] not in UNEXPORTED}
        at: Counter[str] = Counter()
        try:
            for shard, directory in self._events_directories():
                exported = read_exported(Disk(), str(directory / EXPORTED))
                for lane, each in exported.lanes.items() if exported is not None else ():
                    at[lane if lane == JOURNAL else name_of(lane, shard)] += each.at
        except (OSError, ValueError):
            return None
        return sum(max(0, end - at[lane]) for lane, end in ends.items())

    def _events_directories(self) -> list[tuple[int, Path]]:
        """Returns the directories of events of all shards that run. Raises OSError, ValueError."""
        known = known_shards(self._settings.node_run_directory)
        if not known:
            return [(0, self._settings.events_directory)]
        return [(each.number, of_shard(self._settings, each.number).events_directory) for each in known]

    def _traced(self) -> Progress | None:
        """Returns how far the traces are; None if that is not known, or there are none."""
        if not self._settings.traces.endpoint or known_shards(self._settings.node_run_directory):
            return None  # each of several shards has its own
        try:
            return read_progress(Disk(), progress_directory(self._settings))
        except (OSError, ValueError):
            return None

    def _aged(self, ask: Callable[[], AgesPart | None]) -> AgesPart | None:
        if time.monotonic() - self._ages_at >= AGES_S:
            self._ages_at = time.monotonic()
            self._ages = ask()
        return self._ages


def _ends(state: State) -> dict[str, int]:
    return {lane: at.end for lane, at in state.lanes.items()} | {JOURNAL: state.journal.end}


def certificates_of(settings: Settings) -> dict[str, float]:
    """Returns the end of each certificate of the receivers by its file; the path only where two files have one name."""
    files = list(dict.fromkeys(pair.certificate for pair in settings.certificate_pairs))
    names = Counter(map(os.path.basename, files))
    found = {}
    for file in files:
        name = os.path.basename(file)
        with contextlib.suppress(OSError, ValueError):  # the doctor says why
            with open(file, "rb") as opened:
                certificate = x509.load_pem_x509_certificate(opened.read(1 << 20))
            found[name if names[name] == 1 else file] = certificate.not_valid_after_utc.timestamp()
    return found
