"""The load: N sessions that send messages and write into the ledger what became of each.

A small SMTP client of its own, so that a fault of the appliance's client cannot hide here. It takes 4xx, a lost and a
refused connection for granted: that message is sent again under a new id. A 5xx is final and shows in the ledger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mailcore.lab.arrival import content_digest
from tests.ledger.corpus import Message
from tests.ledger.ledger import Ledger, Sent, State

__all__ = ["LoadClient", "stuffed"]

PIECE_BYTES = 256 * 1024  # of data in one write
REPLY_BYTES_MAX = 64 * 1024
LAST_BYTES = 1024  # of the data, that leave together with the final dot


def terminated(data: bytes) -> bytes:
    """With the CRLF that must end the last line before the final dot."""
    return data + b"\r\n" if data and not data.endswith(b"\r\n") else data


def stuffed(data: bytes) -> bytes:
    """As on the wire (RFC 5321 4.5.2), without the final dot."""
    wire = terminated(data).replace(b"\r\n.", b"\r\n..")
    return b"." + wire if wire.startswith(b".") else wire


class _Lost(Exception):
    """The connection is of no use any more."""


class _Declined(Exception):
    """A reply that was not the good one; the session goes on."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply


@dataclass(slots=True)
class _Task:
    message: Message
    attempt: int = 0


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout_s: float) -> None:
        self._reader = reader
        self.writer = writer
        self._timeout_s = timeout_s
        self.must_reset = False  # the last message ended in the middle of its transaction

    async def reply(self) -> str:
        """The last line of a reply. Raises _Lost when none comes."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    line = await self._reader.readline()
                    if not line.endswith(b"\n"):
                        raise _Lost("closed")
                    if line[3:4] != b"-":
                        return line.decode("utf-8", "backslashreplace").rstrip()
        except (OSError, TimeoutError, ValueError) as error:
            raise _Lost(str(error)) from error

    async def want(self, code: str) -> str:
        reply = await self.reply()
        if reply.startswith("421"):
            raise _Lost(reply)
        if not reply.startswith(code):
            raise _Declined(reply)
        return reply

    async def write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                for at in range(0, len(data), PIECE_BYTES):
                    self.writer.write(data[at : at + PIECE_BYTES])
                    await self.writer.drain()
        except (OSError, TimeoutError) as error:
            raise _Lost(str(error)) from error


class LoadClient:
    """``await LoadClient(address, ledger).send(corpus)`` returns when each message was acknowledged or refused."""

    def __init__(
        self,
        address: tuple[str, int],
        ledger: Ledger,
        *,
        name: str = "m",
        sessions: int = 20,
        keep_alive: bool = True,
        pipelining: bool = False,
        pause_s: float = 0.02,
        timeout_s: float = 60.0,
    ) -> None:
        """``name`` begins the ids, for several clients on one ledger; ``pause_s`` is waited after a failure."""
        self._address = address
        self._ledger = ledger
        self._name = name
        self._sessions = sessions
        self._keep_alive = keep_alive
        self._pipelining = pipelining
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._again: deque[_Task] = deque()
        self._in_hand = 0
        self.lost_connections = 0
        self.declined = 0

    async def send(self, messages: Iterable[Message]) -> None:
        source = iter(messages)
        await asyncio.gather(*(self._session(source) for _ in range(self._sessions)))

    # --- one session ------------------------------------------------------------------------------------------------

    async def _session(self, source: Iterator[Message]) -> None:
        while True:
            task = self._take(source)
            if task is None:
                if not self._in_hand:
                    return
                await asyncio.sleep(self._pause_s)  # another session may give one back
                continue
            try:
                async with self._connected() as connection:
                    while task is not None:
                        await self._deliver(connection, task)
                        self._in_hand -= 1
                        task = self._take(source) if self._keep_alive else None
            except _Lost:
                self.lost_connections += 1
                if task is not None:  # None: it was the QUIT that got no answer
                    self._again.append(replace(task, attempt=task.attempt + 1))
                    self._in_hand -= 1
                await asyncio.sleep(self._pause_s)

    def _take(self, source: Iterator[Message]) -> _Task | None:
        if self._again:
            task = self._again.popleft()
        else:
            message = next(source, None)
            if message is None:
                return None
            task = _Task(message)
        self._in_hand += 1
        return task

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Connection]:
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(*self._address, limit=REPLY_BYTES_MAX)
        except (OSError, TimeoutError) as error:
            raise _Lost(str(error)) from error
        connection = _Connection(reader, writer, self._timeout_s)
        try:
            try:
                await connection.want("220")
                await connection.write(b"EHLO load.example\r\n")
                await connection.want("250")
            except _Declined as error:
                raise _Lost(error.reply) from error
            yield connection
            await connection.write(b"QUIT\r\n")
            await connection.reply()
        finally:
            writer.transport.abort()

    # --- one message ------------------------------------------------------------------------------------------------

    async def _deliver(self, connection: _Connection, task: _Task) -> None:
        """Ends with the message acknowledged, refused, or given back for another try. Raises _Lost."""
        ledger_id = f"{self._name}{task.message.number}" + (f".{task.attempt}" if task.attempt else "")
        entry = self._ledger.open(ledger_id)
        try:
            later = await self._transact(connection, task, entry)
        except _Declined as error:
            self.declined += 1
            connection.must_reset = True
            if error.reply.startswith("4"):
                self._ledger.move(entry, State.DEFERRED, error.reply)
                self._again.append(replace(task, attempt=task.attempt + 1))
                await asyncio.sleep(self._pause_s)
            else:
                self._ledger.move(entry, State.REFUSED, error.reply)
            return
        if later:  # recipients answered with 4xx, such as 452 after so many: the next message takes them
            rest = replace(task.message, recipients=later)
            self._again.append(_Task(rest, task.attempt + 1))

    async def _transact(self, connection: _Connection, task: _Task, entry: Sent) -> tuple[str, ...]:
        """Sends it; the recipients that must be tried later."""
        message = task.message
        if connection.must_reset:
            await connection.write(b"RSET\r\n")
            await connection.reply()
            connection.must_reset = False
        data = message.data(entry.id)
        wire, content = stuffed(data), terminated(data)
        entry.sha256, entry.size_bytes = content_digest(content), len(content)
        body = " BODY=8BITMIME" if message.eight_bit else ""
        mail = f"MAIL FROM:<{message.sender(entry.id)}> SIZE={len(content)}{body}\r\n".encode()
        recipients = [f"RCPT TO:<{each}>\r\n".encode() for each in message.recipients]
        accepted: list[str] = []
        later: list[str] = []
        refusal = ""

        if self._pipelining:
            await connection.write(b"".join([mail, *recipients, b"DATA\r\n"]))
        else:
            await connection.write(mail)
        declined: _Declined | None = None
        try:
            await connection.want("250")
        except _Declined as error:
            if not self._pipelining:
                raise
            declined = error
        for address, line in zip(message.recipients, recipients, strict=True):
            if not self._pipelining:
                await connection.write(line)
            try:
                await connection.want("250")
                accepted.append(address)
            except _Declined as error:
                refusal = error.reply
                if refusal.startswith("4"):
                    later.append(address)
        entry.recipients = tuple(accepted)
        if not self._pipelining:
            if not accepted:
                raise _Declined(refusal)
            await connection.write(b"DATA\r\n")
        try:
            await connection.want("354")
        except _Declined as error:
            raise declined or (_Declined(refusal) if refusal and not accepted else error) from None
        # From here on the last bytes may have left, whatever the write says.
        cut = max(0, len(wire) - LAST_BYTES)
        head, tail = wire[:cut], wire[cut:]
        await connection.write(head)
        self._ledger.move(entry, State.IN_DOUBT)
        await connection.write(tail + b".\r\n")
        try:
            reply = await connection.want("250")
        except _Lost as lost:
            entry.reply = str(lost)  # 421, or how the connection broke
            raise
        self._ledger.move(entry, State.ACKNOWLEDGED, reply)
        return tuple(later)
