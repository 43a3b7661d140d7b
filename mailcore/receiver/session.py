"""The commands of an SMTP session, and their replies. Replaces aiosmtpd's session, without its defects (decision 0004).

Laws (law: command-ends-at-crlf, law: error-is-451, law: starttls-forgets; docs/laws.md)
- Which command is allowed when, is in the table of commands and nowhere else.
- A command with a bare LF, a bare CR or a NUL is refused.
- An exception in a command is 451 4.3.0 to the client and a line in our log.
- After STARTTLS nothing said before counts (RFC 3207 4.2), and nothing sent before is read (CVE-2024-34083).
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple

from mailcore.esmtp import BINARY
from mailcore.receiver.command import Mail, ReplyOf, parse_mail
from mailcore.receiver.command_table import NOT_IMPLEMENTED, TABLE, Argument, Gate, Phase, Rule, table_of
from mailcore.receiver.data_session import Transaction
from mailcore.receiver.incoming import INTERNAL_ERROR, TOO_BIG
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.named_client import NO_ADDRESS
from mailcore.receiver.recipient_session import RecipientSession
from mailcore.receiver.requests import settle
from mailcore.receiver.server_context import ServerContext
from mailcore.receiver.spool_upload import WRITE_ERROR
from mailcore.receiver.tls_failure import why_failed
from mailcore.request_priority import MT_PRIORITY

__all__ = ["ACTIONS", "COMMANDS", "ServerSession"]

_BLANKS = re.compile(rb"[ \t]+")
_NOT_ASCII = re.compile("[^\x00-\x7f]")
HELO_OCTETS_MAX = 255  # a domain, RFC 5321 4.5.3.1.2
# Reading a member from its class takes 0.1 us, and these are read for every command.
_CONNECTED, _GREETED, _MAIL = Phase.CONNECTED, Phase.GREETED, Phase.MAIL


class ServerSession(RecipientSession):
    """The SMTP session of one connection. ``server_address`` is our address, the one that the client connected to."""

    def __init__(
        self,
        context: ServerContext,
        address: str,
        port: int,
        server_address: str,
        closed: Callable[[LineSession], None],
    ) -> None:
        super().__init__(context, address, port, server_address, closed)
        self._commands = TABLES[context.gate(False, False, self.trusted)]
        if context.is_implicit:
            self.state = State.TLS  # until connection_made, which comes after the handshake
        self._handshake: asyncio.Task[None] | None = None

    def broken_off(self) -> None:
        """Abandons a message and a TLS handshake that are under way."""
        if self._handshake is not None:
            self._handshake.cancel()
        super().broken_off()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greets the client; over implicit TLS after the handshake."""
        if self.context.is_implicit:
            self.state = State.COMMAND
            self._secured(transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the session; logs an alert of a client that has seen our certificate after its handshake (TLS 1.3)."""
        if isinstance(error, ssl.SSLError) and self.tls and self.state is not State.CLOSED:
            self.context.intake.tls_failed(self.address, self.client_name, why_failed(error))
        super().connection_lost(error)

    def _secured(self, transport: asyncio.BaseTransport) -> None:
        """Notes the encryption of the transport, and forgets all that came before it (law: starttls-forgets)."""
        tls = transport.get_extra_info("ssl_object")
        self.tls = f"{tls.version()} {tls.cipher()[0]}"
        self.session.ssl = {"ssl_object": tls}
        self.session.host_name = None
        self.session.extended_smtp = False
        self.end_transaction()
        self.phase = _CONNECTED
        self.offer = self.context.offer(self.address, True)
        self.choose_commands()

    def choose_commands(self) -> None:
        """Chooses the table of commands by what the client has done: TLS, login."""
        self._commands = TABLES[self.context.gate(bool(self.tls), bool(self.login), self.trusted)]

    def distrust(self) -> None:
        """Makes this the session of an unknown client, which a balancer cannot name.

        The balancer's address is not the client's: it may be in our own networks, and the envelope is judged by its address
        again, long after this session.
        """
        self.trusted = self.is_named = False
        self.address, self.port = NO_ADDRESS, 0
        self.offer = self.context.offer(self.address, bool(self.tls))
        self.choose_commands()

    # -- commands

    def command(self, line: bytes) -> None:
        """Runs one command line: checks it by the table of commands, then acts."""
        verb, _, argument = line.partition(b" ")
        if b"\n" in line:
            self.bare_lines(line)
            line = b"\r"  # the part behind the last LF is refused, too, unless the session has ended
            if self.state is not State.COMMAND:
                return
        if b"\r" in line or b"\0" in line:
            self.error(b"500 5.5.2 Error: bad syntax: CR, LF or NUL inside a command")
            return
        command = self._commands.get(verb) or self._commands.get(verb.upper())
        if command is None:
            self._unknown(line)
            return
        act, replies, takes_none, needs_argument, syntax_error, is_junk = command
        argument = argument.strip(b" \t")
        if takes_none if argument else needs_argument:
            self.error(syntax_error)
            return
        if refusal := replies[self.phase]:
            if verb.upper() == b"BDAT":
                self.refuse_chunk(argument, refusal)
            else:
                self.error(refusal)
            return
        try:
            reply = act(self, argument)
        except Exception as error:  # a bug or a failing disk: the client is not to blame
            self.context.intake.session_failed(self.address, error)
            self.end_transaction()
            self.useless(INTERNAL_ERROR)
            return
        if not reply:
            return
        if is_junk and self.is_junk():
            self.error(reply)
            return
        self._replies.append(reply)

    def _unknown(self, line: bytes) -> None:
        """Runs a command with blanks or tabs around its verb; ends a session that sends a header field. As Postfix."""
        verb, *rest = _BLANKS.split(line.strip(b" \t"), 1)
        if verb.upper() in self._commands:
            self.command(b" ".join((verb, *rest)))  # of the whole session: milters hear of it, too
        elif b":" in verb[1:]:
            self.end_forbidden(b"")
        else:
            self.error(b"500 5.5.2 Error: command not recognized" if verb else b"500 5.5.2 Error: bad syntax")

    # Each command's action returns its reply, or b"" when it has sent it.

    def smtp_HELO(self, argument: bytes) -> bytes:
        """Greets a client without extensions."""
        return b"250 " + self.context.name if self._greet(argument, b"HELO", extended=False) else b""

    def smtp_EHLO(self, argument: bytes) -> bytes:
        """Greets a client and names the extensions."""
        if not self._greet(argument, b"EHLO", extended=True):
            return b""
        if self.context.hold_max_s:
            self.context.renew_offers()
        self.offer = self.context.offer(self.address, bool(self.tls))
        return self.announced(self.offer.ehlo) if self.context.names_clients else self.offer.ehlo

    def _greet(self, argument: bytes, verb: bytes, extended: bool) -> bool:
        name = argument.decode("ascii", "replace")
        if self.context.lenient.helo_blanks and (self.trusted or self.login):
            name = _NOT_ASCII.sub("_", name.replace(" ", "_"))
        if len(name) > HELO_OCTETS_MAX or " " in name or not name.isascii() or not name.isprintable():
            self.error(COMMANDS[verb].syntax_error)
            return False
        self.session.host_name = name
        self.session.extended_smtp = extended
        self.end_transaction()
        self.phase = _GREETED
        return True

    def smtp_MAIL(self, argument: bytes) -> bytes:
        """Begins a mail transaction."""
        if self.context.is_ending:
            self.end_for_reload()
            return b""
        if self.login and self.refuses_user():
            return b""
        mail = parse_mail(argument, self.session.extended_smtp, self.offer.mail)
        if isinstance(mail, ReplyOf) and (self.trusted or self.login):
            mail = parse_mail(argument, self.session.extended_smtp, self.offer.mail, self.context.lenient_path)
        if isinstance(mail, ReplyOf):
            self.refuse("MAIL", mail.reply)
            return b""
        if mail.size_bytes > self.context.settings.message_size_limit:
            self.refuse("MAIL", TOO_BIG)
            return b""
        unavailable = self.context.intake.unavailable(mail.size_bytes)
        if unavailable:
            self.refuse("MAIL", unavailable, is_mistake=False)
            return b""
        if self.context.rates is not None and not self.trusted:
            refusal = self.context.rates.message(self.address)
            if refusal:
                self.refuse("MAIL", refusal, is_mistake=False)
                return b""
        if self.login and (refusal := self.refuses_sender(mail.sender)):
            self.refuse("MAIL", refusal, is_mistake=refusal[:1] == b"5")
            return b""
        envelope = self.envelope
        envelope.mail_from = mail.sender
        envelope.smtp_utf8 = mail.smtputf8
        envelope.eight_bit = mail.eight_bit
        envelope.options = mail.options
        reply = self._settle(mail) if mail.requests else b"250 2.1.0 Ok"
        if reply:
            self.phase = _MAIL
        return reply

    def end_for_reload(self) -> None:
        """Ends the session between two transactions (RFC 5321 3.8): the client comes back to a process with other settings."""
        self.last_reply(b"421 4.3.2 " + self.context.name + b" Service is being reloaded; connect again")

    @property
    def is_between_transactions(self) -> bool:
        """Returns whether nothing is lost if the session ends now: no transaction, no command that has only begun."""
        return self.phase <= _GREETED and self.state is State.COMMAND and not self._buffer

    def _settle(self, mail: Mail) -> bytes:
        """Does what parameters of MAIL ask for; returns the reply, or b"" if it refused one."""
        limits = self.context.esmtp
        priority_max = limits.login_priority_max if self.login else limits.priority_max if self.trusted else None
        settled = settle(mail.requests, limits, time.time(), priority_max)
        if isinstance(settled, bytes):
            self.refuse("MAIL", settled)
            self.envelope = Transaction()
            return b""
        self.envelope.not_before = settled.not_before
        self.envelope.options += settled.options
        if settled.priority == mail.requests.get(MT_PRIORITY, 0):
            return b"250 2.1.0 Ok"
        return b"250 2.3.6 %d is the new priority assigned to the message" % settled.priority  # RFC 6710 5

    def smtp_DATA(self, argument: bytes) -> bytes:
        """Begins to receive the message."""
        if self.login and self.refuses_user():
            return b""
        if self.envelope.options and BINARY in self.envelope.options:
            self.error(b"503 5.5.1 Error: BODY=BINARYMIME needs BDAT")
            return b""
        try:
            self.begin_data()
        except OSError:  # no queue id: the disk fails
            return WRITE_ERROR
        return b"354 End data with <CR><LF>.<CR><LF>"

    def smtp_RSET(self, argument: bytes) -> bytes:
        """Ends the transaction without a message."""
        self.end_transaction()
        return b"250 2.0.0 Ok"

    def smtp_NOOP(self, argument: bytes) -> bytes:
        """Does nothing."""
        return b"250 2.0.0 Ok"

    def smtp_VRFY(self, argument: bytes) -> bytes:
        """Answers as RFC 5321 3.5.3 asks of a server that does not verify addresses."""
        return b"252 2.0.0 Cannot VRFY user, but will accept message and attempt delivery"

    def smtp_HELP(self, argument: bytes) -> bytes:
        """Names the commands."""
        return _HELP

    def smtp_QUIT(self, argument: bytes) -> bytes:
        """Ends the session."""
        self.reply(b"221 2.0.0 Bye")
        self.flush()
        self.state = State.CLOSING
        if self.transport is not None:
            self.transport.close()
        return b""

    def end_forbidden(self, argument: bytes) -> bytes:
        """Ends a session in which a web client speaks HTTP."""
        self.last_reply(b"221 2.7.0 Error: I can break rules, too. Goodbye.")
        return b""

    def smtp_STARTTLS(self, argument: bytes) -> bytes:
        """Begins the TLS handshake (RFC 3207)."""
        if "STARTTLS" in self.offer.discarded:
            self.error(NOT_IMPLEMENTED)
            return b""
        context = self.context.tls_context
        if context is None or self.tls:
            if not self.tls and self.context.rule.tls == "required":
                self.useless(b"454 4.7.0 TLS not available due to local problem")
                return b""
            self.error(b"503 5.5.1 Error: STARTTLS is " + (b"active" if self.tls else b"not offered"))
            return b""
        self.reply(b"220 2.0.0 Ready to start TLS")
        self.flush()
        self.state = State.TLS  # commands that came behind STARTTLS in this turn are dropped
        self.stop_reading()  # start_tls reads again, for the handshake
        self._handshake = self.loop.create_task(self._start_tls(context))
        return b""

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        transport = self.transport
        if transport is None:
            return
        try:
            # The event loop's, not aiosmtpd's, which uses inner parts of asyncio: it has a time-out, and with uvloop is in C.
            upgraded = await self.loop.start_tls(
                transport, self, context, server_side=True, ssl_handshake_timeout=self.context.settings.idle_timeout_s
            )
        except asyncio.CancelledError:  # by us
            upgraded = None
        except OSError as error:  # the client went away, or speaks no TLS version that we speak
            upgraded = None
            if self.state is not State.CLOSED:
                self.context.intake.tls_failed(self.address, self.client_name, why_failed(error))
        finally:
            self._handshake = None
        if self.state is State.CLOSED:
            return
        if upgraded is None:
            transport.abort()
            self.connection_lost(None)  # the loop reports it to the TLS layer alone, which may keep it to itself
            return
        self._secured(upgraded)
        self.moved_to(upgraded)


ACTIONS: dict[bytes, Callable[[ServerSession, bytes], bytes]] = {
    b"HELO": ServerSession.smtp_HELO,
    b"EHLO": ServerSession.smtp_EHLO,
    b"MAIL": ServerSession.smtp_MAIL,
    b"RCPT": ServerSession.smtp_RCPT,
    b"DATA": ServerSession.smtp_DATA,
    b"BDAT": ServerSession.smtp_BDAT,
    b"RSET": ServerSession.smtp_RSET,
    b"NOOP": ServerSession.smtp_NOOP,
    b"VRFY": ServerSession.smtp_VRFY,
    b"HELP": ServerSession.smtp_HELP,
    b"QUIT": ServerSession.smtp_QUIT,
    b"STARTTLS": ServerSession.smtp_STARTTLS,
    b"AUTH": ServerSession.smtp_AUTH,
    b"XCLIENT": ServerSession.smtp_XCLIENT,
    b"XFORWARD": ServerSession.smtp_XFORWARD,
    b"CONNECT": ServerSession.end_forbidden,
    b"GET": ServerSession.end_forbidden,
    b"POST": ServerSession.end_forbidden,
}
"""Maps each command to its action. A command that ``TABLE`` refuses in every phase has no action."""


class _Command(NamedTuple):
    """A row of the table of commands, in the form in which it is checked fastest, and its action."""

    act: Callable[[ServerSession, bytes], bytes]
    replies: tuple[bytes, ...]  # by phase; b"": allowed
    takes_none: bool
    needs_argument: bool
    syntax_error: bytes
    is_junk: bool


def _no_action(session: ServerSession, argument: bytes) -> bytes:
    raise AssertionError("the table of commands refuses this command in every phase")


def _with_actions(table: dict[bytes, Rule]) -> dict[bytes, _Command]:
    return {
        verb: _Command(
            ACTIONS.get(verb, _no_action),
            rule.replies,
            rule.argument is Argument.NONE,
            rule.argument is Argument.REQUIRED,
            b"501 5.5.4 Syntax: " + rule.syntax,
            rule.is_junk,
        )
        for verb, rule in table.items()
    }


TABLES = {gate: _with_actions(table_of(gate)) for gate in Gate}
COMMANDS = TABLES[Gate.OPEN]
_HELP = b"214 2.0.0 Commands: " + b" ".join(sorted(verb for verb, rule in TABLE.items() if rule.is_offered))
