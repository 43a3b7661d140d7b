"""The control process: owns the control socket, answers what can be read, passes on what must be asked.

Crash-only: it keeps nothing that matters, and its next start removes what is stale. A lock beside the socket says whether
the one there is alive; a second control process is refused and touches nothing.

Everything is bounded: connections, requests waiting on one, threads, and what waits to be read by a client: one that does
not read is dropped. The requests of one connection are answered one after the other; connections do not wait for each other.

Keeps law: answers-bounded, law: peer-decides-rights (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mailcore.config.cut_through import cut_through_transports
from mailcore.config.header_completion import HeaderCompletion
from mailcore.config.live_routes import LiveRoutes
from mailcore.config.open_rewriting import OpenRewriting, no_rewriting
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.shared_settings import OpenShared, Shared, none_shared
from mailcore.control.access import Peer, RemotePeer, group_id, peer_of
from mailcore.control.ages import Ages
from mailcore.control.effects import Effects
from mailcore.control.events import EventAnswers
from mailcore.control.history import PastAnswers
from mailcore.control.injecting import Injecting
from mailcore.control.intake import Intake
from mailcore.control.keeping import Keeping
from mailcore.control.local_filter import OpenFilter, no_filter
from mailcore.control.local_stores import LocalStores, OpenLocalStores, no_stores
from mailcore.control.log_lines import LogAnswers
from mailcore.control.mail_users import MailUsers
from mailcore.control.manager_link import ManagerLink
from mailcore.control.managing import Managing
from mailcore.control.nodes import NodesAnswers
from mailcore.control.operations import Operations
from mailcore.control.past_queue import PastQueueAnswers
from mailcore.control.positions import Positions
from mailcore.control.protocol.operation import Operation
from mailcore.control.protocol.scope import OF_THE_NODE
from mailcore.control.protocol.table import CLIENT_FRAME_BYTES_MAX, check
from mailcore.control.session import Session
from mailcore.control.tables import Tables
from mailcore.control.view import View
from mailcore.control.whatif import WhatIf
from mailcore.counted import counted
from mailcore.envelope import Recipient
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import ForClient, FrameDecoder, Request, Response, WireError, encode
from mailcore.log.disk import Disk, Locked
from mailcore.log.positions import PositionsDamaged, PositionsTooNew
from mailcore.log.segment import SegmentTooNew
from mailcore.lookup.archive import Archive
from mailcore.lookup.browse import Browser, CursorError
from mailcore.lookup.feed import Feed
from mailcore.maillog import MailLog
from mailcore.queue.exported import EXPORTED
from mailcore.queue.lanes import configured_lanes
from mailcore.queue.queue_id import CONTROL, QueueIds
from mailcore.queue.reserved_time import OF_CONTROL, ReservedFile, ReservedTime
from mailcore.queue.spool import Spool
from mailcore.routing.resolve import Refused
from mailcore.supervisor.listen import bind_with_room
from mailcore.supervisor.pulse import beat
from mailcore.supervisor.room import room_for_sockets

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["ControlServer", "main"]

READERS = 4  # threads that read lanes: four slow filters at once, the fifth takes turns with them
SPOOLERS = 2
REQUESTS_WAITING_MAX = 64  # of one connection; then it is not read from until they are answered
REQUESTS_BURST_MAX = 4_096  # in one read; our clients never send that many
UNREAD_S_MAX = 30.0  # a client that reads nothing for this time is dropped
WRITE_BUFFER_BYTES = 1 << 20  # before a part waits for the client; the next part comes on top
BACKLOG = 64
WHY_CHARACTERS = 1_000
LOCK_WAIT_S = 5.0  # the control process before us may still be dying

# Errors of other rooms that an answer may show as they are; besides, every FaultError. Anything else is a bug.
ANSWERED = (FaultError, CursorError, OSError, PositionsDamaged, PositionsTooNew, SegmentTooNew)


Beside = Callable[[Settings, "LiveMaps | None", LiveRoutes], Coroutine[Any, Any, None]]


class Forbidden(FaultError):
    """An operation that this client may not ask for."""

    default = Code.FORBIDDEN


class ClientGone(Exception):
    """Raised when the client has disconnected: the answer has no reader."""


class ControlServer:
    """The server of the control socket: what all connections share."""

    def __init__(
        self,
        settings: Settings,
        archive: Archive,
        feed: Feed,
        beside: Sequence[Beside] = (),
        open_rewriting: OpenRewriting = no_rewriting,
        open_filter: OpenFilter = no_filter,
        files: SettingsFiles | None = None,
        stores: LocalStores | None = None,
        shared: Shared | None = None,
    ) -> None:
        """``archive``: what was exported; it answers also when no more is exported, as ``feed`` does.

        ``beside`` runs as long as this process."""
        self._beside = beside
        self._open_rewriting = open_rewriting
        self.settings = settings
        self.group = group_id(settings.control.group)
        self.clients_max = settings.control.clients_max
        self.clients: set[Client] = set()
        disk = Disk()
        intake = Intake(disk, [str(settings.queue_directory), str(settings.spool_directory)])
        self.link = ManagerLink(str(settings.run_directory / "manager.sock"), intake)
        readers = ThreadPoolExecutor(READERS, "browse")
        self.routes = LiveRoutes(settings, None, readers, keeps_tables=True)  # the manager logs changes

        def route_of(recipient: Recipient) -> str:
            resolved = self.routes.routing.resolve(recipient.address)
            return "" if isinstance(resolved, Refused) else resolved.destination

        browser = Browser(disk, str(settings.queue_directory), time.time, time.monotonic, route_of)
        ids = str(settings.queue_directory / OF_CONTROL)
        reserved = ReservedTime(ReservedFile(disk, ids) if stores is None else stores.reserved)
        self.injecting = Injecting(
            settings,
            Spool(disk, str(settings.spool_directory), None if stores is None else stores.control),
            self.link,
            QueueIds(CONTROL, time.time, reserved, shard=settings.shard or 0 if stores is None else stores.number),
            time.time,
            ThreadPoolExecutor(SPOOLERS, "spool"),
            settings.receiver.hostname or socket.gethostname(),
            open_filter(settings),
        )
        processes = str(settings.run_directory / "processes.json")
        lanes = configured_lanes(settings.receiver.processes, settings.queue.retry_ladder_s)
        passes_on = bool(cut_through_transports(settings.transports))
        self.view = View(browser, self.link, readers, archive, lanes, passes_on=passes_on)
        tables = Tables(self.view, settings, self.routes)
        self.ages = Ages(self.view)
        exported = str(settings.events_directory / EXPORTED) if settings.export.enabled else ""
        positions = Positions(self.view, settings.queue.undo_time_s, exported)
        past = PastAnswers(self.view, Spool(disk, str(settings.spool_directory)))
        whatif = WhatIf(self.view, settings, parameters_of(settings), past.times_since)
        events = EventAnswers(self.view, feed)
        self.nodes = NodesAnswers(self.view, settings, None if stores is None else stores.orders)
        log = LogAnswers(self.view, settings.log_directory)
        past_queue, users = PastQueueAnswers(self.view, settings), MailUsers(self.view, settings, shared)
        others = (tables, positions, self.ages, past, whatif, log, past_queue, users, events, self.nodes)
        families = [each.answers for each in others]
        if files is not None:
            managing = Managing(self.view, settings, disk, files, shared)
            families += [
                managing.answers,
                Effects(self.view, settings, managing.text_after).answers,
                Keeping(self.view, settings, managing).answers,
            ]
        self.operations = Operations(self.view, self.injecting, processes, *families)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serves until it is killed. Raises Locked when another control process is alive."""
        lock = await self._lock()
        os.fchmod(lock, 0o640)  # not for the directory's group to write, which may be the deliverer's, too
        try:
            self.start(asyncio.create_task(self.link.run()))
            self._rewrite()
            self.start(asyncio.create_task(self.routes.watch()))
            for work in self._beside:
                self.start(asyncio.create_task(work(self.settings, self.injecting.rewriting, self.routes)))
            async with asyncio.timeout(1):
                await self.link.tried.wait()
            loop = asyncio.get_running_loop()
            # The server does not serve yet, so a cancellation here waits for no client and leaves no socket behind.
            server = await loop.create_unix_server(lambda: Client(self), sock=self._listen(), start_serving=False)
            beat(loop)
            async with server:
                await server.serve_forever()
        finally:
            os.close(lock)

    def start(self, task: asyncio.Task[None]) -> None:
        """Keeps a reference: the loop alone does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _rewrite(self) -> None:
        """Opens the files of [rewriting] and looks at them, if there are any; headers are completed without them, too."""
        settings, loop, log = self.settings, asyncio.get_running_loop(), MailLog(self.settings.log_directory)
        rewriting = self._open_rewriting(settings, log, self.view.pool)
        hostname = settings.receiver.hostname or socket.gethostname()
        origin = settings.lenient.own_domain(hostname)
        self.injecting.headers = rewriting or HeaderCompletion(settings.rewriting, origin, hostname, log)
        if rewriting is not None:
            self.injecting.rewriting = rewriting
            self.start(loop.create_task(rewriting.watch()))

    async def _lock(self) -> int:
        path = str(self.settings.run_directory / "control.lock")
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return Disk().lock(path)
            except Locked:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.05)

    def _listen(self) -> socket.socket:
        """Binds the socket under another name and then renames it, so that there is no moment without a socket."""
        path = self.settings.run_directory / "control.sock"
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            bind_with_room(server, str(new), lambda: room_for_sockets(self.settings)(new))
        finally:
            os.umask(before)
        if self.group is not None:
            os.chown(new, -1, self.group)
        new.chmod(0o660)
        server.listen(BACKLOG)
        new.replace(path)
        return server


class Client(asyncio.Protocol):
    """One connection. Requests wait in ``_requests`` and are answered in order by one task."""

    def __init__(self, server: ControlServer) -> None:
        self._server = server
        self._decoder = FrameDecoder(CLIENT_FRAME_BYTES_MAX)
        self._requests: asyncio.Queue[Request | None] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = False
        self._reading = True
        self._session: Session | None = None
        self._is_first = True  # nothing was heard yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection, or refuses it when there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        server = self._server
        try:
            peer = peer_of(transport.get_extra_info("socket").getsockopt)
        except OSError:
            transport.abort()
            return
        if len(server.clients) >= server.clients_max:
            error = f"{counted(server.clients_max, 'client')} connected already (control.clients_max); try again"
            transport.write(encode(Response(0, None, Fault(Code.BUSY, error))))
            transport.close()
            return
        server.clients.add(self)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._session = Session(peer)
        server.start(asyncio.get_running_loop().create_task(self._answer_all(self._session)))

    def data_received(self, data: bytes) -> None:
        """Queues the requests; a client that sends anything else is cut off."""
        try:
            for frame in self._decoder.feed(data):
                is_first, self._is_first = self._is_first, False
                if isinstance(frame, ForClient) and is_first:
                    self._acts_for(frame)
                    continue
                if not isinstance(frame, Request):
                    raise WireError(f"{type(frame).__name__} is not for a client to send")
                if self._requests.qsize() >= REQUESTS_BURST_MAX:
                    raise WireError(f"more than {REQUESTS_BURST_MAX} requests at once")
                self._requests.put_nowait(frame)
        except WireError:
            self._transport.abort()
            return
        if self._reading and self._requests.qsize() >= REQUESTS_WAITING_MAX:
            self._reading = False
            self._transport.pause_reading()

    def _acts_for(self, client: ForClient) -> None:
        """Gives the connection the rights of a client of another node, for which Waypost itself asks. Raises WireError."""
        session = self._session
        if session is None or not isinstance(session.peer, Peer) or not session.peer.trusted:
            raise WireError("only Waypost itself asks for clients of other nodes")
        session.peer = RemotePeer(client)

    def pause_writing(self) -> None:
        """Stops sending until the client has read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continues sending."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the answers of this client."""
        self._gone = True
        self._writable.set()
        self._requests.put_nowait(None)

    async def _answer_all(self, session: Session) -> None:
        try:
            while (request := await self._requests.get()) is not None and not self._gone:
                if not self._reading and self._requests.qsize() < REQUESTS_WAITING_MAX // 2:
                    self._reading = True
                    self._transport.resume_reading()
                await self._answer(session, request)
        except ClientGone:
            pass
        finally:
            self._server.clients.discard(self)
            await self._server.injecting.abandon(session)

    async def _answer(self, session: Session, request: Request) -> None:
        """Sends all parts; the last one says so. A part that is not of the operation's result is a bug, and not sent.

        Raises ClientGone.
        """
        server = self._server
        number = request.number
        before: object = None
        have_one = False
        session.who = session.peer.who(request.who)
        session.why = request.why[:WHY_CHARACTERS]
        try:
            operation, arguments = check(request.operation, request.arguments)
            self._refuse_what_it_may_not(session, operation)
            parts = server.operations.answer(operation, arguments, session)
            async with contextlib.aclosing(parts):
                async for part in parts:
                    if self._gone:
                        raise ClientGone
                    if not isinstance(part, operation.result):
                        raise TypeError(f"{operation.name} has a part that is a {type(part).__name__}, not its result")
                    if have_one:
                        await self._send(Response(number, before, last=False))
                    before, have_one = part, True
            await self._send(Response(number, before))
        except ANSWERED as error:
            if have_one:  # the client still gets the parts before the error
                await self._send(Response(number, before, last=False))
            await self._send(Response(number, None, _fault_of(error)))
        except ClientGone:
            raise
        except Exception as error:
            traceback.print_exc()
            fault = Fault(Code.INTERNAL, f"internal error in the control process: {error!r}")
            await self._send(Response(number, None, fault))

    def _refuse_what_it_may_not(self, session: Session, operation: Operation) -> None:
        """Raises Forbidden."""
        if isinstance(session.peer, RemotePeer) and operation.name in OF_THE_NODE:
            raise Forbidden(f"{session.who} may not {operation.name}: it is for clients of this node alone")
        if not session.peer.may(operation.access, self._server.group):
            raise Forbidden(f"{session.who} may not {operation.name}: {_who_may(self._server.settings)}")

    async def _send(self, response: Response) -> None:
        if self._gone:
            raise ClientGone
        self._transport.write(encode(response))
        try:
            async with asyncio.timeout(UNREAD_S_MAX):
                await self._writable.wait()
        except TimeoutError:
            self._transport.abort()
            raise ClientGone from None


def _fault_of(error: BaseException) -> Fault:
    if isinstance(error, FaultError):
        return error.fault
    if isinstance(error, CursorError):
        return Fault(Code.INVALID, str(error), "cursor")
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        return Fault(Code.INTERNAL, message)
    return Fault(Code.INTERNAL, str(error) or type(error).__name__)


def _who_may(settings: Settings) -> str:
    group = settings.control.group
    return "root and the user Waypost runs as may" + (f", and group {group}" if group else " (see control.group)")


def main(
    open_archive: Callable[[Settings], Archive],
    open_feed: Callable[[Settings], Feed],
    open_rewriting: OpenRewriting,
    beside: Sequence[Beside],
    settings: Settings,
    number: int,
    *,
    open_filter: OpenFilter = no_filter,
    files: SettingsFiles | None = None,
    open_stores: OpenLocalStores = no_stores,
    open_shared: OpenShared = none_shared,
) -> None:
    """Runs until it is killed. There is one control process, number 0.

    ``open_archive`` opens what was exported, ``open_feed`` all events; ``beside`` is other work that the process does;
    ``files`` reads the files of the settings, for changes to them; ``open_stores`` waits for the database of a shard;
    ``open_shared`` opens the settings of all nodes.
    """
    try:
        stores = open_stores(settings)
        archive, feed = open_archive(settings), open_feed(settings)
        asyncio.run(
            ControlServer(
                settings, archive, feed, beside, open_rewriting, open_filter, files, stores, open_shared(settings)
            ).run()
        )
    except Locked as error:
        sys.exit(f"waypost: control: {error}; that process is running and keeps the socket")
