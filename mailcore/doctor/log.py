"""Log: what went wrong within the last day, by kind, as mail.jsonl has it. Read from its end, bounded in bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.doctor.finding import Finding, State, good, not_known
from mailcore.doctor.host import Patient

__all__ = ["look"]

DAY_S = 86_400
BLOCK_BYTES = 1 << 20
READ_BYTES_MAX = 64 << 20  # half a second, or some on a busy host; at 1 kB a message 64 000 of them
FIELD_CHARACTERS = 160


class Kind(NamedTuple):
    state: State
    what: str
    remedy: str


_BAD, _WARN = State.BAD, State.WARN
KINDS = {
    "failed": Kind(
        _BAD, "a process ended itself for what it could not mend", "Read the lines with 'fatal' in mail.log."
    ),
    "record_set_aside": Kind(
        _BAD, "damaged records", "Check disk and memory of this host; the file named is kept as it is."
    ),
    "sync_failed": Kind(
        _BAD, "syncs failed", "Look into the kernel's log: the disk loses writes; move the queue to another."
    ),
    "child_ended": Kind(
        _WARN, "processes ended and were started again", "See how they ended; SIGKILL points to memory."
    ),
    "disk_full": Kind(_WARN, "the disk was full, and new mail got 452", "Make room, or lower [queue] reserve_bytes."),
    "stopped_accepting": Kind(_WARN, "no mail was accepted", "Read why in mail.log; see disk."),
    "accepting_paused": Kind(_WARN, "no connection could be accepted", "Raise the limits on descriptors and memory."),
    "lane_lags": Kind(_WARN, "the manager did not keep up", "See lag; look what fills the active set."),
    "session_failed": Kind(_WARN, "sessions failed by a fault", "Please report it with its lines in mail.log."),
    "refusals_not_recorded": Kind(
        _WARN, "more refusals a second than are recorded", "See who is refused so often: [relay]."
    ),
    "lines_lost": Kind(_WARN, "lines of the log were lost", "Make room where log_directory is."),
}
_MARKS = tuple(f'"event":"{name}"'.encode() for name in KINDS)


def look(patient: Patient) -> Iterator[Finding]:
    path = patient.settings.log_directory / "mail.jsonl"
    files = [each for each in (path, path.with_name("mail.jsonl.1")) if each.exists()]
    if not files:
        yield not_known("mail.jsonl", f"there is none in {path.parent}")
        return
    since = patient.wall() - DAY_S
    counts: dict[str, int] = {}
    last: dict[str, dict[str, Any]] = {}
    reached = False
    for file in files:
        if not reached:
            reached = _read(file, since, counts, last)
    for name, kind in KINDS.items():
        if name in counts:
            newest = {key: value for key, value in last[name].items() if key not in ("event", "time", "pid")}
            told = ", ".join(f"{key} {str(value)[:FIELD_CHARACTERS]}" for key, value in newest.items())
            found = f"{counts[name]} times within a day, last: {told or 'no more is told'}"
            figures = {"count": counts[name], "last": last[name]}
            yield Finding(what=kind.what, state=kind.state, found=found, remedy=kind.remedy, figures=figures)
    if not counts:
        yield good("mail.jsonl", "nothing went wrong within the last day" + ("" if reached else " that it still has"))


def _read(path: Path, since: float, counts: dict[str, int], last: dict[str, dict[str, Any]]) -> bool:
    """Counts backwards; True when it came to what is older."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        bottom = max(0, at - READ_BYTES_MAX)
        rest = b""  # the beginning of the line that the block before began
        while at > bottom:
            start = max(bottom, at - BLOCK_BYTES)
            file.seek(start)
            lines = (file.read(at - start) + rest).split(b"\n")
            rest, at = lines[0], start
            if at == bottom == 0:
                rest = b""
            else:
                del lines[0]
            for line in reversed(lines):
                if any(mark in line for mark in _MARKS):
                    _count(line, since, counts, last)
            oldest = next((_time(line) for line in lines if line), None)
            if oldest is not None and oldest < since:
                return True
    return bottom > 0


def _count(line: bytes, since: float, counts: dict[str, int], last: dict[str, dict[str, Any]]) -> None:
    """Of a line that may be torn, or not ours."""
    try:
        told = json.loads(line)
        name, at = told["event"], float(told["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if name in KINDS and at >= since:
        counts[name] = counts.get(name, 0) + int(told.get("count") or told.get("lines") or 1)
        last.setdefault(name, told)


def _time(line: bytes) -> float | None:
    try:
        return float(json.loads(line)["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
