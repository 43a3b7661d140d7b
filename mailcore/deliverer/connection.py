"""One SMTP connection to one address: connect, greeting, EHLO or HELO, STARTTLS; commands out, replies in.

On aiosmtplib's protocol object, from which it takes STARTTLS (with its defence against injected replies) and the parsing of
EHLO; reading replies is our own, because aiosmtplib pairs one reply with one command and so cannot do PIPELINING
(docs/decisions/0002).

Laws:
- What a server does wrong is a value: ``failure`` is set once, and from then on nothing more is sent or read. Replies that came
  before it can still be taken.
- Nothing waits without a time-out; one timer per connection, set again only when it would fire too late.
- An idle connection that receives anything at all is dead: what came belongs to no command.

Knows nothing of messages and verdicts.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import os
import socket
import ssl
import struct
from collections.abc import Callable
from typing import cast

from aiosmtplib import SMTPException, SMTPResponse, SMTPServerDisconnected
from aiosmtplib.esmtp import parse_esmtp_extensions
from aiosmtplib.protocol import SMTPProtocol

from mailcore.deliverer.keyword_masks import NO_MASK
from mailcore.deliverer.replies import Reply, ReplyError, ReplyParser
from mailcore.deliverer.server_limits import ServerLimits, limits_of
from mailcore.esmtp import OutgoingTable
from mailcore.exhaustion import is_exhausted

__all__ = ["Cause", "Connection", "Failure", "connect_error_text"]

WRITE_BUFFER_HIGH = 64 * 1024  # bytes waiting in our memory for a slow server; beyond it we read no more from disk
WRITE_BUFFER_LOW = 16 * 1024
LINGER_NOT = struct.pack("ii", 1, 0)  # socket(7): close discards unsent data, and resets the connection
REPLIES_UNASKED_MAX = 10  # more replies than commands: not a server to talk to
_EIGHT_BIT = frozenset(("8bitmime", "smtputf8", "binarymime"))  # the others imply the first (RFC 6531 3.1, RFC 3030 3)
_NONE_OFFERED = OutgoingTable((), {})


class Failure(enum.Enum):
    """How a conversation ended early. The values are Postfix's texts, to be filled with the server's name."""

    LOST = "lost connection with {name} while {stage}"
    TIMEOUT = "conversation with {name} timed out while {stage}"
    PROTOCOL = "protocol error in the conversation with {name} while {stage}"


class Connection(SMTPProtocol):
    """A connection to ``host`` at ``address``; ``on_lost`` is called once, when the socket is gone."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, host: str, address: str, port: int, destination: str = ""
    ) -> None:
        super().__init__(loop=loop)
        self.destination = destination  # of its last delivery, if several queues share the limit of that
        self.host = host
        self.address = address
        self.name = f"{host}[{address}]"  # Postfix's form
        self.relay = f"{self.name}:{port}" if port else self.name  # a Unix socket has no port
        self.speaks_lmtp = False  # RFC 2033; set before ``hello``
        self.source_address = ""  # of our end, once connected
        self.tls = ""
        self.tls_verified = False  # the certificate was checked, as ``tls_level`` demands
        self.tls_level = ""  # as Delivered.tls_level
        self.tls_error = ""  # why the handshake failed
        self.tls_exception: Exception | None = None  # the same; also what ended an encrypted connection
        self.tls_result = ""  # a ``mailcore.tls_result.Result`` if mail goes in the clear instead, and its reason code
        self.tls_reason = ""
        self.mechanisms: list[str] = []  # of AUTH, as EHLO offered them
        self.features: dict[str, str] = {}  # EHLO keyword in lower case -> parameters; empty after HELO
        self.discarded = NO_MASK  # keywords that are left out of ``features``; set before ``hello``
        self.hides_starttls = False  # the server offers it, and it is discarded
        self.extensions = _NONE_OFFERED  # what ``features`` mean for a transaction; the client sets it after EHLO
        self.pipelining = False
        self.takes_8bit = False  # in the data
        self.prefers_chunks = False  # BDAT also for data that DATA can carry; the client sets it after EHLO
        self.limits: ServerLimits | None = None  # as EHLO announced them
        self.size_limit = 0  # bytes, 0: none or unknown
        self.uses = 0  # transactions begun
        self.opened_at = loop.time()
        self.needs_reset = False  # the last transaction was left open: RSET before the next
        self.resting = False  # in the cache
        self.failure: Failure | None = None
        self.on_lost: Callable[[Connection], None] | None = None
        self._parser = ReplyParser()
        self._replies: list[Reply] = []
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None  # for replies, or for room in the write buffer
        self._deadline = float("inf")
        self._patience_s = 0.0
        self._queued = 0  # bytes in the write buffer when the deadline was set
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sets the bounds of the write buffer."""
        super().connection_made(transport)
        own = transport.get_extra_info("sockname")
        self.source_address = str(own[0]) if isinstance(own, tuple) else ""  # a Unix socket has a text
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW)

    def data_received(self, data: bytes) -> None:
        """Parses replies and wakes the waiting transaction; data that no command asked for ends the connection."""
        if self.failure is not None:
            return
        replies = self._replies
        if self.resting:
            self._fail(Failure.LOST)  # most likely "421 idle for too long"
            return
        before = len(replies)
        try:
            self._parser.feed(data, replies)
        except ReplyError:
            self._fail(Failure.PROTOCOL)
            return
        if len(replies) >= self._wanted:
            if len(replies) > self._wanted + REPLIES_UNASKED_MAX:
                self._fail(Failure.PROTOCOL)
            else:
                self._wake()
        elif self._waiter is not None and len(replies) > before:  # whole replies count, single bytes do not
            self._set_deadline(self._patience_s)

    def eof_received(self) -> bool:
        """Takes the end of the server's data as a lost connection."""
        self._fail(Failure.LOST)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer and tells the cache."""
        if isinstance(exc, ssl.SSLError):
            self.tls_exception = exc.with_traceback(None)  # an alert of the server
        if self.failure is None:
            self._fail(Failure.LOST)
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.on_lost is not None:
            self.on_lost(self)

    def pause_writing(self) -> None:
        """Notes that the write buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Wakes a transaction that waits for room in the write buffer."""
        self._paused = False
        if not self._wanted:
            self._wake()

    # Talking

    async def greeting(self, timeout_s: float) -> Reply | None:
        """Returns the server's greeting; None when ``failure`` says why there is none."""
        replies = await self.replies(1, timeout_s)
        return replies[0] if replies else None

    async def command(self, line: bytes, timeout_s: float) -> Reply | None:
        """Sends one command (without CRLF) and returns its reply; None when ``failure`` says why there is none."""
        if not self.is_silent:  # it answered what was not asked: its next reply would be taken for another's
            self.distrust()
            return None
        self.send(line + b"\r\n")
        replies = await self.replies(1, timeout_s)
        return replies[0] if replies else None

    def send(self, *parts: bytes) -> None:
        """Hands ``parts`` to the socket in one call, without joining them; nothing happens on a connection that failed."""
        if self.failure is None and self.transport is not None:
            self.transport.writelines(parts)  # type: ignore[attr-defined]

    @property
    def is_taking(self) -> bool:
        """Returns whether the write buffer has room and no reply has come, so that more can be sent at once."""
        return not self._paused and self.failure is None and not self._replies

    async def replies(self, count: int, timeout_s: float) -> list[Reply]:
        """Returns the next ``count`` replies, each at most ``timeout_s`` after the one before; fewer after a ``failure``."""
        if len(self._replies) < count and self.failure is None:
            self._wanted = count
            await self._wait(timeout_s)
            self._wanted = 0
        taken = self._replies[:count]
        del self._replies[:count]
        return taken

    async def room(self, timeout_s: float) -> bool:
        """Waits until the write buffer has room, as long as it shrinks; false when there is nothing more to send.

        That is after a failure, or after a reply that came while we are still sending.
        """
        if not self._paused:
            await asyncio.sleep(0)  # a server as fast as we must not keep the loop from all others
        elif self.failure is None and not self._replies:
            await self._wait(timeout_s)
        return self.failure is None and not self._replies

    async def drained(self, timeout_s: float) -> bool:
        """Waits until the system has all that was sent, as long as the write buffer shrinks; false as in ``room``."""
        if self._write_buffer_size():
            transport = cast(asyncio.WriteTransport, self.transport)
            transport.set_write_buffer_limits(0)
            while self._paused and self.failure is None and not self._replies:
                await self._wait(timeout_s)
            if self.failure is None:
                transport.set_write_buffer_limits(WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW)
        return self.failure is None and not self._replies

    @property
    def is_quiet(self) -> bool:
        """Returns whether the connection works, every reply was taken and none has begun: the next reply belongs to the
        next command."""
        return self.failure is None and self.is_silent

    @property
    def is_silent(self) -> bool:
        """Returns whether nothing was received since the last reply that was taken."""
        return not self._replies and self._parser.is_between_replies

    def distrust(self) -> None:
        """Replies and commands no longer match: ends the connection."""
        self._fail(Failure.PROTOCOL)

    def abort(self) -> None:
        """Closes at once; unsent data is thrown away."""
        self.failure = self.failure or Failure.LOST
        if self.transport is not None:
            if self.destination:
                self._reset_at_close()
            self.transport.abort()  # type: ignore[attr-defined]

    def _reset_at_close(self) -> None:
        """Lets the close be a reset: what a server has not read yet would keep the connection open at its end."""
        own = self.transport.get_extra_info("socket") if self.transport is not None else None
        if own is not None and own.fileno() >= 0:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)

    def quit(self) -> None:
        """Says QUIT and closes without waiting for the answer (Postfix's smtp_skip_quit_response)."""
        if self.failure is None and self.transport is not None:
            self.transport.write(b"QUIT\r\n")  # type: ignore[attr-defined]
            self.failure = Failure.LOST
            self.transport.close()

    # Beginning

    async def hello(self, our_name: bytes, timeout_s: float) -> Reply | None:
        """Sends EHLO, or HELO where that is refused; returns the last reply. ``features`` are what EHLO offered.

        In LMTP it is LHLO (RFC 2033 4.1), and there is no other.
        """
        self.features, self.mechanisms, self.pipelining, self.size_limit, self.limits = {}, [], False, 0, None
        self.takes_8bit = False
        reply = await self.command((b"LHLO " if self.speaks_lmtp else b"EHLO ") + our_name, timeout_s)
        if reply is None or reply.code == 421:
            return reply
        if 200 <= reply.code < 300:
            self.features, self.mechanisms = parse_esmtp_extensions("\n".join(reply.lines))
            if self.discarded:
                self._discard()
            self.pipelining = "pipelining" in self.features
            self.takes_8bit = not _EIGHT_BIT.isdisjoint(self.features)
            size = self.features.get("size", "").strip()
            self.size_limit = int(size) if size.isascii() and size.isdecimal() and len(size) < 20 else 0
            self.limits = limits_of(self.features)
            return reply
        if self.speaks_lmtp:
            return reply
        return await self.command(b"HELO " + our_name, timeout_s)

    def _discard(self) -> None:
        self.hides_starttls = "starttls" in self.discarded and "starttls" in self.features
        for keyword in self.discarded:
            self.features.pop(keyword, None)
        if "auth" in self.discarded:
            self.mechanisms = []

    async def encrypt(self, context: ssl.SSLContext, timeout_s: float, server_name: str = "") -> Reply | None:
        """Sends STARTTLS and does the handshake; returns the reply, None when the handshake or the connection failed.

        ``server_name`` is for SNI instead of the host's name. The names in the certificate are not looked at here;
        ``tls_error`` has the reason of a failed handshake.
        """
        name = server_name or (None if self.host == self.address else self.host)
        try:
            response = await super().start_tls(context, server_hostname=name, timeout=timeout_s)
        except SMTPException as error:
            code = getattr(error, "code", 0)
            if self.failure is None and code:  # refused; the connection stays open
                return Reply(code, (str(getattr(error, "message", "")),))
            self.abort()
            return None
        except ssl.SSLCertVerificationError as error:
            self.tls_error, self.tls_exception = (
                f"Server certificate not trusted: {error.verify_message}",
                error.with_traceback(None),
            )
            self.abort()
            return None
        except (
            OSError,
            ValueError,
        ) as error:  # ssl.SSLError is an OSError; a host name that SNI cannot say, a ValueError
            self.tls_error, self.tls_exception = f"handshake failure{_reason(error)}", error.with_traceback(None)
            self.abort()
            return None
        # Forget what came in the clear after the 220: anyone on the network may have sent it (RFC 3207 6).
        self._replies.clear()
        self._parser.clear()
        self.features, self.mechanisms = {}, []
        if self.failure is not None or self.transport is None:
            return None
        secured = self.transport.get_extra_info("ssl_object")
        cipher = secured.cipher()
        self.tls = f"{secured.version()} {cipher[0] if cipher else ''}".strip()
        cast(asyncio.WriteTransport, self.transport).set_write_buffer_limits(WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW)
        return Reply(response.code, (response.message,))

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        """Returns the TLS session; None in the clear."""
        found: ssl.SSLObject | None = (
            self.transport.get_extra_info("ssl_object") if self.transport is not None else None
        )
        return found

    async def read_response(self, timeout: float | None = None) -> SMTPResponse:  # noqa: ASYNC109
        """Returns the next reply in the form that aiosmtplib's start_tls asks for."""
        replies = await self.replies(1, timeout if timeout is not None else self._patience_s)
        if not replies:
            raise SMTPServerDisconnected("Connection lost")
        return SMTPResponse(replies[0].code, "\n".join(replies[0].lines))

    # Waiting

    async def _wait(self, timeout_s: float) -> None:
        waiter = self._waiter = self._loop.create_future()
        self._set_deadline(timeout_s)
        try:
            await waiter
        finally:
            self._waiter = None
            self._deadline = float("inf")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Failure) -> None:
        if self.failure is None:
            self.failure = failure
        self._wake()
        if self.transport is not None and failure is not Failure.LOST:
            self.transport.abort()  # type: ignore[attr-defined]
        elif self.transport is not None:
            self.transport.close()

    def _set_deadline(self, timeout_s: float) -> None:
        self._patience_s = timeout_s
        self._deadline = self._loop.time() + timeout_s
        self._queued = self._write_buffer_size()
        if self._timer is None or self._timer_at > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = self._deadline
            self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None or self.failure is not None:
            return  # the next wait sets the timer again
        if self._loop.time() >= self._deadline:
            if 0 < self._write_buffer_size() < self._queued:
                self._set_deadline(self._patience_s)  # slow, but the buffer shrinks
            else:
                self._fail(Failure.TIMEOUT)
        else:
            self._timer_at = self._deadline
            self._timer = self._loop.call_at(self._deadline, self._on_timer)

    def _write_buffer_size(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0  # type: ignore[attr-defined]


def _reason(error: Exception) -> str:
    """Returns OpenSSL's word for the error of a handshake, with a colon in front; "" without one."""
    reason = getattr(error, "reason", None)
    return f": {reason.replace('_', ' ').lower()}" if isinstance(reason, str) else ""


class Cause(enum.Enum):
    """Names the side that prevents a connection."""

    SITE = "the site's"
    LOCAL = "ours, with this address: another may do"
    MACHINE = "ours, for every site"


# A firewall of our own, no port left for this address (Linux gives a port to several addresses), no such protocol here.
# A remote domain's DNS can lead us to such an address, so only that address is held to be bad.
_LOCAL = frozenset({errno.EADDRNOTAVAIL, errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT})


def connect_error_text(error: Exception) -> tuple[str, Cause]:
    """Returns the error of connect(2) as text, and where its reason lies."""
    if isinstance(error, TimeoutError):
        return "Connection timed out", Cause.SITE
    number = error.errno if isinstance(error, OSError) else None
    text = os.strerror(number) if number else str(error)
    if is_exhausted(error):
        return text, Cause.MACHINE
    return text, Cause.LOCAL if number in _LOCAL else Cause.SITE
