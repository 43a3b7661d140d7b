"""The receiver process: the SMTP server, its lane, and a connection to the manager.

Laws
- It accepts mail from its first milliseconds, whether or not any other process runs.
- Crash-only: nothing is to be shut down; what was acknowledged is on disk, what was not is the client's.

Keeps law: receiver-needs-no-manager (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import uvloop

from mailcore.authenticity.sender_check import Ask, Failed, SenderCheck
from mailcore.config.authenticity import Authenticity
from mailcore.config.cut_through import cut_through_transports
from mailcore.config.header_completion import HeaderCompletion
from mailcore.config.host_finder_of import host_finder_of
from mailcore.config.listeners import MX
from mailcore.config.open_rewriting import OpenRewriting, no_rewriting
from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.esmtp import EXTENSIONS, Extension
from mailcore.faults import FaultError
from mailcore.log.commit import GroupCommit
from mailcore.log.disk import Disk, Locked
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.timed_disk import TimedDisk
from mailcore.maillog import MailLog
from mailcore.queue.lanes import incoming
from mailcore.queue.named import named_end
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.reserved_time import NAME as IDS
from mailcore.queue.reserved_time import OF_CONTROL, ReservedFile, ReservedTime
from mailcore.queue.segment_time import segment_clock
from mailcore.queue.spool import DATA_AT
from mailcore.receiver.authentication import Authentication
from mailcore.receiver.certificates import Certificates
from mailcore.receiver.check import Checks
from mailcore.receiver.client_rates import ClientRates
from mailcore.receiver.cut_through import CutThrough
from mailcore.receiver.inline_room import InlineRoom
from mailcore.receiver.manager_link import MANAGER_SOCKET, ManagerLink
from mailcore.receiver.measuring import Measuring
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.reception import Reception
from mailcore.receiver.refusals import Allowance
from mailcore.receiver.server import Server
from mailcore.receiver.stored import ReceiverStores, open_or_refuse
from mailcore.routing.networks import ByNetwork
from mailcore.routing.reverse_names import ReverseNames
from mailcore.supervisor.ending import asked_to_end, end_at_once
from mailcore.supervisor.kept_pairs import KEPT, KeptPairs
from mailcore.supervisor.listen import listen
from mailcore.supervisor.pulse import beat
from mailcore.supervisor.service import handed_listeners
from mailcore.supervisor.shared_counts import COUNTS, Counts

__all__ = ["MakeChecks", "OpenStores", "Receiving", "main"]

# Returns the checks of recipients, with the files of [rewriting], if there are any; None if the settings have no check.
MakeChecks = Callable[[Settings, MailLog, asyncio.AbstractEventLoop, ThreadPoolExecutor, Any], Checks | None]

# Begins to write into the store that keeps the shard, and returns its parts; None if there is none.
OpenStores = Callable[[Settings, int], ReceiverStores | None]

# Opens the check of senders with its settings, our name, what asks the DNS, and what logs an exception.
OpenCheck = Callable[[Authenticity, str, Ask, Failed], SenderCheck]

SPOOL_THREADS = 8  # spool files written side by side; more would only wait for the same disk
FILES_RESERVED = 64  # for the lane, the log, the manager; the rest is for clients
FILES_PER_CLIENT = 2  # the socket, a spool file
FILES_FOR_MILTERS = 2  # the data as it came, a body that a milter sends
LISTEN_RETRY_S = 0.2  # a receiver that was killed may leave its port for a moment
LISTEN_TRIES = 25
LOOK_S = 0.5  # how often to look whether users or certificates changed; a change is in force within a second
LOGINS_LOGGED_S = 5.0  # failed logins a second in the log, after a burst
LOGINS_LOGGED_BURST = 200
RATES_LOGGED_S = 1.0  # lines a second about clients beyond their limits, after a burst; each refusal is logged as well
RATES_LOGGED_BURST = 50


class Receiving:
    """All parts of a receiver except the process itself. Raises Locked, OSError."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        loop: asyncio.AbstractEventLoop,
        *,
        disk: Disk | None = None,
        connections_max: int | None = None,
        extensions: Sequence[Extension] = EXTENSIONS,
        open_rewriting: OpenRewriting = no_rewriting,
        open_check: OpenCheck | None = None,
        make_checks: MakeChecks | None = None,
        stores: ReceiverStores | None = None,
    ) -> None:
        self._measuring = Measuring(loop) if settings.metrics.listen else None
        if disk is None:
            disk = Disk() if self._measuring is None else TimedDisk(self._measuring.syncs.observe)
        lane = incoming(number)
        directory = str(settings.queue_directory / lane)
        ids = os.path.join(directory, IDS)
        reserved = ReservedTime(
            ReservedFile(disk, ids) if stores is None or stores.reserved is None else stores.reserved
        )
        of_segments = [ids] if stores is None else [str(settings.queue_directory / OF_CONTROL)]
        self.log = MailLog(settings.log_directory)
        self.writer = LaneWriter(
            disk,
            directory,
            segment_bytes=settings.queue.segment_bytes,
            clock=segment_clock(time.time, disk, lambda: of_segments),
            salt=lambda: secrets.randbits(64),
            floor=named_end(disk, str(settings.queue_directory), lane),
            end_at=None if stores is None else stores.end_at,
            store=None if stores is None else stores.lane,
        )
        disk.make_directory(str(settings.spool_directory))
        self.commit = GroupCommit(self.writer, loop, settings.commit_delay_s)
        self.link = ManagerLink(settings.run_directory / MANAGER_SOCKET, number, lane, self.writer.durable, loop)
        self._threads = ThreadPoolExecutor(SPOOL_THREADS, "spool")
        shard = settings.shard or 0 if stores is None else stores.number
        self._ids = QueueIds(number, time.time, reserved, self._threads, shard=shard)
        self._ids.prepare()
        self.reception = Reception(
            settings,
            self.writer,
            self.commit,
            self._ids,
            self.link,
            self.log,
            loop,
            self._threads,
            stores=stores,
        )
        if cut_through_transports(settings.transports):
            self.reception.cut_through = cut_through = CutThrough(self.link)
            self.link.answered, self.link.lost = cut_through.answered, cut_through.lost
        self.reception.rewriting = open_rewriting(settings, self.log, self._threads)
        self.checks: Checks | None = None
        if make_checks is not None:
            self.checks = make_checks(settings, self.log, loop, self._threads, self.reception.rewriting)
        if self._measuring is not None:
            self.reception.refusals.counted = self._measuring.refused
        self.certificates = Certificates(settings.certificate_pairs, self.log, _kept_given())
        self._logins_logged = Allowance(LOGINS_LOGGED_S, LOGINS_LOGGED_BURST, loop.time())
        counts = Counts(_counts_given(), settings.auth.failure_time_s, time.monotonic, settings.clients.rate_time_s)
        self._rates_logged = Allowance(RATES_LOGGED_S, RATES_LOGGED_BURST, loop.time())
        rates: ClientRates | None = None
        if settings.clients.has_rates:
            rates = ClientRates(settings.clients, counts, self.log, lambda: self._rates_logged.taken(loop.time()))
        self.authentication: Authentication | None = None
        if any(each.auth != "off" for each in settings.all_listeners):
            self.authentication = Authentication(
                settings.auth,
                settings.users_file,
                counts,
                self.log,
                loop,
                self._threads,
                lambda: self._logins_logged.taken(loop.time()),
                [key.domain for key in settings.dkim],
            )
            self.authentication.start()
        hostname = settings.receiver.hostname or socket.gethostname()
        own_domain = settings.lenient.own_domain(hostname)
        self.server = Server(
            settings.receiver,
            RelayPolicy(settings.relay.networks, settings.relay.domains),
            self.reception,
            loop,
            hostname=hostname,
            inline_room=InlineRoom(settings.queue.inline_limit, settings.queue.inline_memory_bytes),
            spool_data_at=DATA_AT,
            tls_context=self.certificates.context,
            connections_max=connections_max,
            extensions=extensions,
            authentication=self.authentication,
            clients=settings.clients,
            rates=rates,
            esmtp=settings.esmtp,
            lenient=settings.lenient,
            reverse_names=_reverse_names(settings, loop),
            milters=settings.milter,
            headers=self.reception.rewriting or HeaderCompletion(settings.rewriting, own_domain, hostname, self.log),
            client_keywords=_client_keywords(settings),
            sender_check=self._sender_check(settings, loop, open_check),
            checks=self.checks,
        )
        self._has_rules = bool(settings.listener)
        self._default_rule = replace(  # of a socket that was handed over
            MX, milters=settings.receiver.milters, discard_ehlo_keywords=settings.receiver.discard_ehlo_keywords
        )
        self._rules = {listen_address(each.address): each for each in settings.all_listeners}
        if self.authentication is not None:
            self.authentication.changed = self._users_changed
        self._looking: asyncio.TimerHandle | None = None
        watched = settings.certificate_pairs, self.authentication, settings.rewriting.files, self.checks
        if any(watched):
            self._looking = loop.call_later(LOOK_S, self._look)
        self._linking: asyncio.Task[None] | None = None
        self._loop = loop

    def _sender_check(
        self, settings: Settings, loop: asyncio.AbstractEventLoop, open_check: OpenCheck | None
    ) -> SenderCheck | None:
        """Returns the check of senders, which asks the deliverers' name servers; None if it is switched off."""
        if open_check is None or settings.authenticity.evaluate == "off":
            return None
        finder = host_finder_of(settings, loop.time)

        async def ask(name: str, kind: str) -> tuple[list[str], float, bool]:
            return await (finder.texts(name) if kind == "TXT" else finder.lookup(name, kind))

        hostname = settings.receiver.hostname or socket.gethostname()
        return open_check(settings.authenticity, hostname, ask, self.reception.session_failed)

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accepts connections on ``listeners``, each by its settings, and begins to look for the manager. Raises OSError."""
        for listener in listeners:
            address = listener.getsockname()[:2]
            rule = self._rules.get(address)
            if rule is None and self._has_rules:  # it may be one that must not take mail without TLS or a login
                raise OSError(f"no [[listener]] has the address {address[0]} and the port {address[1]} of this socket")
            self.server.start([listener], rule or self._default_rule)
        self._linking = self._loop.create_task(self.link.run())
        if self._measuring is not None:
            self._measuring.start(self.link)

    def _look(self) -> None:
        """Looks whether the files of certificates or users have changed."""
        self._looking = self._loop.call_later(LOOK_S, self._look)
        if self.certificates.look():
            self.server.set_tls(self.certificates.context)
        if self.reception.rewriting is not None:
            self.reception.rewriting.look()
        if self.checks is not None:
            self.checks.look()
        if self.authentication is not None:
            self.authentication.look()
            over, self._logins_logged.over = self._logins_logged.over, 0
            if over:
                self.log.refusals_not_recorded(over)
        self.log.flush()

    def _users_changed(self) -> None:
        assert self.authentication is not None
        self.server.set_mechanisms(self.authentication.users.mechanisms)

    async def end(self) -> None:
        """Lets what has begun come to its end; then nothing here is needed any more."""
        await self.server.end()
        with contextlib.suppress(LaneFailed, OSError):
            await self.commit.wait()  # records of refusals
        self.log.flush()

    def close(self) -> None:
        """Closes everything, for tests; the process itself just ends."""
        if self._looking is not None:
            self._looking.cancel()
        if self._measuring is not None:
            self._measuring.close()
        if self.authentication is not None:
            self.authentication.close()
        self.server.close()
        if self.checks is not None:
            self.checks.close()
        self.reception.close()
        if self._linking is not None:
            self._linking.cancel()
        self.commit.close()
        self._threads.shutdown()
        self.writer.close()
        self.log.close()


def _reverse_names(settings: Settings, loop: asyncio.AbstractEventLoop) -> ReverseNames | None:
    """Returns the names of clients, which ask the deliverers' name servers; None if they are switched off."""
    if not settings.clients.reverse_names:
        return None
    return ReverseNames(host_finder_of(settings, loop.time).lookup, loop, loop.time)


def _client_keywords(settings: Settings) -> ByNetwork[frozenset[str]] | None:
    """Returns the keywords that are not offered to some clients; None if there are none."""
    found = settings.smtpd_discard_ehlo_keywords
    return ByNetwork({network: frozenset(keywords) for network, keywords in found.items()}) if found else None


def _kept_given() -> KeptPairs:
    """Returns the certificates that all receivers keep; without a supervisor nothing is kept."""
    given = os.environ.pop(KEPT, "")
    return KeptPairs([int(each) for each in given.split(",")] if given else [])


def _counts_given() -> int | None:
    """Returns the descriptor of the counters that all receivers share; None if no supervisor made them."""
    given = os.environ.pop(COUNTS, "")
    return int(given) if given else None


def _raise_file_limit(settings: Settings) -> int:
    """Raises the limit of open files as far as allowed; returns for how many connections it is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    milters = max((len(each.milters) for each in settings.all_listeners), default=0)
    each = FILES_PER_CLIENT + (milters + FILES_FOR_MILTERS if milters else 0)
    return max(1, (hard - FILES_RESERVED) // each)


def _listen(endpoint: str) -> socket.socket:
    for _ in range(LISTEN_TRIES):
        try:
            return listen(endpoint)
        except OSError:
            time.sleep(LISTEN_RETRY_S)
    return listen(endpoint)


def main(
    open_rewriting: OpenRewriting,
    open_check: OpenCheck,
    make_checks: MakeChecks,
    open_stores: OpenStores,
    settings: Settings,
    number: int,
) -> None:
    """Runs the process. Returns only when it cannot start; any signal may end it at any time, END when it has nothing begun.

    ``open_check`` loads the check of senders, and is called only if it is on; ``make_checks`` loads those of recipients;
    ``open_stores`` waits for the database of a shard.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole process group; the supervisor reacts to it
    connections_max = _raise_file_limit(settings)
    handed = handed_listeners()

    async def serve() -> None:
        receiving = Receiving(
            settings,
            number,
            asyncio.get_running_loop(),
            connections_max=connections_max,
            open_rewriting=open_rewriting,
            open_check=open_check,
            make_checks=make_checks,
            stores=stores,
        )
        receiving.start(handed or [_listen(each.address) for each in settings.all_listeners])
        beat(asyncio.get_running_loop())
        await asked_to_end(asyncio.get_running_loop())
        await receiving.end()
        end_at_once()

    try:
        stores = open_or_refuse(lambda: open_stores(settings, number), handed) if settings.nodes.is_on else None
        uvloop.run(serve())
    except (FaultError, Locked, OSError) as error:
        sys.exit(f"waypost: receiver {number}: {error}")
