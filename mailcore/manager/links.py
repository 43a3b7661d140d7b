"""The manager's connections: receivers say how far their lanes are durable, deliverers take entries and give verdicts, the
control process asks. Each says who it is first; a frame that is not its to send ends the connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from mailcore.frames import (
    Delivered,
    Durable,
    Ending,
    Frame,
    FrameDecoder,
    FrameWriter,
    Hello,
    Measured,
    Offer,
    PassedOn,
    Request,
    SharesKept,
    WireError,
)
from mailcore.maillog.maillog import MailLog
from mailcore.manager.cut_through import CutThrough
from mailcore.manager.flow import DelivererLink, Flow
from mailcore.manager.leasing import Leasing
from mailcore.manager.sharing import Sharing
from mailcore.queue.lanes import incoming

__all__ = ["Link"]


class ManagerSide(Protocol):
    """The part of the manager that a connection uses."""

    loop: asyncio.AbstractEventLoop
    log: MailLog
    flow: Flow
    cut_through: CutThrough
    leasing: Leasing | None
    sharing: Sharing | None
    receivers: dict[str, int]  # lane -> process id, of those that are connected

    def go_on(self) -> None:
        """Schedules a turn of the loop."""

    def durable(self, lane: str, end: int, messages: int, recipients: int) -> None:
        """Makes a lane readable up to ``end``."""

    def measured(self, report: Measured) -> None:
        """Adds what a receiver has counted for the metrics."""

    def request(self, writer: FrameWriter, request: Request) -> None:
        """Answers a request of the control process."""


class Link(asyncio.Protocol):
    """One connection of a receiver, a deliverer or the control process."""

    def __init__(self, manager: ManagerSide) -> None:
        self._manager = manager
        self._decoder = FrameDecoder()
        self._role = ""
        self._deliverer: DelivererLink | None = None
        self._lane = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport; the client says its role in its first frame."""
        transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._transport = transport
        self._writer = FrameWriter(transport, self._manager.loop)

    def data_received(self, data: bytes) -> None:
        """Handles complete frames; the Delivered frames of one read are recorded together."""
        results: list[Delivered] = []
        try:
            for frame in self._decoder.feed(data):
                if isinstance(frame, Delivered):
                    results.append(frame)
                else:
                    self._frame(frame)
        except WireError as error:
            self._manager.log.failed("manager", f"{self._role or 'a client'}: {error}")
            self._transport.abort()
        if results and self._deliverer is not None:
            self._manager.flow.delivered(self._deliverer, results)

    def _frame(self, frame: Frame) -> None:
        manager = self._manager
        if isinstance(frame, Durable) and self._role == "receiver":
            manager.durable(frame.lane, frame.end, frame.messages, frame.recipients)
        elif isinstance(frame, Request) and self._role == "control":
            manager.request(self._writer, frame)
        elif isinstance(frame, Offer) and self._role == "receiver":
            manager.cut_through.offer(self._writer, frame)
        elif isinstance(frame, PassedOn) and self._deliverer is not None:
            manager.cut_through.answered(self._deliverer, frame)
        elif isinstance(frame, SharesKept) and self._deliverer is not None and manager.sharing is not None:
            manager.sharing.kept(self._deliverer, frame)
        elif isinstance(frame, Ending) and self._deliverer is not None:
            self._deliverer.capacity = 0
        elif isinstance(frame, Measured) and self._role == "receiver":
            manager.measured(frame)
        elif isinstance(frame, Hello) and not self._role:
            self._role = frame.role
            if frame.role == "deliverer":
                self._deliverer = DelivererLink(self._writer, frame.number, frame.pid, frame.capacity)
                if manager.leasing is not None:
                    manager.leasing.tell(self._deliverer)
                manager.flow.deliverers.append(self._deliverer)
                manager.go_on()
            elif frame.role == "receiver":
                self._lane = incoming(frame.number)
                manager.receivers[self._lane] = frame.pid
        else:
            raise WireError(
                f"{type(frame).__name__} can't be sent by {self._role or 'a client that has not said its role'}"
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Returns a deliverer's entries to the scheduler and forgets a receiver."""
        if self._deliverer is not None:
            self._manager.flow.deliverer_gone(self._deliverer)
            self._manager.cut_through.deliverer_gone(self._deliverer)
        self._manager.receivers.pop(self._lane, None)
