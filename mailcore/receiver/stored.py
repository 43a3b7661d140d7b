"""A receiver whose lane is kept by a store: its clients wait for the store, but not without end.

A commit of which nothing is known may be there, so nothing of it is removed (law: unknown-until-own-write). A client that
waited for too long hears 421, as if the connection broke: a 451 would say that its message was not taken (RFC 5321 4.2.1). It
may send the message again, which is then there twice, and never lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from mailcore.envelope import Envelope
from mailcore.log.store import Store
from mailcore.queue.reserved_time import Keeper
from mailcore.receiver.intake import Done, Stored

__all__ = ["BUSY", "CLOSED", "UNKNOWN", "CommitWait", "ReceiverStores", "open_or_refuse"]

UNKNOWN = b"421 4.3.0 Error: the database does not answer; if you repeat the message, it may come twice"
BUSY = b"451 4.3.0 Error: the database does not answer; try again later"
CLOSED = b"421 4.3.0 Error: the database does not answer; try again later"


_T = TypeVar("_T")
REFUSED_AFTER_S = 2.0  # clients wait for a receiver that starts, but not for a database
LOOK_S = 0.1


@dataclass(frozen=True)
class ReceiverStores:
    """The stores of one receiver: of its lane, and of uploads, whose commits are their own (decision 0096)."""

    lane: Store
    uploads: Store
    commit_wait_s: float  # that a client waits for a commit
    end_at: int | None = None  # the end of the lane's records; None: the lane's files say it
    reserved: Keeper | None = None  # of the time of queue ids; None: a file of the lane
    number: int = 0  # of the shard


def open_or_refuse(opened: Callable[[], _T], listeners: Sequence[socket.socket]) -> _T:
    """Returns what ``opened`` returns, which a thread calls. Clients that come while that takes long hear CLOSED."""
    with ThreadPoolExecutor(1, "stores") as threads:
        opening = threads.submit(opened)
        wait([opening], REFUSED_AFTER_S)
        while not opening.done():
            ready = select.select(listeners, [], [], LOOK_S)[0] if listeners else []
            if not listeners:
                wait([opening], LOOK_S)
            for listener in ready:
                with contextlib.suppress(OSError):  # another receiver was quicker, or the client is gone
                    client, _ = listener.accept()
                    with client:
                        client.setblocking(False)
                        client.send(CLOSED + b"\r\n")
        return opening.result()


class CommitWait:
    """Answers clients whose commit takes too long, and says whether new ones should come."""

    def __init__(self, stores: ReceiverStores, loop: asyncio.AbstractEventLoop) -> None:
        self._stores = stores
        self._loop = loop

    @property
    def is_long(self) -> bool:
        """Returns True while a commit has waited for as long as a client does: no other client is to wait behind it."""
        longest_s = max(self._stores.lane.waiting_s(), self._stores.uploads.waiting_s())
        return longest_s >= self._stores.commit_wait_s

    def limited(self, done: Done) -> Done:
        """Returns a callback that calls ``done`` once: with what it is called with, or with UNKNOWN when the time is over."""
        is_over = False

        def finish(reply: bytes) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                timer.cancel()
                done(reply)

        timer = self._loop.call_later(self._stores.commit_wait_s, finish, UNKNOWN)
        return finish

    def limited_upload(self, done: Stored, envelope: Envelope) -> Stored:
        """Returns the same for the end of an upload."""
        stored = envelope

        def after(reply: bytes) -> None:
            done(reply, stored)

        limited = self.limited(after)

        def finish(reply: bytes, made: Envelope) -> None:
            nonlocal stored
            stored = made
            limited(reply)

        return finish
