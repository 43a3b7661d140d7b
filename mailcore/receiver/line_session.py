"""The lower half of an SMTP session: bytes in, command lines and data out; replies together, one write a turn.

A turn of the loop is one ``data_received``: it runs every command that is complete and ends in one write. It uses no
coroutine.

Laws
- A command begins behind a CRLF and ends with CRLF. A line that begins or ends with a bare LF is refused at once, each with
  a reply of its own, however the bytes were divided. A line that is too long costs fixed memory.
- Memory is bounded: one read of the transport, one command line, the replies of one turn. Reading stops while the disk
  or a client that does not read has to be waited for.
- An exception goes to our log; its text is never sent to a client.

Knows neither commands nor mail.

Keeps law: command-ends-at-crlf, law: error-is-451 (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import cast

from aiosmtpd.smtp import SMTP

from mailcore.receiver.server_context import ServerContext

__all__ = ["LineSession", "State"]

COMMANDS_PER_TURN = 500  # of one client in our networks, about 2 ms; then the others have their turn
COMMANDS_PER_TURN_OTHERS = 20  # of one other client: with a hundred that flood us, a turn of all is 10 ms
RESPONSE_OCTETS_MAX = 12_288  # of a line in an exchange of AUTH, RFC 4954 4
LINGER_S = 2.0  # time for the client to read the last reply before the socket is closed; further input is thrown away
REPLIES_HIGH_WATER = 16 * 1024  # bytes of replies a client may leave unread before we stop reading it


class State(enum.Enum):
    """Says what a session does with the next bytes of its client."""

    COMMAND = enum.auto()
    RESPONSE = enum.auto()  # a line that answers a challenge of AUTH
    SKIP = enum.auto()  # the rest of a command line that was too long
    DATA = enum.auto()
    CHUNK = enum.auto()  # octets that were announced by BDAT
    WAITING = enum.auto()  # for the disk; commands behind the data wait as well
    TLS = enum.auto()  # handshake
    CLOSING = enum.auto()  # the last reply is sent
    CLOSED = enum.auto()


# Reading a member from its class takes 0.1 us, and these are read for every command.
_COMMAND, _SKIP, _DATA, _WAITING, _TLS = State.COMMAND, State.SKIP, State.DATA, State.WAITING, State.TLS
_BARE_LF = b"500 5.5.2 Error: bad syntax: a line must end with CR LF, not with LF alone"
_RESPONSE, _CHUNK = State.RESPONSE, State.CHUNK
_HEARS = (State.COMMAND, State.RESPONSE, State.SKIP, State.DATA, State.CHUNK)
_LINE_TOO_LONG = b"500 5.5.2 Error: line too long"
_RESPONSE_TOO_LONG = b"500 5.5.6 Error: authentication exchange line is too long"


class LineSession(SMTP):
    """The protocol of one connection. ``address`` and ``port`` are the client's; ``closed`` is called once, at the end."""

    transport: asyncio.Transport | None
    trusted = False  # in our own networks, or a user who has logged in

    # aiosmtpd's constructor, which costs more than a message, is not called: the context holds what is the same for
    # every connection (decision 0004).
    def __init__(self, context: ServerContext, address: str, port: int, closed: Callable[[LineSession], None]) -> None:
        self.context = context
        self.loop = context.loop
        self.address = address
        self.connected_from = address  # stays when another program names the client (XCLIENT)
        self.port = port
        self.transport = None
        self.heard = context.ticks
        self.state = State.COMMAND
        self._replies: list[bytes] = []
        self._buffer = b""  # the begun command, or what was held back
        self._held_back = False  # the buffer holds what was not looked at
        self._run_scheduled = False
        self._stopped_reading = False
        self._write_paused = False
        self._ended = False  # by the client
        self._left = b""  # of lines with a bare LF, what is behind one whose reply comes late
        self._behind_lf = False  # the buffer begins with a bare LF, which was answered
        self._too_long = _LINE_TOO_LONG  # the reply at the end of a line that is skipped
        self._on_closed = closed

    # -- for the upper half

    def command(self, line: bytes) -> None:
        """Runs a command line, given without its CRLF."""
        raise NotImplementedError

    def response(self, line: bytes) -> None:
        """Takes a line in state RESPONSE, given without its CRLF."""
        raise NotImplementedError

    def pipelined(self) -> None:
        """Refuses a line in state RESPONSE that was sent before the challenge."""
        raise NotImplementedError

    def response_too_long(self) -> None:
        """Ends an exchange of which a line is too long."""
        raise NotImplementedError

    def data(self, chunk: bytes) -> bytes:
        """Takes a chunk in state DATA; returns what follows the end of the data."""
        raise NotImplementedError

    def chunk(self, data: bytes) -> bytes:
        """Takes octets in state CHUNK; returns what follows them."""
        raise NotImplementedError

    def broken_off(self) -> None:
        """Ends what is under way: the conversation is over, perhaps inside the data."""
        raise NotImplementedError

    @property
    def waits_for_disk(self) -> bool:
        """Returns whether no more input can be taken until the disk has answered."""
        raise NotImplementedError

    def error(self, reply: bytes) -> None:
        """Replies to a mistake of the client."""
        raise NotImplementedError

    def useless(self, reply: bytes) -> None:
        """Replies to a command without effect, which is not a mistake, and of which a client may not send any number."""
        raise NotImplementedError

    def reply(self, reply: bytes) -> None:
        """Sends a reply (without CRLF) together with the others of this turn."""
        self._replies.append(reply)

    def flush(self) -> None:
        """Writes the replies of this turn."""
        replies = self._replies
        if replies and self.transport is not None:
            replies.append(b"")
            self.transport.write(b"\r\n".join(replies))
            self._replies = []

    def last_reply(self, reply: bytes) -> None:
        """Sends the last reply and closes the connection LINGER_S later.

        Closing at once with unread input would reset the connection, and the client might lose the reply.
        """
        self._replies.append(reply)
        self.flush()
        self.state = State.CLOSING
        self._buffer = b""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._stopped_reading:
            self._stopped_reading = False
            transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
            self.loop.call_later(LINGER_S, self.abort)
        else:
            transport.close()

    def abort(self) -> None:
        """Closes the connection at once; replies that were not sent are lost."""
        if self.transport is not None:
            self.transport.abort()

    def stop_reading(self) -> None:
        """Reads nothing more until ``go_on``."""
        transport = self.transport
        if transport is not None and not self._stopped_reading and not transport.is_closing():
            self._stopped_reading = True
            transport.pause_reading()

    def go_on(self) -> None:
        """Reads again, unless the disk or the client still has to be waited for."""
        transport = self.transport
        if transport is None or transport.is_closing() or self._write_paused or self.waits_for_disk:
            return
        if self._held_back:
            self._run_soon()
        elif self._ended:
            transport.close()
        elif self._stopped_reading:
            self._stopped_reading = False
            transport.resume_reading()

    def moved_to(self, transport: asyncio.Transport) -> None:
        """Continues the session over ``transport``, which encrypts."""
        self.transport = transport
        transport.set_write_buffer_limits(REPLIES_HIGH_WATER)
        self._stopped_reading = False
        self.heard = self.context.ticks
        self.state = State.COMMAND
        self.go_on()

    # -- for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greets the client."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own
        self.transport.set_write_buffer_limits(REPLIES_HIGH_WATER)
        self.greet()

    def greet(self) -> None:
        """Sends the greeting."""
        if self.transport is not None:
            self.transport.write(self.context.greeting)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the session and tells the server, once."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._buffer = b""
        self.transport = None
        self._on_closed(self)
        self.broken_off()

    def eof_received(self) -> bool:
        """Keeps the connection open for the reply when a message still waits for the disk."""
        self._ended = True
        return self.waits_for_disk and self.transport is not None and self.transport.can_write_eof()

    def pause_writing(self) -> None:
        """Stops reading from a client that does not read its replies."""
        self._write_paused = True
        self.stop_reading()

    def resume_writing(self) -> None:
        """Reads again from a client that has read its replies."""
        self._write_paused = False
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Runs one turn: takes what came and writes the replies."""
        if self.state is _TLS:  # the plain transport is not read any more: this is the first that came encrypted
            self._buffer += data
            self._held_back = True
            return
        try:
            self._take(data)
        except Exception as error:  # it is no longer known where the next command begins
            self.context.intake.session_failed(self.address, error)
            self.broken_off()
            self.last_reply(b"421 4.3.0 " + self.context.name + b" Error: internal error")
        if self._replies:
            self.flush()

    def idle(self, reason: bytes = b"timeout exceeded") -> None:
        """Ends a session in which nothing came for too long, unless the client is waiting for us."""
        if self.waits_for_disk:
            self.heard = self.context.ticks
        elif self._write_paused or self.state not in _HEARS:
            self.abort()
        else:
            self.broken_off()
            self.last_reply(b"421 4.4.2 " + self.context.name + b" Error: " + reason)

    # -- a turn

    def _take(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        self._held_back = False
        at = 0
        turns = COMMANDS_PER_TURN if self.trusted else COMMANDS_PER_TURN_OTHERS
        while at < len(data):
            state = self.state
            if state is _COMMAND:
                if not turns:
                    self._hold_back(data[at:])
                    self._run_soon()
                    return
                turns -= 1
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._begun(data[at:])
                    return
                line = data[at:end]
                at = end + 2
                self.heard = self.context.ticks
                if len(line) + 2 > self.context.settings.command_line_limit and b"\n" not in line:
                    self.error(_LINE_TOO_LONG)
                else:
                    self.command(line)
                    if self._left:
                        data, at, self._left = self._left + b"\r\n" + data[at:], 0, b""
            elif state is _DATA:
                if self.waits_for_disk:  # reading is paused, but a transport (TLS) may have had something left
                    self._hold_back(data[at:])
                    return
                self.heard = self.context.ticks
                data = self.data(data[at:])
                at = 0
            elif state is _SKIP:
                data = self._skip(data[at:])
                at = 0
            elif state is _RESPONSE:
                at = self._take_response(data, at)
            elif state is _WAITING:
                self._hold_back(data[at:])
                return
            elif state is _CHUNK:
                if self.waits_for_disk:
                    self._hold_back(data[at:])
                    return
                self.heard = self.context.ticks
                data = self.chunk(data[at:])
                at = 0
            else:  # the session is over
                return

    def _take_response(self, data: bytes, at: int) -> int:
        """Takes a line of an exchange; returns where the next one begins."""
        if self._replies:  # our challenge is among them, so the client has not seen it
            self.pipelined()
            return at
        bare = data.find(b"\n", at)
        if bare >= 0 and data[max(bare - 1, at) : bare] != b"\r" and bare - at <= RESPONSE_OCTETS_MAX:
            self.heard = self.context.ticks
            self.response(data[at : bare + 1])  # which is not base64
            self._behind_lf = True
            return bare
        end = data.find(b"\r\n", at)
        if (len(data) if end < 0 else end + 2) - at > RESPONSE_OCTETS_MAX:
            self.response_too_long()
            self.state = State.SKIP
            self._too_long = _RESPONSE_TOO_LONG
            return at
        if end < 0:
            self._buffer = data[at:]
            return len(data)
        self.heard = self.context.ticks
        self.response(data[at:end])
        return end + 2

    def _hold_back(self, data: bytes) -> None:
        self._buffer = data
        self._held_back = True
        self.stop_reading()

    def _run_soon(self) -> None:
        if not self._run_scheduled:
            self._run_scheduled = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        self._run_scheduled = False
        if self.transport is not None and not self._write_paused and not self.waits_for_disk:
            self.data_received(b"")
            self.go_on()

    def _begun(self, data: bytes) -> None:
        """Keeps the beginning of a line; what a bare LF ends is answered now."""
        if b"\n" in data:
            rest = self.bare_lines(data)
            if self.state is not _COMMAND:
                if self._left:
                    self._hold_back(self._left)
                    self._left = b""
                return
            data = b"\n" + rest
            self._behind_lf = True
        if len(data) > self.context.settings.command_line_limit:
            self.state = State.SKIP
            self._buffer = b"\r" if data.endswith(b"\r") else b""
        else:
            self._buffer = data

    def bare_lines(self, data: bytes) -> bytes:
        """Refuses each line that a bare LF ends; returns what is behind the last one, which is not a command either.

        If a reply comes late, what is behind its line waits in ``_left``.
        """
        *ended, rest = data.split(b"\n")
        if self._behind_lf and not ended[0]:
            del ended[0]
        self._behind_lf = False
        for number in range(len(ended)):
            self.error(_BARE_LF)
            if self.state is not _COMMAND:  # there were many, or too many
                if self.state is _WAITING:
                    self._left = b"\n".join([b"", *ended[number + 1 :], rest])
                    self._behind_lf = True
                return b""
        return rest

    def _skip(self, data: bytes) -> bytes:
        bare = data.find(b"\n")
        end = data.find(b"\r\n")
        if bare >= 0 and bare != end + 1:
            self.state = State.COMMAND
            too_long, self._too_long = self._too_long, _LINE_TOO_LONG
            self.error(too_long)
            self._behind_lf = True
            return data[bare:]
        if end < 0:
            self._buffer = b"\r" if data.endswith(b"\r") else b""
            return b""
        self.state = State.COMMAND
        too_long, self._too_long = self._too_long, _LINE_TOO_LONG
        self.error(too_long)
        return data[end + 2 :]
