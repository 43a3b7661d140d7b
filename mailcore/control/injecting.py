"""Answers the three operations that inject a message: begin, data, end. A client that disconnects in between leaves no file.

Messages that are handed in at the same time have different queue ids: ids are given out one at a time, in the threads that open
the files.

Keeps law: ids-never-reused, law: drained-before-forgotten (docs/laws.md).

The message is complete in its spool file, synced, before the manager hears of it; the answer comes when the manager's record
is synced. When it is unknown whether that happened, the file stays: a queued envelope may need it; if none does, the sweep
of orphans removes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mailcore.config.header_completion import Headers
from mailcore.config.settings import Settings
from mailcore.control.injection import Injection, InjectionRefused
from mailcore.control.local_filter import LocalFilter
from mailcore.control.manager_link import ManagerAway, ManagerLink, ManagerRefused, OutcomeUnknown
from mailcore.control.protocol.injection import InjectBeginArguments, InjectDataArguments, Injected
from mailcore.control.protocol.operation import Arguments, Nothing
from mailcore.control.session import Session
from mailcore.faults import Code
from mailcore.queue.ballast import INTAKE_BYTES, INTAKE_INODES
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.spool import Spool

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["Injecting"]

INJECTIONS_MAX = 20  # at once; each has an open file


class Injecting:
    """Answers ``inject_begin``, ``inject_data`` and ``inject_end``; counts the messages under way."""

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        link: ManagerLink,
        ids: QueueIds,
        wall: Callable[[], float],
        pool: ThreadPoolExecutor,
        hostname: str,
        local_filter: LocalFilter | None = None,
    ) -> None:
        self._settings = settings
        self._spool = spool
        self._link = link
        self._ids = ids
        self._wall = wall
        self._pool = pool
        self._hostname = hostname
        self._filter = local_filter
        self._completing = pool  # milters take their time, and must not keep others waiting
        if local_filter is not None:
            self._completing = ThreadPoolExecutor(INJECTIONS_MAX, "milters")
        self._giving = threading.Lock()  # the ids are not for several threads
        self._under_way = 0
        self.headers: Headers | None = None  # None: header fields stay as they are given
        self.rewriting: LiveMaps | None = None  # None: addresses are final as they are given

    async def begin(self, session: Session, arguments: InjectBeginArguments) -> AsyncGenerator[Any, None]:
        """Opens a spool file. Raises InjectionRefused, ManagerAway, OSError."""
        if session.injection is not None:
            raise InjectionRefused(
                "a message is being handed in on this connection already; inject_end comes first", code=Code.CONFLICT
            )
        if not self._settings.receiver.processes:
            raise InjectionRefused(
                "this shard takes no mail, and drains: it is beyond [core] shards, or another node's own",
                code=Code.UNAVAILABLE,
            )
        if self._under_way >= INJECTIONS_MAX:
            raise InjectionRefused(f"{INJECTIONS_MAX} messages are being handed in already; try again", code=Code.BUSY)
        if self._link.absence:
            raise await self._link.away("nothing can be handed in here")
        self._under_way += 1
        try:
            session.injection = await self._in_thread(self._open, session, arguments)
        finally:
            if session.injection is None:
                self._under_way -= 1
        yield Injected(queue_id=session.injection.queue_id)

    async def data(self, session: Session, arguments: InjectDataArguments) -> AsyncGenerator[Any, None]:
        """Writes a piece. Raises InjectionRefused or OSError, and then nothing of the message is left."""
        injection = self._of(session)
        try:
            await self._in_thread(injection.write, arguments.data)
        except (InjectionRefused, OSError):
            await self.abandon(session)
            raise
        yield Nothing()

    async def end(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        """Completes the file and hands the envelope to the manager. Raises FaultError, OSError."""
        injection = self._of(session)
        try:
            envelope = await asyncio.get_running_loop().run_in_executor(self._completing, injection.complete)
        except (InjectionRefused, OSError):
            await self.abandon(session)
            raise
        session.injection = None
        self._under_way -= 1
        request = {"envelope": envelope, "not_before": injection.not_before}
        try:
            yield await self._link.order("inject", Injected, request, session.who, session.why)
        except (ManagerAway, ManagerRefused):
            await self._in_thread(self._spool.remove, envelope.queue_id)
            raise
        except OutcomeUnknown as error:
            raise OutcomeUnknown(f"message {envelope.queue_id}: {error}") from None

    async def abandon(self, session: Session) -> None:
        """Removes a message that was begun and not ended."""
        if session.injection is not None:
            injection, session.injection = session.injection, None
            self._under_way -= 1
            await self._in_thread(injection.abandon)

    def _open(self, session: Session, arguments: InjectBeginArguments) -> Injection:
        disk, settings = self._spool.disk, self._settings
        spool = str(settings.spool_directory)
        if disk.free_bytes(spool) < max(settings.queue.reserve_bytes, INTAKE_BYTES):
            raise InjectionRefused("the disk is full: less than reserve_bytes is free; try again later", code=Code.BUSY)
        if disk.free_inodes(spool) < max(settings.queue.reserve_inodes, INTAKE_INODES):
            raise InjectionRefused(
                "the disk is full: fewer than reserve_inodes are free; try again later", code=Code.BUSY
            )
        with self._giving:
            queue_id = self._ids.next()
        return Injection(
            self._spool,
            queue_id,
            arguments,
            hostname=self._hostname,
            uid=session.peer.uid,
            now=self._wall(),
            size_bytes_max=settings.receiver.message_size_limit,
            recipients_max=settings.receiver.recipient_limit,
            tag_header=settings.receiver.tag_header,
            dropped=settings.receiver.message_drop_headers,
            rewriting=self.rewriting,
            headers=self.headers,
            local_filter=self._filter,
        )

    def _of(self, session: Session) -> Injection:
        if session.injection is None:
            raise InjectionRefused("no message is being handed in; inject_begin comes first", code=Code.CONFLICT)
        return session.injection

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)
