"""Log: problems of the last 24 hours in mail.jsonl, by kind. Reads from the end, at most READ_BYTES_MAX."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.doctor.finding import Finding, State, good, not_known
from mailcore.doctor.host import Host

__all__ = ["look"]

DAY_S = 86_400
BLOCK_BYTES = 1 << 20
READ_BYTES_MAX = 64 << 20  # half a second, or some on a busy host; at 1 kB a message 64 000 of them
FIELD_CHARACTERS = 160


class Kind(NamedTuple):
    """A kind of problem: how its finding is named and graded, and the remedy."""

    state: State
    what: str
    remedy: str


_BAD, _WARN = State.BAD, State.WARN
KINDS = {
    "failed": Kind(_BAD, "processes stopped after a fatal error", "Read the lines with 'fatal' in mail.log."),
    "record_set_aside": Kind(
        _BAD, "damaged records", "Check the disk and memory of this host. Waypost keeps the file named here unchanged."
    ),
    "data_damaged": Kind(
        _BAD,
        "damaged messages, held",
        "Check the disk and memory. See each with waypost queue show; restore its file from a backup and release it, or return "
        "it to its sender with waypost queue bounce.",
    ),
    "positions_damaged": Kind(
        _WARN,
        "damaged restart positions",
        "No mail is lost. Check the disk and memory of this host; then remove restart.damaged from the queue directory.",
    ),
    "sync_failed": Kind(
        _BAD, "failed syncs", "The disk loses writes: check the kernel log and move the queue to another disk."
    ),
    "child_ended": Kind(_WARN, "process restarts", "See how each process ended; SIGKILL suggests that memory ran out."),
    "reload_refused": Kind(
        _WARN,
        "changed settings not in force",
        "Read the reason in mail.log, mend the file, and run waypost reload; a restart would refuse it, too.",
    ),
    "disk_full": Kind(
        _WARN, "disk full, new mail refused with 452", "Free disk space and inodes; see the findings on disk."
    ),
    "stopped_accepting": Kind(_WARN, "no mail accepted", "Read the reason in mail.log; see the findings on disk."),
    "accepting_paused": Kind(_WARN, "no connections accepted", "Raise the limits on file descriptors and memory."),
    "stress": Kind(
        _WARN,
        "many connections, slow clients were ended",
        "Look in mail.log who connects. If these are many good clients, raise [receiver] connections_max.",
    ),
    "lane_lags": Kind(
        _WARN, "manager behind the receivers", "See the findings on lag; find out which mail fills the active set."
    ),
    "session_failed": Kind(_WARN, "SMTP sessions failed by a bug", "Report a bug with these lines of mail.log."),
    "certificate_refused": Kind(
        _WARN, "certificates that cannot be used", "Read the reason in mail.log; see the findings on certificates."
    ),
    "users_refused": Kind(
        _WARN, "files of users with a fault", "Read the line and the reason in mail.log; see the findings on logins."
    ),
    "refusals_not_recorded": Kind(
        _WARN,
        "refusals not recorded",
        "Refusals exceed the recorded rate: find the clients in mail.log and check [relay].",
    ),
    "lines_lost": Kind(_WARN, "log lines lost", "Free space on the disk of log_directory."),
}
_MARKS = tuple(f'"event":"{name}"'.encode() for name in KINDS)


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each kind of problem that was logged in the last 24 hours."""
    path = host.settings.log_directory / "mail.jsonl"
    files = [each for each in (path, path.with_name("mail.jsonl.1")) if each.exists()]
    if not files:
        yield not_known(
            "mail.jsonl",
            f"not found in {path.parent}",
            "Check log_directory; the first start of Waypost makes the file.",
        )
        return
    since = host.wall() - DAY_S
    counts: dict[str, int] = {}
    last: dict[str, dict[str, Any]] = {}
    reached = False
    for file in files:
        if not reached:
            reached = _read(file, since, counts, last)
    for name, kind in KINDS.items():
        if name in counts:
            newest = {key: value for key, value in last[name].items() if key not in ("event", "time", "pid")}
            details = ", ".join(f"{key} {str(value)[:FIELD_CHARACTERS]}" for key, value in newest.items())
            found = f"{counts[name]} in 24 hours, last: {details or 'no details'}"
            figures = {"count": counts[name], "last": last[name]}
            yield Finding(what=kind.what, state=kind.state, found=found, remedy=kind.remedy, figures=figures)
    if not counts:
        yield good(
            "mail.jsonl", "no problems in the last 24 hours" + ("" if reached else ", as far as the log goes back")
        )


def _read(path: Path, since: float, counts: dict[str, int], last: dict[str, dict[str, Any]]) -> bool:
    """Counts lines from the end of the file. Returns True if it reached lines older than ``since``."""
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
    """Counts one line; ignores lines that are torn or have another format."""
    try:
        entry = json.loads(line)
        name, at = entry["event"], float(entry["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if name in KINDS and at >= since:
        counts[name] = counts.get(name, 0) + int(entry.get("count") or entry.get("lines") or 1)
        last.setdefault(name, entry)


def _time(line: bytes) -> float | None:
    try:
        return float(json.loads(line)["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
