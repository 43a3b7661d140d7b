"""Counts of TLS sessions with other servers, a UTC day at a time, and the files that they are kept in (RFC 8460).

Each deliverer process counts in memory and writes the whole count of its day into a file of its own: ``DAY.TOKEN.jsonl``,
with an array of a number and a ``Session`` in each line. A file is replaced at once, by a thread, and not synced. A clock
that is set back over midnight begins another file of the day, with bounds of its own.

Laws
- A kill costs at most the counts since the last write, and never mail: an error here is reported and goes no further.
- A process keeps at most ``kinds_max`` different sessions of a day, in at most ``bytes_max`` bytes, of which one domain
  has a tenth at most, so that the policy of a domain, which may be long, does not take the place of others.
  Others are not counted, which is reported once a day for each of these reasons.
- The files of a day add up, in any order: no process reads or writes the file of another.
- A reader leaves out what it cannot read as a file, says so, and waits for nothing: deliverers may put anything there.

Keeps law: tls-counts-are-bounded (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec

__all__ = [
    "Session", "SessionCounts", "counted_days", "counted_domains", "day_at", "day_end", "read_day", "remove_before",
]  # fmt: skip

UNFINISHED_S_MAX = 86_400.0  # a write takes less
FILE_BYTES_MAX = 256 << 20  # the most that ``bytes_max`` may be
LINE_BYTES_MAX = 1 << 20  # a policy of MTA-STS has 64 kB at most, and is in a line as its text and as its hosts
DOMAIN_SHARE = 10
NUMBER_MAX = 10**9  # a line is reckoned with it, so that it does not outgrow its room
_OF_US = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # for a moment: the file is not to blame
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


class _Domain(msgspec.Struct):
    """The part of a session that says whether the rest is read."""

    domain: str


class SessionCounts:
    """Counts the sessions of one process. ``wall`` is the wall clock; ``complain`` gets the reason of what is not counted."""

    def __init__(
        self,
        directory: Path,
        kinds_max: int,
        bytes_max: int,
        write_s: float,
        wall: Callable[[], float],
        complain: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._kinds_max = kinds_max
        self._bytes_max = bytes_max
        self._write_s = write_s
        self._wall = wall
        self._complain = complain
        self._token = secrets.token_hex(8)
        self._timer: asyncio.TimerHandle | None = None
        self._unwritten: dict[str, list[tuple[Session, int]]] = {}  # by name of the file
        self._writing: asyncio.Task[None] | None = None
        self._begin(None)

    def _begin(self, day: date | None) -> None:
        self._day = day
        self._name = f"{day}.{secrets.token_hex(8)}.jsonl"  # a new one: the day may have begun before
        self._counts: dict[Session, int] = {}
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()  # by domain
        self._said: set[str] = set()  # kinds of complaints

    def count(self, session: Session) -> None:
        """Counts one session of now."""
        day = day_at(self._wall())
        if day != self._day:
            if self._timer is not None:
                self.write()
            self._begin(day)
        number = self._counts.get(session, 0)
        if not number and not self._has_room(session):
            return
        self._counts[session] = number + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._write_s, self.write)

    def write(self) -> asyncio.Task[None]:
        """Begins to write what is counted of the day; returns the task that ends when everything is written."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._day is not None:
            self._unwritten[self._name] = list(self._counts.items())
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        return self._writing

    async def _write_all(self) -> None:
        while self._unwritten:  # one at a time: all have the same name until they are complete
            name = min(self._unwritten)
            counts = self._unwritten.pop(name)
            try:
                await asyncio.to_thread(self._replace, name, counts)
                self._said.discard("disk")
            except OSError as error:
                self._report("disk", f"{self._directory}: {error.strerror}")
            except Exception as error:  # no thread: the counts of today are written with the next
                self._report("disk", f"{self._directory}: {error!r}")

    def _replace(self, name: str, counts: list[tuple[Session, int]]) -> None:
        """Writes a new file in place of the last of this name. Called in a thread. Raises OSError."""
        new = self._directory / f".{self._token}"
        encode = msgspec.json.encode
        self._directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        with open(descriptor, "wb") as file:
            file.writelines(encode((number, session)) + b"\n" for session, number in counts)
        os.replace(new, self._directory / name)

    def _has_room(self, session: Session) -> bool:
        """Takes the room of a kind of session that is new today; returns whether there is any, and reports it if not."""
        if len(self._counts) >= self._kinds_max:
            self._report(
                "kinds", f"more than {self._kinds_max} kinds of sessions on {self._day}: others are not counted"
            )
            return False
        domain, size = session.domain, len(msgspec.json.encode((NUMBER_MAX, session))) + 1
        if self._bytes + size > self._bytes_max:
            self._report(
                "bytes", f"more than {self._bytes_max} bytes of sessions on {self._day}: others are not counted"
            )
            return False
        if size > LINE_BYTES_MAX:
            self._report("line", f"a session with {domain} has more than {LINE_BYTES_MAX} bytes: it is not counted")
            return False
        if self._bytes_of[domain] + size > self._bytes_max // DOMAIN_SHARE:
            why = f"more than {1 / DOMAIN_SHARE:.0%} of {self._bytes_max} bytes of sessions on {self._day} are of {domain}"
            self._report("domain", f"{why}: others of it are not counted")
            return False
        self._bytes += size
        self._bytes_of[domain] += size
        return True

    def _report(self, kind: str, why: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
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


def counted_domains(directory: Path, day: date, complain: Callable[[str], None] | None = None) -> set[str]:
    """Returns the domains that have sessions on a day. ``complain`` gets the reason of what is left out. Raises OSError."""
    decode = msgspec.json.Decoder(tuple[int, _Domain]).decode
    domains = set()
    for line in _lines(directory, day, complain):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            domains.add(decode(line)[1].domain)
    return domains


def read_day(
    directory: Path, day: date, only: Container[str] | None = None, complain: Callable[[str], None] | None = None
) -> dict[str, Counter[Session]]:
    """Returns the sessions of a day by domain, of the domains in ``only`` (None: of all). Raises OSError.

    Files and lines that cannot be read are left out; ``complain`` gets the reason for a file.
    """
    domains: dict[str, Counter[Session]] = {}
    decode = msgspec.json.Decoder(tuple[int, Session]).decode
    begin = msgspec.json.Decoder(tuple[int, _Domain]).decode
    for line in _lines(directory, day, complain):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            if only is None or begin(line)[1].domain in only:
                number, session = decode(line)
                domains.setdefault(session.domain, Counter())[session] += number
    return domains


def _lines(directory: Path, day: date, complain: Callable[[str], None] | None) -> Iterator[bytes]:
    for path in sorted(directory.glob(f"{day}.*.jsonl")):
        if not _NAME.fullmatch(path.name):
            continue
        try:
            with open(path, "rb", opener=_open_file) as file:
                left = FILE_BYTES_MAX
                while left > 0 and (line := file.readline(LINE_BYTES_MAX)):
                    left -= len(line)
                    yield line
        except OSError as error:
            if error.errno in _OF_US:
                raise
            if complain is not None:
                complain(f"{path} is left out: {error.strerror}")


def _open_file(path: str, flags: int) -> int:
    """Opens a regular file, and waits for nothing. Raises OSError, also for what is none."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", path)


def remove_before(directory: Path, day: date, now: float, complain: Callable[[str], None]) -> None:
    """Removes the files of days before ``day``, and those of writes that were never completed. ``now``: wall clock.

    ``complain`` gets the reason of what cannot be removed.
    """
    for path in directory.iterdir():
        found = _NAME.fullmatch(path.name)
        try:
            if found is not None:
                is_old = found[1] < day.isoformat()
            else:
                is_old = bool(_UNFINISHED.fullmatch(path.name)) and path.lstat().st_mtime < now - UNFINISHED_S_MAX
            if is_old:
                path.unlink()
        except FileNotFoundError:
            pass  # a deliverer completed it in this moment
        except OSError as error:
            complain(f"{path} can't be removed: {error.strerror}")
