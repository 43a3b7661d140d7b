"""The giver of shares: while this process is elected, it answers the questions of all queues on a socket.

The election says when an answer may be given, and how long shares may hold of which this giver has not heard. A shard that
knows of a later election than the giver makes it begin again, with a higher number.

Where the managers meet, and so how the giver is reached, is known to ``meeting`` alone: a Unix socket of one host, or TLS
between nodes.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from mailcore.manager.meeting import Listening, Meeting
from mailcore.shares.election import Election
from mailcore.shares.giver import Giver
from mailcore.shares.messages import Answer, Ask, Welcome
from mailcore.shares.wire import BadMessage, MessageDecoder, encoded

__all__ = ["Giving"]


class Giving:
    """Gives shares while ``election`` holds. ``limit_of`` returns the limit of a destination.

    ``meeting`` is where it listens, ``clock`` is seconds of CLOCK_BOOTTIME.
    """

    def __init__(
        self,
        election: Election,
        meeting: Meeting,
        loop: asyncio.AbstractEventLoop,
        limit_of: Callable[[str], int],
        clock: Callable[[], float],
    ) -> None:
        self.election = election
        self._meeting = meeting
        self._loop = loop
        self._limit_of = limit_of
        self._clock = clock
        self._giver: Giver | None = None
        self._server: Listening | None = None
        self._links: set[asyncio.Transport] = set()

    @property
    def is_giver(self) -> bool:
        """Returns whether this process was elected, and knows of no other."""
        return self._giver is not None

    async def look(self) -> None:
        """Tries to be elected; a giver says that it continues. Raises OSError."""
        self.election.look()
        self._follow()
        if self._giver is not None and self._server is None:
            try:
                self._server = await self._meeting.listen(self._loop, self.serving)
            except BaseException:
                self.end()
                raise

    def serving(self) -> asyncio.Protocol:
        """Returns what answers over a new connection."""
        return _Serving(self)

    def answer(self, ask: Ask) -> Answer | Welcome | None:
        """Returns the answer to a question; None if there is none."""
        may_answer = self.election.holds()
        self._follow()
        if self._giver is None or not may_answer:
            return None
        if ask.epoch > self._giver.epoch:
            with contextlib.suppress(OSError):
                self.election.again(ask.epoch)
            self._follow()
        return None if self._giver is None else self._giver.answer(ask, self._clock())

    def connected(self, transport: asyncio.Transport, *, there: bool) -> None:
        """Notes a connection of a shard, or its end."""
        (self._links.add if there else self._links.discard)(transport)

    def end(self) -> None:
        """Answers no more, and lets another be elected."""
        self.election.end()
        self._follow()

    def _follow(self) -> None:
        """Begins or ends as the election says."""
        elected = self.election.elected
        if elected is not None:
            if self._giver is None or self._giver.epoch != elected.epoch:
                self._giver = Giver(elected.epoch, elected.at, self._limit_of)
            return
        self._giver = None
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in list(self._links):
            transport.abort()


class _Serving(asyncio.Protocol):
    """The connection of a shard."""

    def __init__(self, giving: Giving) -> None:
        self._giving = giving
        self._decoder = MessageDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._giving.connected(self._transport, there=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it; what the shard has is counted until its end."""
        self._giving.connected(self._transport, there=False)

    def data_received(self, data: bytes) -> None:
        """Answers each question."""
        try:
            for message in self._decoder.feed(data):
                if not isinstance(message, Ask):
                    raise BadMessage("not a question")
                answer = self._giving.answer(message)
                if answer is not None and not self._transport.is_closing():
                    self._transport.write(encoded(answer))
        except BadMessage:
            self._transport.abort()
