"""Sends the reports about a UTC day that has ended. Runs in the control process, of which there is one.

For each domain of the counts: when it is due, its TXT record is looked up; without exactly one valid record the domain gets
no report. The report goes to each address of the record, by mail (``inject_begin`` and so on) or by HTTPS. An address that
fails is tried again on its own, after 5 minutes at first and 4 hours at most, until ``give_up_s`` after the report was due.

Laws
- What became of a report is written down before the next one is sent to that address; a restart reads it (``sent.py``).
- At most AT_ONCE domains are worked on at a time; nothing here keeps the control process waiting.
- A fault of one day, domain or address, foreseen or not, neither ends nor repeats the reports of others.
- While the queue takes no mail, reports by HTTPS are sent nonetheless.

Keeps law: tls-report-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from pathlib import Path

import msgspec

from mailcore.config.host_finder_of import host_finder_of
from mailcore.config.settings import Settings
from mailcore.config.tlsrpt import DIRECTORY, TlsRpt
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX, Nothing
from mailcore.faults import Code
from mailcore.maillog import MailLog
from mailcore.routing.mx import HostFinder
from mailcore.tls_sessions import Session, counted_days, counted_domains, day_at, day_end, read_day, remove_before
from mailcore.tlsrpt.letter import letter
from mailcore.tlsrpt.post import NotTaken, Post
from mailcore.tlsrpt.record import addresses_of, https_of, mailbox_of
from mailcore.tlsrpt.report import Report, made
from mailcore.tlsrpt.sent import DONE, SentReports

__all__ = ["Inject", "NotNow", "Sending", "due_at", "injection_into", "run"]

START_S = 2.0  # the control socket is served after the processes beside it are started
LOOK_S = 30.0
RETRY_S_MIN = 300.0
RETRY_S_MAX = 14_400.0
SETTLE_S = 60.0  # beside ``write_s``: a busy deliverer writes its last counts later
AT_ONCE = 10
FAULTS_MAX = 10  # lines of the log a day about files of counts, which deliverers may make without end

# Queues a message: sender, recipient, message with its header. Returns the queue ID. Raises NotTaken, NotNow.
Inject = Callable[[str, str, bytes], Awaitable[str]]


class NotNow(Exception):
    """Says that the queue takes no mail at the moment: the report is not to blame, and its time does not run."""


class _Later(msgspec.Struct):
    """When something that failed is tried again, and how often it failed."""

    at: float = 0.0
    tries: int = 0


class _Waiting(msgspec.Struct):
    """A report that has no outcome yet."""

    due: float
    post_at: float = 0.0  # when an HTTPS address is tried next; inf: none is left; 0: the addresses are not known
    later: dict[str, _Later] = {}  # by address; "": the report as a whole, with its TXT record


def due_at(settings: TlsRpt, day: date, domain: str) -> float:
    """Returns when the report of a domain is due: spread over ``spread_s``, and always the same for a day and a domain."""
    number = int.from_bytes(hashlib.sha256(f"{domain} {day}".encode()).digest()[:8], "big")
    return day_end(day) + settings.write_s + SETTLE_S + number % (settings.spread_s + 1)


class Sending:
    """Looks for reports that are due, and sends them. ``wall`` is the wall clock."""

    def __init__(
        self,
        settings: TlsRpt,
        home: Path,
        finder: HostFinder,
        post: Post,
        inject: Inject,
        log: MailLog,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._home = home
        self._directory = home / DIRECTORY
        self._finder = finder
        self._post = post
        self._inject = inject
        self._log = log
        self._wall = wall
        self._sent: SentReports | None = None
        self._plans: dict[date, dict[str, _Waiting]] = {}
        self._tidied: date | None = None
        self._paused_until = 0.0
        self._complaint = ""
        self._faults: list[str] = []  # of files of counts; threads add to it
        self._logged: set[str] = set()  # faults that were logged today

    async def run(self) -> None:
        """Looks until it is cancelled."""
        await asyncio.sleep(START_S)
        while True:
            try:
                await self.look()
                self._complain("")
            except OSError as error:
                self._complain(str(error))
            except Exception as error:  # a bug must not end the control process, nor be silent
                self._complain(f"internal error: {error!r}")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Sends what is due now. Raises what went wrong with a day, after the last."""
        now = self._wall()
        if not self._directory.is_dir():
            return
        if self._sent is None:
            self._sent = await asyncio.to_thread(SentReports, self._home)
        today = day_at(now)
        oldest = today - timedelta(days=self._settings.keep_days)
        if self._tidied != today:
            await asyncio.to_thread(self._tidy, self._sent, oldest)
            self._tidied = today
            self._logged.clear()
        over = {
            day
            for day in counted_days(self._directory)
            if oldest <= day and day_end(day) + self._settings.write_s + SETTLE_S <= now
        }
        fault: Exception | None = None
        for day in sorted(over | self._plans.keys()):
            try:
                await self._send_day(self._sent, day, now)
            except Exception as error:  # the other days don't wait for this one
                fault = error
        self._log_faults()
        if fault is not None:
            raise fault

    async def _send_day(self, sent: SentReports, day: date, now: float) -> None:
        """Plans the reports of a day, if they are not, and sends those that are due. Raises OSError."""
        if day not in self._plans:
            domains = await asyncio.to_thread(counted_domains, self._directory, day, self._faults.append)
            self._plans[day] = self._plan(sent, day, domains)
        due = [domain for domain, waiting in self._plans[day].items() if waiting.due <= now]
        if due:
            sessions = await asyncio.to_thread(read_day, self._directory, day, set(due), self._faults.append)
            await self._send_all(sent, day, due, sessions)

    def _log_faults(self) -> None:
        """Logs what is wrong with files of counts, each fault once a day."""
        for why in self._faults:
            if why not in self._logged and len(self._logged) < FAULTS_MAX:
                self._logged.add(why)
                self._log.tls_counts_left_out(why)
        self._log.flush()
        self._faults.clear()

    def _tidy(self, sent: SentReports, oldest: date) -> None:
        remove_before(self._directory, oldest, self._wall(), self._faults.append)
        sent.forget_before(oldest)
        self._plans = {day: plan for day, plan in self._plans.items() if day >= oldest}

    def _plan(self, sent: SentReports, day: date, domains: set[str]) -> dict[str, _Waiting]:
        return {
            domain: _Waiting(due_at(self._settings, day, domain))
            for domain in sorted(domains)
            if (str(day), domain, DONE) not in sent.outcomes
        }

    async def _send_all(
        self, sent: SentReports, day: date, due: list[str], sessions: dict[str, Counter[Session]]
    ) -> None:
        """Sends the reports of these domains. Raises what went wrong with the list of what was sent, after the last."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def send(domain: str) -> None:
            async with slots:
                if self._wall() < min(self._paused_until, self._plans[day][domain].post_at):
                    return  # only mail is left of it
                try:
                    await self._send(sent, day, domain, sessions.get(domain, Counter()))
                except OSError:  # of the list of what was sent
                    raise
                except Exception as error:  # a bug, perhaps with what this domain publishes
                    await self._put_off(sent, day, domain, f"internal error: {error!r}")

        results = await asyncio.gather(*(send(domain) for domain in due), return_exceptions=True)
        for result in results:
            if result is not None:
                raise result

    async def _send(self, sent: SentReports, day: date, domain: str, sessions: Counter[Session]) -> None:
        """Sends the report of a domain to each of its addresses that has no outcome yet."""
        texts, _, failed = await self._finder.texts(f"_smtp._tls.{domain}")
        if failed:
            await self._put_off(sent, day, domain, f"the TXT record of _smtp._tls.{domain} can't be looked up")
            return
        addresses = [each for each in addresses_of(texts) if mailbox_of(each) or self._settings.https]
        report = made(domain, day, sessions, self._settings.sender, self._settings.organization)
        left: dict[str, float] = {}
        for address in addresses:
            if not sessions or (str(day), domain, address) in sent.outcomes:
                continue
            at = await self._try(sent, day, report, address)
            if at is not None:
                left[address] = at
        if left:
            waiting = self._plans[day][domain]
            waiting.due = min(left.values())
            waiting.post_at = min((at for each, at in left.items() if not mailbox_of(each)), default=math.inf)
        else:
            await self._finish(sent, day, domain, "done" if addresses else "does not take part")

    async def _try(self, sent: SentReports, day: date, report: Report, address: str) -> float | None:
        """Sends a report to one address, unless it must wait. Returns when it is to be tried again; None: no more."""
        now, later = self._wall(), self._plans[day][report.domain].later.setdefault(address, _Later())
        if now < later.at:
            return later.at
        if mailbox_of(address) and now < self._paused_until:
            return self._paused_until
        try:
            outcome = await self._deliver(report, address)
        except NotNow:
            self._paused_until = self._wall() + LOOK_S
            return self._paused_until
        except NotTaken as error:
            return None if await self._failed(sent, day, report.domain, address, str(error)) else later.at
        self._log.tls_report_sent(report.domain, str(day), address, report.id, outcome)
        await self._note(sent, day, report.domain, address, outcome or "posted")
        return None

    async def _put_off(self, sent: SentReports, day: date, domain: str, why: str) -> None:
        """Notes a fault that leaves the whole report of a domain for later, or gives it up."""
        if await self._failed(sent, day, domain, "", why):
            await self._finish(sent, day, domain, f"given up: {why}")
        elif waiting := self._plans[day].get(domain):
            waiting.due = waiting.later[""].at

    async def _finish(self, sent: SentReports, day: date, domain: str, outcome: str) -> None:
        self._plans[day].pop(domain, None)
        await self._note(sent, day, domain, DONE, outcome)

    async def _deliver(self, report: Report, address: str) -> str:
        """Returns the queue ID of the mail; "" for an address that was posted to. Raises NotTaken, NotNow."""
        recipient = mailbox_of(address)
        if recipient:
            sender = self._settings.sender
            return await self._inject(sender, recipient, letter(report, sender, recipient, self._wall()))
        target = https_of(address)
        assert target is not None
        await self._post.send(target, report.compressed)
        return ""

    async def _failed(self, sent: SentReports, day: date, domain: str, address: str, why: str) -> bool:
        """Logs a failure, which is tried again later; returns whether the report to this address is given up instead."""
        now = self._wall()
        given_up = now >= due_at(self._settings, day, domain) + self._settings.give_up_s
        if waiting := self._plans[day].get(domain):
            later = waiting.later.setdefault(address, _Later())
            later.at = now + min(RETRY_S_MIN * 2**later.tries, RETRY_S_MAX)
            later.tries += 1
        self._log.tls_report_failed(domain, str(day), address, why, given_up=given_up)
        self._log.flush()
        if given_up and address:
            await self._note(sent, day, domain, address, f"given up: {why}")
        return given_up

    async def _note(self, sent: SentReports, day: date, domain: str, address: str, outcome: str) -> None:
        self._log.flush()
        await asyncio.to_thread(sent.add, day, domain, address, outcome)

    def _complain(self, why: str) -> None:
        """Logs a trouble once, until it ends or changes."""
        if why and why != self._complaint:
            self._log.tls_reports_stopped(why)
            self._log.flush()
        self._complaint = why


def injection_into(socket_path: Path) -> Inject:
    """Returns what queues a message over the control socket, one at a time."""
    one_at_a_time = asyncio.Lock()

    async def inject(sender: str, recipient: str, message: bytes) -> str:
        # No rewriting: the addresses are final. It is asked for like any client's, so the answer comes after the sync.
        begin = {"sender": sender, "recipients": [recipient], "rewrite": False}
        async with one_at_a_time, AsyncControlClient(socket_path) as control:
            try:
                await control.ask("inject_begin", Injected, begin, why="TLS report")
                for start in range(0, len(message), CHUNK_BYTES_MAX):
                    await control.ask("inject_data", Nothing, {"data": message[start : start + CHUNK_BYTES_MAX]})
                return (await control.ask("inject_end", Injected, why="TLS report")).queue_id
            except ControlError as error:
                if error.code in (Code.UNAVAILABLE, Code.BUSY):
                    raise NotNow(str(error)) from None
                raise NotTaken(str(error)) from None  # OUTCOME_UNKNOWN too: it is sent again with the same Report-ID

    return inject


async def run(settings: Settings) -> None:
    """Sends reports until it is cancelled. ``settings.tlsrpt.is_on``."""
    finder = host_finder_of(settings, time.monotonic)
    post = Post(finder, settings.tls.ca_file)
    inject = injection_into(settings.run_directory / "control.sock")
    log = MailLog(settings.log_directory)
    await Sending(settings.tlsrpt, settings.home, finder, post, inject, log, time.time).run()
