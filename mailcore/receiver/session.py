"""One SMTP session: commands in, replies out. What aiosmtpd's session does, without its defects (decision 0004).

Laws (law: command-ends-at-crlf, law: error-is-451, law: starttls-forgets; docs/laws.md)
- Bare LF, bare CR or NUL make a command a bad one.
- What goes wrong in here is 451 4.3.0 to the client and a line in our log.
- After STARTTLS nothing said before counts (RFC 3207 4.2), and nothing sent before is read (CVE-2024-34083).
- 250 for data only from ``Intake.store``.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiosmtpd.smtp import Envelope as AioEnvelope
from aiosmtpd.smtp import Session as AioSession

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Recipient
from mailcore.receiver.command import Fault, parse_mail, parse_rcpt
from mailcore.receiver.incoming import INTERNAL_ERROR, TOO_BIG, IncomingMessage
from mailcore.receiver.intake import Refusal
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.path import Path
from mailcore.receiver.trace import protocol_name

if TYPE_CHECKING:
    from mailcore.receiver.server import Server

__all__ = ["ServerSession"]

HELO_OCTETS_MAX = 255  # a domain, RFC 5321 4.5.3.1.2
JUNK_COMMANDS_MAX = 100  # NOOP and the like without mail, as Postfix's smtpd_junk_command_limit; then they are errors
_FORBIDDEN = frozenset((b"CONNECT", b"GET", b"POST"))  # Postfix's smtpd_forbidden_commands: no mail client, a web page
_NOT_IMPLEMENTED = frozenset((b"EXPN", b"ETRN", b"TURN", b"SEND", b"SOML", b"SAML", b"BDAT"))


class Transaction(AioEnvelope):
    """aiosmtpd's envelope; ``mail_from`` is None before MAIL."""

    def __init__(self) -> None:
        self.mail_from: str | None = None
        self.smtp_utf8 = False
        self.eight_bit = False
        self.recipients: dict[str, None] = {}  # each once, in order
        self.refused_recipients = False
        self.queue_id = ""  # from DATA on
        self.arrived_at = 0.0


class ServerSession(LineSession):
    """The session of one connection. ``server_address`` is where the client came to."""

    session: AioSession
    envelope: Transaction

    def __init__(self, server: Server, address: str, port: int, server_address: str) -> None:
        super().__init__(server, address, port)
        self.server_address = server_address
        self.session = AioSession(server.loop)
        self.envelope = Transaction()
        self.tls = ""
        self.trusted = server.policy.trusts(address)
        self._incoming: IncomingMessage | None = None
        self._errors = 0
        self._junk = 0
        self._handshake: asyncio.Task[None] | None = None

    @property
    def waits_for_disk(self) -> bool:
        return self.state is State.WAITING or (self._incoming is not None and self._incoming.busy)

    def broken_off(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        if self._incoming is not None:
            self._incoming.abandon()
            self._incoming = None

    # -- commands

    def command(self, line: bytes) -> None:
        verb, _, argument = line.partition(b" ")
        if b"\n" in line or b"\r" in line or b"\0" in line:
            self.error(b"500 5.5.2 Error: bad syntax: CR, LF or NUL inside a command")
            return
        try:
            handler = COMMANDS.get(verb) or COMMANDS.get(verb.upper())
            if handler is None:
                self._unknown(verb.upper())
            else:
                handler(self, argument.strip(b" \t"))
        except Exception as error:  # a bug of ours, or a broken world: not the client's affair
            self.server.intake.session_failed(self.address, error)
            self.envelope = Transaction()
            self.reply(INTERNAL_ERROR)

    def _unknown(self, verb: bytes) -> None:
        if verb in _FORBIDDEN:
            self.last_reply(b"221 2.7.0 Error: I can break rules, too. Goodbye.")
        elif not verb:
            self.error(b"500 5.5.2 Error: bad syntax")
        elif verb == b"AUTH":
            self.error(b"503 5.5.1 Error: authentication not enabled")
        elif verb in _NOT_IMPLEMENTED:
            self.error(b"502 5.5.1 Error: command not implemented")
        else:
            self.error(b"500 5.5.2 Error: command not recognized")

    def error(self, reply: bytes) -> None:
        """A reply that is the client's fault; too many, and it has to go."""
        self._errors += 1
        self.reply(reply)
        if self._errors >= self.server.settings.error_limit:
            self.last_reply(b"421 4.7.0 " + self.server.name + b" Error: too many errors")

    def _refuse(self, stage: str, reply: bytes, recipient: str | None = None, fault: bool = True) -> None:
        """Replies, and records it. ``fault``: whether the client is to blame."""
        if fault:
            self.error(reply)
        else:
            self.reply(reply)
        envelope = self.envelope
        self.server.intake.refused(
            Refusal(
                stage,
                reply.decode("utf-8", "replace"),
                self.address,
                self.session.host_name or "",
                envelope.mail_from,
                recipient,
                self.tls,
                self._protocol(),
                envelope.queue_id,
            )
        )

    def _protocol(self) -> str:
        return protocol_name(self.session.extended_smtp, bool(self.tls), False, self.envelope.smtp_utf8)

    def _bare(self, argument: bytes, verb: bytes) -> bool:
        """Commands that take no argument."""
        if argument:
            self.error(b"501 5.5.4 Syntax: " + verb)
        return not argument

    def _reply_to_junk(self, reply: bytes) -> None:
        """To a command that brings no mail nearer: too many are errors."""
        self._junk += 1
        if self._junk > JUNK_COMMANDS_MAX:
            self.error(reply)
        else:
            self.reply(reply)

    def smtp_HELO(self, argument: bytes) -> None:
        if self._greeted(argument, b"HELO", extended=False):
            self.reply(b"250 " + self.server.name)

    def smtp_EHLO(self, argument: bytes) -> None:
        if self._greeted(argument, b"EHLO", extended=True):
            self.reply(self.server.ehlo_tls if self.tls else self.server.ehlo)

    def _greeted(self, argument: bytes, verb: bytes, extended: bool) -> bool:
        name = argument.decode("ascii", "replace")
        if not name or len(name) > HELO_OCTETS_MAX or " " in name or not name.isascii() or not name.isprintable():
            self.error(b"501 5.5.4 Syntax: " + verb + b" hostname")
            return False
        self.session.host_name = name
        self.session.extended_smtp = extended
        self._reset()
        return True

    def _reset(self) -> None:
        if self.envelope.mail_from is not None:
            self.envelope = Transaction()

    def smtp_MAIL(self, argument: bytes) -> None:
        if not self.session.host_name:
            self.error(b"503 5.5.1 Error: send HELO/EHLO first")
            return
        if self.envelope.mail_from is not None:
            self.error(b"503 5.5.1 Error: nested MAIL command")
            return
        mail = parse_mail(argument, self.session.extended_smtp)
        if isinstance(mail, Fault):
            self._refuse("MAIL", mail.reply)
            return
        if mail.size_bytes > self.server.settings.message_size_limit:
            self._refuse("MAIL", TOO_BIG)
            return
        unavailable = self.server.intake.unavailable(mail.size_bytes)
        if unavailable:
            self._refuse("MAIL", unavailable, fault=False)
            return
        envelope = self.envelope
        envelope.mail_from = mail.sender
        envelope.smtp_utf8 = mail.smtputf8
        envelope.eight_bit = mail.eight_bit
        self.reply(b"250 2.1.0 Ok")

    def smtp_RCPT(self, argument: bytes) -> None:
        envelope = self.envelope
        if envelope.mail_from is None:
            self.error(b"503 5.5.1 Error: need MAIL command")
            return
        recipient = parse_rcpt(argument, envelope.smtp_utf8)
        if isinstance(recipient, Fault):
            envelope.refused_recipients = True
            self._refuse("RCPT", recipient.reply, argument[3:].strip(b" <>:").decode("utf-8", "replace"))
            return
        if not recipient.domain:  # postmaster is always at home here, RFC 5321 4.5.1; then as any other
            name = self.server.hostname
            recipient = Path(f"{recipient.address}@{name}", recipient.local_part, name)
        address = recipient.address
        if not self.server.policy.accepts(recipient, self.trusted):
            envelope.refused_recipients = True
            reply = b"554 5.7.1 <" + address.encode() + b">: Relay access denied"
            self._refuse("RCPT", reply, address)
        elif len(envelope.recipients) >= self.server.settings.recipient_limit and address not in envelope.recipients:
            envelope.refused_recipients = True
            self._refuse("RCPT", b"452 4.5.3 Error: too many recipients", address, fault=False)
        else:
            envelope.recipients[address] = None
            self.reply(b"250 2.1.5 Ok")

    def smtp_DATA(self, argument: bytes) -> None:
        envelope = self.envelope
        if argument:
            self.error(b"501 5.5.4 Syntax: DATA")
        elif envelope.mail_from is None:
            self.error(b"503 5.5.1 Error: need MAIL command")
        elif not envelope.recipients:
            if envelope.refused_recipients:
                self.error(b"554 5.5.1 Error: no valid recipients")
            else:
                self.error(b"503 5.5.1 Error: need RCPT command")
        else:
            self._begin_data(envelope)
            self.reply(b"354 End data with <CR><LF>.<CR><LF>")

    def smtp_RSET(self, argument: bytes) -> None:
        if self._bare(argument, b"RSET"):
            self._reset()
            self._reply_to_junk(b"250 2.0.0 Ok")

    def smtp_NOOP(self, argument: bytes) -> None:
        self._reply_to_junk(b"250 2.0.0 Ok")

    def smtp_VRFY(self, argument: bytes) -> None:
        if not argument:
            self.error(b"501 5.5.4 Syntax: VRFY address")
        else:
            self._reply_to_junk(b"252 2.0.0 Cannot VRFY user, but will accept message and attempt delivery")

    def smtp_HELP(self, argument: bytes) -> None:
        self._reply_to_junk(b"214 2.0.0 Commands: " + b" ".join(sorted(COMMANDS)))

    def smtp_QUIT(self, argument: bytes) -> None:
        if not self._bare(argument, b"QUIT"):
            return
        self.reply(b"221 2.0.0 Bye")
        self.flush()
        self.state = State.CLOSING
        if self.transport is not None:
            self.transport.close()

    def smtp_STARTTLS(self, argument: bytes) -> None:
        context = self.server.tls_context
        if not self._bare(argument, b"STARTTLS"):
            return
        if context is None or self.tls:
            self.error(b"503 5.5.1 Error: STARTTLS is " + (b"active" if self.tls else b"not offered"))
            return
        self.reply(b"220 2.0.0 Ready to start TLS")
        self.flush()
        self.state = State.TLS  # what came behind STARTTLS in this turn is dropped
        self.stop_reading()  # start_tls reads again, for the handshake
        self._handshake = self.loop.create_task(self._start_tls(context))

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        transport = self.transport
        if transport is None:
            return
        try:
            # The loop's own, not aiosmtpd's use of asyncio's inner parts: it has a time-out, and with uvloop is in C.
            upgraded = await self.loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=self.server.settings.idle_timeout_s
            )
        except (OSError, asyncio.CancelledError):  # the client's affair: it went away, or speaks no TLS we speak
            transport.abort()
            return
        finally:
            self._handshake = None
        if upgraded is None or self.state is State.CLOSED:
            return
        tls = upgraded.get_extra_info("ssl_object")
        self.tls = f"{tls.version()} {tls.cipher()[0]}"
        self.session.ssl = {"ssl_object": tls}
        self.session.host_name = None
        self.session.extended_smtp = False
        self.envelope = Transaction()
        self.moved_to(upgraded)

    # -- data

    def _begin_data(self, envelope: Transaction) -> None:
        server, settings = self.server, self.server.settings
        envelope.arrived_at = time.time()
        envelope.queue_id = server.intake.next_id()
        only = next(iter(envelope.recipients)) if len(envelope.recipients) == 1 else ""
        helo = self.session.host_name or ""
        self._incoming = IncomingMessage(
            server.intake,
            envelope.queue_id,
            server.trace.received(helo, self.address, self._protocol(), envelope.queue_id, only, envelope.arrived_at),
            size_limit=settings.message_size_limit,
            received_limit=settings.received_limit,
            inline_limit=server.inline_limit,
            room=self._room,
        )
        self.state = State.DATA

    def _room(self) -> None:
        """The spool took what we had."""
        self.heard = self.server.ticks
        self.go_on()

    def data(self, chunk: bytes) -> bytes:
        message = self._incoming
        assert message is not None  # in state DATA
        message.feed(chunk)
        if message.finished:
            self._incoming = None
            self._end_of_data(message)
            return message.rest
        if message.busy:
            self.stop_reading()
        elif message.is_endless:
            self.broken_off()
            self.last_reply(TOO_BIG)
        return b""

    def _end_of_data(self, message: IncomingMessage) -> None:
        envelope = self.envelope
        self.state = State.WAITING
        if message.failure:
            self._answer(envelope, message.failure)
            return
        recipients = tuple([Recipient(number, address) for number, address in enumerate(envelope.recipients)])
        stored = Envelope(
            queue_id=envelope.queue_id,
            generation=0,
            sender=envelope.mail_from or "",
            recipients=recipients[:RECIPIENTS_PER_RECORD],
            recipient_count=len(recipients),
            arrived_at=envelope.arrived_at,
            size_bytes=message.size_bytes,
            data=DataPlace.SPOOL if message.is_spooled else DataPlace.INLINE,
            data_offset=self.server.spool_data_at if message.is_spooled else 0,
            client_address=self.address,
            client_port=self.port,
            helo=self.session.host_name or "",
            server_address=self.server_address,
            tls=self.tls,
            eight_bit=envelope.eight_bit,
            smtputf8=envelope.smtp_utf8,
            message_id=message.message_id,
        )
        try:
            message.store(stored, recipients[RECIPIENTS_PER_RECORD:], functools.partial(self._stored, envelope))
        except Exception as error:
            self.server.intake.session_failed(self.address, error)
            self._answer(envelope, INTERNAL_ERROR)

    def _stored(self, envelope: Transaction, failure: bytes) -> None:
        """The message is on disk, or it is not."""
        if self.envelope is envelope and self.state is State.WAITING:  # else the client did not wait for it
            self._answer(envelope, failure)
            self.flush()
            self.go_on()

    def _answer(self, envelope: Transaction, failure: bytes) -> None:
        self.state = State.COMMAND
        if failure:
            self._refuse("END-OF-MESSAGE", failure, fault=failure[:1] == b"5")
        else:
            self._errors = self._junk = 0  # as Postfix does: whoever sends mail is not just making trouble
            self.reply(b"250 2.0.0 Ok: queued as " + envelope.queue_id.encode())
        self.envelope = Transaction()


COMMANDS: dict[bytes, Callable[[ServerSession, bytes], None]] = {
    name.removeprefix("smtp_").encode(): method
    for name, method in vars(ServerSession).items()
    if name.startswith("smtp_")
}
"""The table of commands, made once. aiosmtpd's own EXPN and AUTH are not in it; AUTH comes with logins."""
