"""The data of an SMTP session: from the reply 354 to the reply that says what became of the message.

Laws
- 250 for a message only from ``Intake.store``, or for one that a header check discards.
- The client that has gone, or has begun another transaction, gets no reply for the old one.

Knows nothing of commands.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec
from aiosmtpd.smtp import Envelope as AioEnvelope
from aiosmtpd.smtp import Session as AioSession

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Options, Recipient
from mailcore.receiver.chunk_reader import ChunkReader
from mailcore.receiver.command_table import Phase
from mailcore.receiver.incoming import INTERNAL_ERROR, TOO_BIG, IncomingMessage
from mailcore.receiver.intake import MessageIntake, Refusal
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.server_context import ServerContext
from mailcore.receiver.trace import protocol_name
from mailcore.rewriting.header_section import HeaderSection

__all__ = ["DataSession", "Transaction"]

# Reading a member from its class takes 0.1 us, and these are read several times for every message.
_CONNECTED, _GREETED = Phase.CONNECTED, Phase.GREETED
_COMMAND, _DATA, _WAITING = State.COMMAND, State.DATA, State.WAITING
_INLINE, _SPOOL = DataPlace.INLINE, DataPlace.SPOOL


class Transaction(AioEnvelope):
    """A mail transaction; ``mail_from`` is None before MAIL."""

    not_before = 0.0  # wall clock, if the client wants the message held; of the class: most have none

    def __init__(self) -> None:
        self.mail_from: str | None = None
        self.smtp_utf8 = False
        self.eight_bit = False
        self.options: Options = ()  # parameters of MAIL
        self.recipients: dict[str, Options] = {}  # each once, in order, with the parameters of its first RCPT
        self.queue_id = ""  # from DATA on
        self.arrived_at = 0.0

    # Of XFORWARD, for the log; on the class, so that other mail does not pay for them.
    forwarded: Mapping[str, str] = MappingProxyType({})
    original_client = ""  # "name[address]"
    original_queue_id = ""


class DataSession(LineSession):
    """A session with its mail transaction. ``server_address`` is our address, the one that the client connected to."""

    session: AioSession
    envelope: Transaction
    client_name = ""  # of the client's address; "" is unknown
    author_domains: tuple[str, ...] | None = None  # as Envelope.author_domains

    def __init__(
        self,
        context: ServerContext,
        address: str,
        port: int,
        server_address: str,
        closed: Callable[[LineSession], None],
    ) -> None:
        super().__init__(context, address, port, closed)
        self.server_address = server_address
        self.session = AioSession(context.loop)
        self.envelope = Transaction()
        self.phase: Phase = _CONNECTED
        self.offer = context.offer(address, False)
        self.tls = ""  # as Envelope.tls
        self.login = ""  # name of the user who has logged in
        self.login_method = ""  # and how: PLAIN, LOGIN, SCRAM-SHA-256
        self.intake: MessageIntake = context.intake
        self._incoming: IncomingMessage | None = None

    @property
    def waits_for_disk(self) -> bool:
        """Returns whether the message, or a part of it, is being written to the disk."""
        return self.state is _WAITING or (self._incoming is not None and self._incoming.busy)

    @property
    def data_bytes(self) -> int:
        """Returns how much of the message's data has come; 0 outside of it."""
        return 0 if self._incoming is None else self._incoming.received_bytes

    @property
    def is_receiving(self) -> bool:
        """Returns whether a message is under way, also between two chunks."""
        return self._incoming is not None

    def named(self, address: str, name: str) -> None:
        """Takes the name of the client's address, which was looked up."""
        if address == self.address and not self.client_name:
            self.client_name = name

    def broken_off(self) -> None:
        """Abandons a message that is under way."""
        self._abandon()

    def _abandon(self) -> None:
        if self._incoming is not None:
            self._incoming.abandon()
            self._incoming = None

    def refuse(
        self, stage: str, reply: bytes, recipient: str | None = None, is_mistake: bool = True, milter: str = ""
    ) -> None:
        """Replies, and records the refusal. ``is_mistake``: of the client, so that it counts as an error at once."""
        if is_mistake:
            self.error(reply)
        else:
            self.useless(reply)
        self.record_refusal(stage, reply, recipient, milter)

    def record_refusal(self, stage: str, reply: bytes, recipient: str | None = None, milter: str = "") -> None:
        """Records a refusal, without its reply."""
        envelope = self.envelope
        self.context.intake.refused(
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
                self.client_name,
                milter,
            )
        )

    def _protocol(self) -> str:
        return protocol_name(self.session.extended_smtp, bool(self.tls), bool(self.login), self.envelope.smtp_utf8)

    def end_transaction(self) -> None:
        """Forgets the mail transaction, if there is one."""
        if self.phase > _GREETED:
            if self._incoming is not None:  # between two chunks
                self._abandon()
            self.phase = _GREETED
            self.envelope = Transaction()
        elif self.envelope.forwarded:  # XFORWARD comes before MAIL
            self.envelope = Transaction()

    def begin_data(self, reader: ChunkReader | None = None) -> None:
        """Gives the message its queue id and takes what comes as its data. ``reader``: of the chunks of BDAT."""
        envelope = self.envelope
        context, settings = self.context, self.context.settings
        envelope.arrived_at = time.time()
        envelope.queue_id = context.intake.next_id()
        only = next(iter(envelope.recipients)) if len(envelope.recipients) == 1 else ""
        helo = self.session.host_name or ""
        self._incoming = IncomingMessage(
            self.intake,
            envelope.queue_id,
            context.trace.received(
                helo, self.address, self._protocol(), envelope.queue_id, only, envelope.arrived_at, self.client_name
            ),
            size_limit=settings.message_size_limit,
            received_limit=settings.received_limit,
            inline_room=context.inline_room,
            room=self.room,
            tag_header=context.tag_header,
            dropped=context.dropped,
            reader=reader,
        )
        if context.lf_networks is not None and reader is None and context.lf_networks.hold(self.address):
            self._incoming.repair_bare_lf(settings.message_size_limit)
        if context.headers is not None:
            trusted = context.policy.trusts(self.address)
            message = (envelope.queue_id, envelope.mail_from or "", envelope.arrived_at)
            section = context.headers.header_of_client(self.address, trusted, self.login, message)
            if section is not None:
                self._incoming.check_header(section)
        self.state = _DATA

    def room(self) -> None:
        """Continues reading after the spool took what was buffered."""
        self.heard = self.context.ticks
        self.go_on()

    def data(self, chunk: bytes) -> bytes:
        """Takes a piece of the data; returns what follows the data's end."""
        message = self._incoming
        assert message is not None  # in state DATA
        message.feed(chunk)
        if message.finished:
            self._incoming = None
            self.end_of_data(message)
            return message.rest
        if message.busy:
            self.stop_reading()
        elif message.is_endless:
            self.broken_off()
            self.last_reply(TOO_BIG)
        return b""

    def end_of_data(self, message: IncomingMessage) -> None:
        """Stores the message, or refuses it; the reply follows."""
        envelope = self.envelope
        self.state = _WAITING
        section = message.section
        if section is not None and section.notes:
            self._log_checks(section)
        if message.failure:
            self.answer(envelope, message.failure)
            return
        recipients = tuple([Recipient(number, address) for number, address in enumerate(envelope.recipients)])
        if any(envelope.recipients.values()):
            recipients = tuple(map(_with_options, recipients, envelope.recipients.values()))
        held_because = ""
        if section is not None:
            if section.is_discarded:
                message.fail(b"")
                self._stored(envelope, b"")
                return
            held_because = section.held_because
            if section.redirect or section.copies:
                recipients = section.recipients(recipients)
        stored = Envelope(
            queue_id=envelope.queue_id,
            generation=0,
            sender=envelope.mail_from or "",
            recipients=recipients[:RECIPIENTS_PER_RECORD],
            recipient_count=len(recipients),
            arrived_at=envelope.arrived_at,
            size_bytes=message.size_bytes,
            data=_SPOOL if message.is_spooled else _INLINE,
            data_offset=self.context.spool_data_at if message.is_spooled else 0,
            client_address=self.address,
            client_port=self.port,
            helo=self.session.host_name or "",
            server_address=self.server_address,
            tls=self.tls,
            login=self.login,
            eight_bit=envelope.eight_bit,
            smtputf8=envelope.smtp_utf8,
            message_id=message.message_id,
            tag=message.tag,
            not_before=envelope.not_before,
            options=envelope.options,
            data_sums=message.data_sums,
            login_method=self.login_method,
            client_name=self.client_name,
            original_client=envelope.original_client,
            original_queue_id=envelope.original_queue_id,
            held_because=held_because,
            author_domains=self.author_domains,
        )
        try:
            message.store(stored, recipients[RECIPIENTS_PER_RECORD:], functools.partial(self._stored, envelope))
        except Exception as error:
            self.context.intake.session_failed(self.address, error)
            self.answer(envelope, INTERNAL_ERROR)

    def _log_checks(self, section: HeaderSection) -> None:
        envelope, headers = self.envelope, self.context.headers
        assert headers is not None
        headers.checked(
            envelope.queue_id,
            f"{self.client_name or 'unknown'}[{self.address}]",
            envelope.mail_from or "",
            next(iter(envelope.recipients), ""),
            section.notes,
        )

    def _stored(self, envelope: Transaction, failure: bytes) -> None:
        """Answers the client when the message is on disk or was passed on, or could not be written."""
        if self.envelope is envelope and self.state is _WAITING:  # else the client did not wait for it
            self.answer(envelope, failure)
            self.flush()
            self.go_on()

    def answer(self, envelope: Transaction, failure: bytes) -> None:
        """Replies to the message, and ends the transaction. ``failure``: as ``Done`` gets it."""
        self.state = _COMMAND
        if failure[:3] == b"421":  # it is not known what became of the message, or a milter ends the session
            self.record_refusal("END-OF-MESSAGE", failure)
            self.end_transaction()
            self.last_reply(failure)
            return
        if failure and failure[:1] != b"2":
            self.refuse("END-OF-MESSAGE", failure, is_mistake=failure[:1] == b"5")
        else:
            self._errors = self._junk = self._useless = 0  # as Postfix does: a client that delivers mail starts afresh
            self.reply(failure or b"250 2.0.0 Ok: queued as " + envelope.queue_id.encode())
        self.end_transaction()


def _with_options(recipient: Recipient, options: Options) -> Recipient:
    return msgspec.structs.replace(recipient, options=options) if options else recipient
