"""Counts of TLS sessions with other servers, a UTC day at a time, and the files that they are kept in (RFC 8460).

Each deliverer process counts in memory and writes the whole count of its day into a file of its own: ``DAY.TOKEN.jsonl``,
with an array of a number and a ``Session`` in each line. A file is replaced at once and not synced.

Laws
- A kill costs at most the counts since the last write, and never mail: an error here is reported and goes no further.
- A process keeps at most ``kinds_max`` different sessions of a day; others are not counted, which is reported once a day.
- The files of a day add up, in any order: no process reads or writes the file of another.

Keeps law: tls-counts-are-bounded (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

__all__ = ["Session", "SessionCounts", "counted_days", "day_at", "day_end", "read_day", "remove_before"]

UNFINISHED_S_MAX = 86_400.0  # a write takes less
FILE_BYTES_MAX = 256 << 20  # a file of a hundred thousand kinds has less
_NAME = re.compile(r"(\d{4}-\d\d-\d\d)\.[0-9a-f]{16}\.jsonl")
_UNFINISHED = re.compile(r"\.[0-9a-f]{16}")


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """The common part of sessions of one kind: the policy it was made under, and how it ended."""

    domain: str  # of the next hop
    policy_type: str  # "tlsa", "sts" or "no-policy-found"
    policy_domain: str
    policy_strings: tuple[str, ...] = ()
    mx_hosts: tuple[str, ...] = ()
    result: str = ""  # a ``mailcore.tls_result.Result``; "": success, and the fields below are ""
    reason_code: str = ""
    sending_ip: str = ""
    mx_hostname: str = ""
    receiving_ip: str = ""


_LINE = tuple[int, Session]


class SessionCounts:
    """Counts the sessions of one process. ``wall`` is the wall clock; ``complain`` gets the reason of what is not counted."""

    def __init__(
        self,
        directory: Path,
        kinds_max: int,
        write_s: float,
        wall: Callable[[], float],
        complain: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._kinds_max = kinds_max
        self._write_s = write_s
        self._wall = wall
        self._complain = complain
        self._complaint = ""
        self._token = secrets.token_hex(8)
        self._day: date | None = None
        self._counts: Counter[Session] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def count(self, session: Session) -> None:
        """Counts one session of now."""
        day = day_at(self._wall())
        if day != self._day:
            if self._timer is not None:
                self.write()
            self._day = day
            self._counts.clear()
        if session not in self._counts and len(self._counts) >= self._kinds_max:
            self._report(f"more than {self._kinds_max} kinds of sessions on {day}: others are not counted")
            return
        self._counts[session] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._write_s, self.write)

    def write(self) -> None:
        """Writes what is counted of the day."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        encode = msgspec.json.encode
        content = b"".join(encode((number, session)) + b"\n" for session, number in self._counts.items())
        new = self._directory / f".{self._token}"
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
            with open(descriptor, "wb") as file:
                file.write(content)
            os.replace(new, self._directory / f"{self._day}.{self._token}.jsonl")
        except OSError as error:
            self._report(f"{self._directory}: {error.strerror}")

    def _report(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            self._complain(why)


def day_at(now: float) -> date:
    """Returns the UTC day of a time."""
    return datetime.fromtimestamp(now, UTC).date()


def day_end(day: date) -> float:
    """Returns the time at which a UTC day has ended."""
    return datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC).timestamp()


def counted_days(directory: Path) -> list[date]:
    """Returns the days that have files, the oldest first."""
    days = set()
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if found := _NAME.fullmatch(name):
                with contextlib.suppress(ValueError):
                    days.add(date.fromisoformat(found[1]))
    return sorted(days)


def read_day(directory: Path, day: date) -> dict[str, Counter[Session]]:
    """Returns the sessions of a day by domain. Lines that cannot be read are left out. Raises OSError."""
    domains: dict[str, Counter[Session]] = {}
    decode = msgspec.json.Decoder(_LINE).decode
    for path in sorted(directory.glob(f"{day}.*.jsonl")):
        if not _NAME.fullmatch(path.name):
            continue
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX)
        for line in content.splitlines():
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                number, session = decode(line)
                domains.setdefault(session.domain, Counter())[session] += number
    return domains


def remove_before(directory: Path, day: date, now: float) -> None:
    """Removes the files of days before ``day``, and those of writes that were never completed. ``now``: wall clock."""
    for path in directory.iterdir():
        found = _NAME.fullmatch(path.name)
        with contextlib.suppress(OSError):
            if found is not None:
                is_old = found[1] < day.isoformat()
            else:
                is_old = bool(_UNFINISHED.fullmatch(path.name)) and path.lstat().st_mtime < now - UNFINISHED_S_MAX
            if is_old:
                path.unlink()
