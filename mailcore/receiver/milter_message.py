"""A message that has come and is not stored yet, while checks and milters change it; and its way into the queue afterwards.

Laws
- What is stored is exactly what the milters left: header, body, sender and recipients.
- Of a message that no milter changes, the data is stored byte for byte as it came.

Keeps law: milter-changes-whole (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Options, Recipient
from mailcore.esmtp import Parameter
from mailcore.log.data_blocks import BlockSums, sums_of
from mailcore.milter.fields import CRLF, BadChange, Fields
from mailcore.milter.message import BodyWriter, Change
from mailcore.receiver.command import ReplyOf, parse_mail, parse_rcpt
from mailcore.receiver.data import HeaderScan
from mailcore.receiver.incoming import UPLOAD_BYTES
from mailcore.receiver.intake import CheckedIntake, Done, Upload
from mailcore.receiver.scratch import Scratch, ScratchStore
from mailcore.routing.address import comparable

__all__ = ["HEADER_BYTES_MAX", "HeaderTooBig", "MessageLimits", "MilterMessage"]

HEADER_BYTES_MAX = (
    1 << 20
)  # ten times Postfix's header_size_limit for one field; it is in memory while the milters work


class HeaderTooBig(Exception):
    """Raised if a header is too big to be shown to milters."""


class MessageLimits(msgspec.Struct, frozen=True):
    """The limits of a message, and the parameters of MAIL and RCPT."""

    message_bytes: int
    recipients: int
    inline_limit: int
    spool_data_at: int
    tag_header: bytes
    mail: dict[str, Parameter]
    rcpt: dict[str, Parameter]


class _StoredBody:
    def __init__(self, scratch: Scratch, at: int) -> None:
        self._scratch = scratch
        self._at = at
        self.size = scratch.size - at

    def blocks(self) -> AsyncGenerator[bytes, None]:
        return self._scratch.blocks(self._at)


class _NewBody:
    """A body that a milter sends. The size of the message bounds it."""

    def __init__(self, new_file: Callable[[], ScratchStore], limits: MessageLimits) -> None:
        self._scratch = Scratch(new_file, limits.inline_limit)
        self._limit = limits.message_bytes

    @property
    def size(self) -> int:
        return self._scratch.size

    async def append(self, block: bytes) -> None:
        if self._scratch.size + len(block) > self._limit:
            raise BadChange(f"sent a body of more than {self._limit} bytes")
        await self._scratch.append(block)

    def blocks(self) -> AsyncGenerator[bytes, None]:
        return self._scratch.blocks()

    def close(self) -> None:
        self._scratch.close()


class MilterMessage:
    """One message. ``scratch`` has its data with our Received field; ``open`` must be called first.

    ``own_fields``: as in ``Fields``.
    """

    def __init__(
        self,
        envelope: Envelope,
        more: Sequence[Recipient],
        scratch: Scratch,
        intake: CheckedIntake,
        limits: MessageLimits,
        own_fields: int = 1,
    ) -> None:
        self._own_fields = own_fields
        self.sender = envelope.sender
        self.mail_options = envelope.options
        self.recipients: list[tuple[str, Options]] = [
            (each.address, each.options) for each in (*envelope.recipients, *more)
        ]
        self.held_because = ""
        self.authentication = ""  # as Envelope.authentication
        self.fields = Fields([])
        self.body: _StoredBody | _NewBody = _StoredBody(scratch, scratch.size)
        self._separator = b""
        self._envelope_changed = False
        self._body_changed = False
        self._new_bodies: list[_NewBody] = []
        self._envelope = envelope
        self._more = more
        self._scratch = scratch
        self._intake = intake
        self._limits = limits

    async def open(self) -> None:
        """Reads the header. Raises HeaderTooBig, OSError, DataDamaged."""
        data = b""
        size = self._scratch.size
        at = 0
        async with contextlib.aclosing(self._scratch.blocks()) as blocks:
            async for block in blocks:
                data += block
                is_all = len(data) == size
                lines = data if is_all else data[: data.rfind(CRLF) + 2]
                self.fields, at = Fields.parse(lines, self._own_fields)
                if at < len(lines) or is_all:
                    break
                if len(data) > HEADER_BYTES_MAX:
                    raise HeaderTooBig
        self._separator = CRLF if data[at : at + 2] == CRLF else b""
        self.body = _StoredBody(self._scratch, at + len(self._separator))

    # -- for the filters

    def new_body(self) -> BodyWriter:
        """Returns an empty body, to replace the one there is."""
        body = _NewBody(lambda: self._intake.scratch(self._envelope.queue_id), self._limits)
        self._new_bodies.append(body)
        return body

    def replace_body(self, body: BodyWriter) -> None:
        """Puts a new body in place of the one there is."""
        assert isinstance(body, _NewBody)  # from new_body
        self.body = body
        self._body_changed = True

    def mark(self) -> object:
        """Returns the state of the message, for ``undo``."""
        return (
            self.fields.copy(),
            list(self.recipients),
            self.sender,
            self.mail_options,
            self.held_because,
            self._envelope_changed,
        )

    def undo(self, mark: object) -> None:
        """Restores the state of ``mark``; a body is replaced only at the end, when nothing can fail."""
        assert isinstance(mark, tuple)
        (
            self.fields,
            self.recipients,
            self.sender,
            self.mail_options,
            self.held_because,
            self._envelope_changed,
        ) = mark

    def hold(self, milter: str, reason: str) -> None:
        """Holds the message once it is stored."""
        self.held_because = reason or f"milter {milter}"

    def change(self, change: Change) -> None:
        """Changes sender or recipients. Raises BadChange."""
        self._envelope_changed = True
        address = change.address.strip(b" ")
        if not address.startswith(b"<"):
            address = b"<" + address + b">"
        if change.kind == "delete":
            unwanted = comparable(address[1:-1].decode("utf-8", "replace"))
            self.recipients = [each for each in self.recipients if comparable(each[0]) != unwanted]
        elif change.kind == "sender":
            utf8 = b"" if address.isascii() or b"SMTPUTF8" in change.parameters.upper() else b" SMTPUTF8"
            given = b"FROM:" + address + b" " + change.parameters + utf8
            mail = parse_mail(given, True, self._limits.mail)
            if isinstance(mail, ReplyOf):
                raise BadChange(f"wants a sender that cannot be: {_shown(address, change.parameters)}")
            self.sender = mail.sender
            if change.parameters:
                self.mail_options = mail.options
        else:
            rcpt = parse_rcpt(b"TO:" + address + b" " + change.parameters, True, self._limits.rcpt)
            if isinstance(rcpt, ReplyOf) or not rcpt[0].domain:
                raise BadChange(f"wants a recipient that cannot be: {_shown(address, change.parameters)}")
            path, options = rcpt
            if all(each[0] != path.address for each in self.recipients):
                if len(self.recipients) >= self._limits.recipients:
                    raise BadChange(f"wants more than {self._limits.recipients} recipients")
                self.recipients.append((path.address, options))

    # -- into the queue

    @property
    def _is_changed(self) -> bool:
        return self.fields.changed or self._body_changed

    async def store(self, done: Done) -> None:
        """Stores the message as it is now. ``done`` gets b"" once it is durable, or the reply that refuses it."""
        envelope, more = self._envelope, self._more
        if self.held_because:
            envelope = msgspec.structs.replace(envelope, held_because=self.held_because)
        if self.authentication:
            envelope = msgspec.structs.replace(envelope, authentication=self.authentication)
        if self._envelope_changed:
            envelope, more = self._changed_envelope(envelope)
        header = self.fields.data
        if self._is_changed:
            if not self._separator and self.body.size:  # the milters saw what follows as the body; so must its readers
                self._separator = CRLF
            scan = HeaderScan(self._limits.tag_header)
            scan.feed(header + CRLF)
            envelope = msgspec.structs.replace(envelope, message_id=scan.message_id, tag=scan.tag)
        header += self._separator
        size = len(header) + self.body.size
        if size <= self._limits.inline_limit:
            data = b"".join([header, *[block async for block in self.body.blocks()]])
            if self._is_changed:
                envelope = msgspec.structs.replace(
                    envelope, size_bytes=size, data=DataPlace.INLINE, data_offset=0, data_sums=sums_of(data)
                )
                envelope = msgspec.structs.replace(envelope, eight_bit=envelope.eight_bit or not data.isascii())
            self._intake.store(envelope, more, data, done)
            return
        await self._spool(header, size, envelope, more, done)

    async def _spool(self, header: bytes, size: int, envelope: Envelope, more: Sequence[Recipient], done: Done) -> None:
        upload = self._intake.upload(envelope.queue_id)
        try:
            sums = BlockSums()
            waiting, waiting_bytes = [header], len(header)
            sums.feed(header)
            is_ascii = header.isascii()
            async for block in self.body.blocks():
                sums.feed(block)
                is_ascii = is_ascii and block.isascii()
                waiting.append(block)
                waiting_bytes += len(block)
                if waiting_bytes >= UPLOAD_BYTES:
                    failure = await _written(upload, waiting)
                    if failure:
                        done(failure)
                        return
                    waiting, waiting_bytes = [], 0
        except BaseException:  # a disk that fails, or a client that is gone
            upload.abandon()
            raise
        if self._is_changed:  # otherwise the checksums stay those that were made when the data came
            envelope = msgspec.structs.replace(
                envelope,
                size_bytes=size,
                data=DataPlace.SPOOL,
                data_offset=self._limits.spool_data_at,
                data_sums=sums.sums,
                eight_bit=envelope.eight_bit or not is_ascii,
            )

        def uploaded(failure: bytes, stored: Envelope) -> None:
            if failure:
                done(failure)
            else:
                self._intake.store(stored, more, b"", done)

        upload.complete(waiting, envelope, uploaded)

    def _changed_envelope(self, envelope: Envelope) -> tuple[Envelope, Sequence[Recipient]]:
        recipients = tuple(
            Recipient(number, address, options=options) for number, (address, options) in enumerate(self.recipients)
        )
        addresses = [self.sender, *(each.address for each in recipients)]
        changed = msgspec.structs.replace(
            envelope,
            sender=self.sender,
            options=self.mail_options,
            recipients=recipients[:RECIPIENTS_PER_RECORD],
            recipient_count=len(recipients),
            smtputf8=envelope.smtputf8 or not all(map(str.isascii, addresses)),
        )
        return changed, recipients[RECIPIENTS_PER_RECORD:]

    def close(self) -> None:
        """Throws away what is not stored."""
        self._scratch.close()
        for body in self._new_bodies:
            body.close()


async def _written(upload: Upload, blocks: Sequence[bytes]) -> bytes:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def done(failure: bytes) -> None:
        if not future.done():
            future.set_result(failure)

    upload.write(blocks, done)
    return await future


def _shown(address: bytes, parameters: bytes) -> str:
    return (address + b" " + parameters)[:200].decode("ascii", "replace").strip()
