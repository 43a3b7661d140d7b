"""The deliverer process: entries from the manager in, verdicts back. It reads data, writes nothing, and keeps nothing.

Laws:
- At most ``concurrency`` deliveries at once; a manager that sends more is not read from until there is room.
- Every entry is answered exactly once on the connection it came on. When that connection is lost, its deliveries are
  cancelled at once: no final dot is sent any more, and the manager counts them as unknown.
- Neither a broken message nor a bug in here stops the other deliveries: that entry is deferred, and the log has why.
- Crash-only: there is nothing to save. Without a manager it waits and tries again.
- When the lease that the manager names is over, it delivers nothing (law: no-dot-after-lease).

Keeps law: one-answer-per-entry (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec
import uvloop

from mailcore.config.arc import Arc
from mailcore.config.host_finder_of import host_finder_of, our_name
from mailcore.config.protocol import chunked_transports, conversions, line_limits
from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.deliverer.client import Client
from mailcore.deliverer.conversion import Conversion
from mailcore.deliverer.deadline import OVER, Deadline
from mailcore.deliverer.gate import LATE, Gate
from mailcore.deliverer.keyword_masks import masks_of
from mailcore.deliverer.long_lines import LineLimits, with_length
from mailcore.deliverer.message_data import DamagedError, DataError, DataFiles
from mailcore.deliverer.mta_sts import StsPolicies
from mailcore.deliverer.shared_ends import SHARE_OVER
from mailcore.deliverer.signing import Signing
from mailcore.deliverer.sts_fetch import PolicyFetcher
from mailcore.envelope import Status, Verdict
from mailcore.esmtp import EXTENSIONS, Extension
from mailcore.exhaustion import is_exhausted
from mailcore.frames import (
    Deliver,
    Delivered,
    Ending,
    Fate,
    FrameDecoder,
    FrameWriter,
    Hello,
    Lease,
    PassedOn,
    PassOn,
    Shares,
    SharesKept,
    WireError,
)
from mailcore.log.disk import Disk
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.supervisor.ending import asked_to_end, end_at_once
from mailcore.supervisor.listen import fitting_path
from mailcore.supervisor.pulse import beat
from mailcore.tls.policy import Policies

if TYPE_CHECKING:
    from mailcore.deliverer.sealing import Sealing
    from mailcore.deliverer.tls_counting import TlsCounting

__all__ = ["MANAGER_SOCKET", "Deliverer", "OpenCounting", "OpenSealing", "main"]

# Opens what seals mail: with its settings, the identifier of our results, what logs a bad key, a monotonic and a wall clock.
OpenSealing = Callable[[Arc, str, Callable[[str, str], None], Callable[[], float], Callable[[], float]], "Sealing"]
# Opens what counts sessions for reports about TLS, None if these are off: with MTA-STS policies, and what logs a loss.
OpenCounting = Callable[[Settings, StsPolicies | None, Callable[[str], None]], "TlsCounting | None"]

MANAGER_SOCKET = "manager.sock"  # in Settings.run_directory
RETRY_S_MIN = 0.05  # a restarted manager is back in less than a second
RETRY_S_MAX = 1.0
ENDING_LOOK_S = 0.01  # between two looks for deliveries that are still to end
LEVELS_MAX = 500  # characters of the tables with a level of DANE that a log line has

_log = logging.getLogger("waypost.deliverer")


class ManagerLink(asyncio.Protocol):
    """One connection to the manager, and the deliveries that came over it."""

    def __init__(self, deliverer: Deliverer, loop: asyncio.AbstractEventLoop) -> None:
        self._deliverer = deliverer
        self._loop = loop
        self._decoder = FrameDecoder()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[Deliver | PassOn] = deque()  # more than agreed; reading is paused while there are any
        self._transport: asyncio.Transport | None = None
        self._writer: FrameWriter | None = None
        self.lost: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduces the deliverer to the manager."""
        transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own
        self._transport = transport
        self._writer = FrameWriter(transport, self._loop)
        self._writer.send(Hello("deliverer", self._deliverer.number, os.getpid(), self._deliverer.concurrency))

    def data_received(self, data: bytes) -> None:
        """Starts a delivery for each entry; drops the connection at a frame that is not one."""
        assert self._transport is not None  # made before it received
        try:
            for frame in self._decoder.feed(data):
                if isinstance(frame, Lease):
                    self._deliverer.deadline.until = frame.until
                    continue
                if isinstance(frame, Shares):
                    self._answer_shares(frame)
                    continue
                if not isinstance(frame, Deliver | PassOn):
                    raise WireError(f"{type(frame).__name__} is not for a deliverer")
                work = frame if isinstance(frame, Deliver) else frame.work
                if work.shared:
                    self._deliverer.ends.given(work.shared, work.share_until)
                if len(self._tasks) < self._deliverer.concurrency:
                    self._start(frame)
                else:
                    self._waiting.append(frame)
                    self._transport.pause_reading()
        except WireError as error:
            log_event(logging.ERROR, "manager_frame_bad", reason=str(error))
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels every delivery that came over this connection."""
        self._writer = None
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        self._deliverer.ends.lost()
        if not self.lost.done():
            self.lost.set_result(None)

    async def end(self) -> None:
        """Asks the manager for nothing more; returns when every delivery has its answer."""
        if self._writer is not None:
            self._writer.send(Ending())
        await asyncio.sleep(ENDING_LOOK_S)  # answers of this turn are on their way then
        while self._tasks or self._waiting or self._is_writing:  # noqa: ASYNC110 - rare, and no cost for each delivery
            await asyncio.sleep(ENDING_LOOK_S)

    @property
    def _is_writing(self) -> bool:
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def _start(self, work: Deliver | PassOn) -> None:
        task = self._loop.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _run(self, work: Deliver | PassOn) -> None:
        result: Delivered | PassedOn
        if isinstance(work, Deliver):
            result = await self._deliverer.deliver(work)
        else:
            result = await self._deliverer.pass_on(work)
        if self._writer is not None:
            self._writer.send(self._with_resting(work, result))

    def _with_resting(self, work: Deliver | PassOn, result: Delivered | PassedOn) -> Delivered | PassedOn:
        """Adds the connections that rest now, if several queues share the limit of the destination."""
        if isinstance(work, PassOn) and isinstance(result, PassedOn):
            if not work.work.shared:
                return result
            delivered = self._with_resting(work.work, result.result)
            assert isinstance(delivered, Delivered)
            return msgspec.structs.replace(result, result=delivered)
        assert isinstance(work, Deliver)
        resting = self._deliverer.resting(work.shared) if work.shared else 0
        return msgspec.structs.replace(result, resting=resting) if resting else result

    def _answer_shares(self, frame: Shares) -> None:
        assert self._writer is not None  # made before it received
        self._writer.send(SharesKept(frame.number, self._deliverer.ends.take(frame)))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting:
            self._start(self._waiting.popleft())
            if not self._waiting and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()


class Deliverer:
    """Holds what lives as long as the process: the client with its connections, and the open files."""

    def __init__(
        self,
        settings: Settings,
        number: int,
        loop: asyncio.AbstractEventLoop,
        extensions: Sequence[Extension] = EXTENSIONS,
        open_sealing: OpenSealing | None = None,
        open_counting: OpenCounting | None = None,
    ) -> None:
        limits = settings.deliverer
        self.number = number
        self.concurrency = limits.concurrency
        self._socket_path = settings.run_directory / MANAGER_SOCKET
        self._loop = loop
        self.deadline = Deadline()
        self._files = DataFiles(Disk(), loop, self.deadline)
        own_addresses = OwnAddresses(listen_address(each.address) for each in settings.all_listeners)
        self._finder = finder = host_finder_of(settings, loop.time, own_addresses)
        self._dane_levels = settings.dane_levels
        self._looking: asyncio.Task[None] | None = None
        self._link: ManagerLink | None = None
        policies = Policies(settings.tls_policy, limits.port, settings.tls.ca_file)
        sts = None
        if settings.sts_directory is not None:
            fetcher = PolicyFetcher(finder, settings.tls.ca_file, settings.tls.sts_timeout_s, complain=_cas_unusable)
            kept_max = settings.tls.sts_policies_max
            sts = StsPolicies(settings.sts_directory, finder, fetcher, kept_max, time.time, loop.time, _not_kept)
        lmtp = settings.lmtp_transports
        self._signing = Signing(settings.dkim, _key_unusable, loop.time, time.time)
        self._lines = LineLimits(line_limits(settings.transports))
        self._client = Client(
            limits,
            finder,
            our_name(settings),
            loop,
            extensions,
            policies,
            settings.client_auth,
            sts,
            lmtp,
            masks_of(settings),
            Conversion(conversions(settings.transports), self._signing, self._lines),
            open_counting(settings, sts, _not_counted) if open_counting is not None else None,
            chunked_transports(settings.transports),
            _cas_unusable,
        )
        self.ends = self._client.ends
        self._sealing: Sealing | None = None
        if open_sealing is not None and settings.arc.domain:
            authserv_id = settings.authenticity.authserv_id or settings.receiver.hostname or socket.gethostname()
            self._sealing = open_sealing(settings.arc, authserv_id, _key_unusable, loop.time, time.time)
        self._unsealed = lmtp

    async def run(self) -> None:
        """Serves a manager, and waits for the next when it is gone. Never returns."""
        wait_s = RETRY_S_MIN
        if self._dane_levels:
            self._looking = self._loop.create_task(self._look_for_validation())  # kept: a loop holds tasks weakly
        while True:
            try:
                link = await self._connect()
            except OSError as error:
                if wait_s == RETRY_S_MIN:
                    log_event(logging.WARNING, "manager_away", path=str(self._socket_path), reason=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                continue
            wait_s = RETRY_S_MIN
            self._link = link
            await link.lost
            self._link = None
            log_event(logging.WARNING, "manager_lost", path=str(self._socket_path))
            await asyncio.sleep(RETRY_S_MIN)

    async def end(self) -> None:
        """Returns when nothing is being delivered; the manager gives nothing more meanwhile."""
        if self._link is not None:
            await self._link.end()

    async def _look_for_validation(self) -> None:
        """Logs once that the level dane is as may, if no answer counts as validated."""
        why = await self._finder.why_not_validated()
        if why:
            log_event(
                logging.WARNING, "dane_not_validated", reason=why, levels=", ".join(self._dane_levels)[:LEVELS_MAX]
            )

    async def pass_on(self, frame: PassOn) -> PassedOn:
        """Returns the result of a message that is passed on while its client waits. Raises only CancelledError."""
        work = frame.work
        gate = Gate(len(work.recipients))
        delivery = self._loop.create_task(self.deliver(work, frame.data, gate))

        def close() -> None:
            if not gate.dot_sent:
                gate.is_closed = True
                delivery.cancel()

        timer = self._loop.call_later(frame.wait_s, close)
        try:
            result = await delivery
        except asyncio.CancelledError:
            if not gate.is_closed:  # the connection to the manager was lost
                raise
            result = _deferred(work, LATE)
        finally:
            timer.cancel()
        if gate.dot_sent and all(verdict.status is Status.DELIVERED for verdict in result.verdicts):
            return PassedOn(result, Fate.PASSED_ON)
        return PassedOn(result, Fate.UNCERTAIN if gate.may_be_taken else Fate.REFUSED, gate.is_closed)

    async def deliver(self, work: Deliver, given: bytes | None = None, gate: Gate | None = None) -> Delivered:
        """Returns the result of ``work``. ``given``: the data, if it is in no file. Raises only CancelledError."""
        if not work.shared:
            return await self._deliver(work, given, gate)
        result = await self.ends.within(work.shared, self._deliver(work, given, gate))
        return _deferred(work, SHARE_OVER) if result is None else result

    def resting(self, destination: str) -> int:
        """Returns how many connections to a destination rest, if several queues share its limit."""
        return self._client.resting(destination)

    async def _deliver(self, work: Deliver, given: bytes | None, gate: Gate | None) -> Delivered:
        if self.deadline.is_over:
            return _deferred(work, OVER)
        try:
            if given is None:
                data = self._files.open(work.path, work.offset, work.length, work.data_sums, work.spool_bytes)
            else:
                data = self._files.given(given, work.data_sums)
                data.gate = gate
            if work.shared:
                data.share = partial(self.ends.allows_dot, work.shared)
            try:
                sent = broken = self._lines.fitting(work, data)
                place = work.path + broken.variant
                if work.is_ours:
                    sent = await self._signing.sign(place, work.offset, broken, work.author_domains)
                if work.arc and self._sealing is not None and work.transport not in self._unsealed:
                    sent = await self._sealing.seal(place, work.offset, broken, work.arc)
                result, data_error = await self._client.deliver(with_length(work, broken), sent)
            finally:
                data.close()
        except DataError as error:
            return _with(error, _deferred(work, error.reply, is_exhausted(error)), work)
        except Exception as error:
            log_event(logging.CRITICAL, "delivery_failed", error=error, queue_id=work.queue_id, reason=repr(error))
            return _deferred(work, "internal error in the deliverer")
        return result if data_error is None else _with(data_error, result, work)

    def close(self) -> None:
        """Closes the connections and the files."""
        self._client.close()
        self._files.close()

    async def _connect(self) -> ManagerLink:
        with fitting_path(self._socket_path) as path:
            _, link = await self._loop.create_unix_connection(lambda: ManagerLink(self, self._loop), path)
        return link


def _with(error: DataError, result: Delivered, work: Deliver) -> Delivered:
    """Logs why the data was not sent; returns the result, which says so if the data on disk is damaged."""
    log_event(logging.CRITICAL, error.event, queue_id=work.queue_id, reason=str(error))
    return msgspec.structs.replace(result, damage=str(error)) if isinstance(error, DamagedError) else result


def _not_counted(why: str) -> None:
    log_event(logging.ERROR, "tls_sessions_not_counted", reason=why)


def _not_kept(why: str) -> None:
    log_event(logging.ERROR, "sts_policy_not_kept", reason=why)


def _key_unusable(path: str, reason: str) -> None:
    log_event(logging.CRITICAL, "dkim_key_unusable", path=path, reason=reason)


def _cas_unusable(path: str, reason: str) -> None:
    log_event(logging.ERROR, "ca_file_unusable", path=path, reason=f"{reason}; the CAs before stay in use")


def _deferred(work: Deliver, words: str, transport_failure: bool = False) -> Delivered:
    verdicts = tuple(Verdict(number, Status.DEFERRED, "4.3.0", words) for number, _ in work.recipients)
    return Delivered(work.entry, verdicts, "none", "", False, 0.0, 0.0, transport_failure)


def log_event(level: int, event: str, *, error: Exception | None = None, **fields: str | int) -> None:
    """Writes one JSON line with the event's name, its fields, and the traceback of ``error``."""
    record: dict[str, object] = {"event": event, "process": "deliverer", "pid": os.getpid(), **fields}
    if error is not None:
        record["traceback"] = logging.Formatter().formatException((type(error), error, error.__traceback__))
    _log.log(level, "%s", msgspec.json.encode(record).decode())


def _raise_file_limit() -> None:
    """Sockets and spool files together may be more than the usual soft limit of 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(open_sealing: OpenSealing, open_counting: OpenCounting, settings: Settings, number: int) -> None:
    """Runs the process. Never returns; any signal may end it at any time.

    ``open_sealing`` loads what seals mail, and is called only if it is on; ``open_counting`` what counts sessions.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the whole process group; the supervisor reacts to it
    _raise_file_limit()

    async def serve() -> None:
        beat(asyncio.get_running_loop())
        loop = asyncio.get_running_loop()
        deliverer = Deliverer(settings, number, loop, open_sealing=open_sealing, open_counting=open_counting)
        running = loop.create_task(deliverer.run())
        await asyncio.wait({running, asking := loop.create_task(asked_to_end(loop))}, return_when="FIRST_COMPLETED")
        if not asking.done():
            running.result()  # raises what ended it
        await deliverer.end()
        end_at_once()

    uvloop.run(serve())
