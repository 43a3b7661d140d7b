"""Converts a message that an operator injects into its form on the wire, while it streams into a spool file.

All line ends become CRLF (a lone CR or LF would end a line for some hosts and not for others: smuggling); lines that begin
with a dot get a second one; the last line is ended. A trace header goes in front, and the fields of [receiver]
message_drop_headers are removed. Nothing else is added or changed.

Memory is bounded: pieces go to disk as they come, only the beginning is kept to look for the Message-ID. All methods but
``abandon`` may raise OSError; they block, and run in a thread.
"""

from __future__ import annotations

import contextlib
import email.utils
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mailcore.config.header_completion import Headers
from mailcore.control.local_filter import LocalFilter, WaitingData
from mailcore.control.protocol.injection import InjectBeginArguments
from mailcore.counted import counted
from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Origin, Recipient
from mailcore.faults import Code, FaultError
from mailcore.log.data_blocks import BlockSums
from mailcore.queue.spool import DATA_AT, Spool, SpoolFile
from mailcore.rewriting.dropped_fields import DroppedFields, FieldNames
from mailcore.routing.address import is_mailbox, is_return_path
from mailcore.tag import pattern_of, tag_of

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps
    from mailcore.rewriting.header_section import HeaderSection

__all__ = ["Injection", "InjectionRefused", "WireForm"]

HEADER_KEPT = 64 << 10  # bytes in which the Message-ID is looked for
MESSAGE_ID_CHARACTERS = 998  # RFC 5322 2.1.1: no line is longer

_LINE_END = re.compile(rb"\r\n|\r|\n")
_HEADER_END = re.compile(rb"\r\n\r\n|\A\r\n")
_MESSAGE_ID = re.compile(rb"(?:\A|\r\n)message-id:[ \t]*(?:\r\n[ \t]+)?([\x21-\x7e]+)", re.IGNORECASE)


class InjectionRefused(FaultError):
    """Raised when a message is not accepted; the message says why."""

    default = Code.INVALID


class WireForm:
    """Bytes of any line ends in, CRLF and dot-stuffed out."""

    def __init__(self) -> None:
        self._held = b""  # a CR whose LF may come with the next piece
        self._at_line_start = True

    def feed(self, data: bytes) -> bytes:
        """Returns as much of the data in its wire form as can be known."""
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        return self._form(data[: len(data) - len(self._held)])

    def end(self) -> bytes:
        """Returns the remaining bytes; ends the last line."""
        last = self._form(self._held)
        return last if self._at_line_start else last + b"\r\n"

    def _form(self, data: bytes) -> bytes:
        if not data:
            return b""
        data = _LINE_END.sub(b"\r\n", data)
        stuffed = data.replace(b"\r\n.", b"\r\n..")
        if self._at_line_start and data.startswith(b"."):
            stuffed = b"." + stuffed
        self._at_line_start = data.endswith(b"\r\n")
        return stuffed


class Injection:
    """One message on its way in: ``write`` its pieces, then ``complete``, or ``abandon``."""

    def __init__(
        self,
        spool: Spool,
        queue_id: str,
        arguments: InjectBeginArguments,
        *,
        hostname: str,
        uid: int,
        now: float,
        size_bytes_max: int,
        recipients_max: int,
        tag_header: str = "",
        dropped: Sequence[str] = (),
        rewriting: LiveMaps | None = None,
        headers: Headers | None = None,
        local_filter: LocalFilter | None = None,
    ) -> None:
        """Raises InjectionRefused, OSError."""
        if not is_return_path(arguments.sender):
            raise InjectionRefused(
                f"sender {arguments.sender!a} is not an address; allowed: local@domain, or nothing", argument="sender"
            )
        for address in arguments.recipients:
            if not is_mailbox(address):
                raise InjectionRefused(
                    f"recipient {address!a} is not an address; allowed: local@domain", argument="recipients"
                )
        addresses = list(dict.fromkeys(arguments.recipients))
        if len(addresses) > recipients_max:
            raise InjectionRefused(
                f"{counted(len(addresses), 'recipient')}; allowed: {recipients_max} (receiver.recipient_limit)",
                argument="recipients",
            )
        self.queue_id = queue_id
        self.not_before = arguments.not_before
        self._age_s = arguments.age_s
        self._held_because = arguments.held_because
        self._sender = arguments.sender
        self._addresses = addresses
        self._now = now
        self._size_bytes_max = size_bytes_max
        self._tag = pattern_of(tag_header)
        self._form = WireForm()
        self._rewriting = rewriting if arguments.rewrite else None
        self._headers = headers if arguments.rewrite else None
        self._section = self._headers.header() if self._headers is not None else None
        self._dropped = DroppedFields(FieldNames(dropped if arguments.rewrite else ()))
        self._beginning = b""
        self._eight_bit = False
        self._author_bytes = 0
        self._spool = spool
        self._filter = (
            local_filter if arguments.rewrite else None
        )  # milters of another mail system have seen the others
        self._file: SpoolFile | WaitingData = (
            spool.create(queue_id) if self._filter is None else self._filter.waiting(spool, queue_id)
        )
        date = email.utils.format_datetime(datetime.fromtimestamp(now, UTC))
        trace = f"Received: by {hostname} (Waypost, from uid {uid})\r\n\tid {queue_id}; {date}\r\n"
        self._sums = BlockSums()
        try:
            field = trace.encode("ascii", "replace")
            self._store(field if self._section is None else self._section.take(field))
        except OSError:
            self.abandon()
            raise

    def write(self, data: bytes) -> None:
        """Raises InjectionRefused when it gets too big."""
        self._author_bytes += len(data)
        self._put(self._checked(self._form.feed(data)))

    def complete(self) -> Envelope:
        """Completes and syncs the spool file; returns the envelope, with its final addresses.

        Raises InjectionRefused when there was no data, a header check refuses it, or the recipients cannot be determined.
        """
        if not self._author_bytes:
            raise InjectionRefused("the message is empty", argument="data")
        self._put(self._checked(self._form.end()))
        if self._section is not None:
            self._put(self._dropped.feed(self._section.end()))
        self._put(self._dropped.end())
        header = _HEADER_END.split(self._beginning, 1)[0]
        found = _MESSAGE_ID.search(header)
        tag = self._tag.search(header) if self._tag is not None else None
        envelope = Envelope(
            queue_id=self.queue_id,
            generation=0,
            sender=self._sender,
            recipients=tuple(Recipient(number, address) for number, address in enumerate(self._addresses)),
            recipient_count=len(self._addresses),
            arrived_at=self._now,
            size_bytes=self._file.data_bytes,
            data=DataPlace.SPOOL,
            data_offset=DATA_AT,
            origin=Origin.LOCAL,
            eight_bit=self._eight_bit,
            smtputf8=not all(each.isascii() for each in (self._sender, *self._addresses)),
            message_id=found[1].decode("ascii")[:MESSAGE_ID_CHARACTERS] if found else "",
            held_because=self._held_because,
            age_s=self._age_s,
            tag=tag_of(tag[1]) if tag is not None else "",
            data_sums=self._sums.sums,
        )
        if self._section is not None:
            envelope = _by_checks(self._section, envelope)
        if self._headers is not None and self._section is not None and self._section.notes:
            self._headers.checked(self.queue_id, "local", self._sender, self._addresses[0], self._section.notes)
        refused: tuple[Recipient, ...] = ()
        if self._filter is not None:
            envelope, refused = self._filtered(self._filter, envelope)
        if self._rewriting is not None and not envelope.recipients[0].route:
            envelope = _rewritten(self._rewriting, envelope)
        if refused:
            envelope = _with_refused(envelope, refused)
        assert isinstance(self._file, SpoolFile)
        stored = self._file.complete(envelope)
        self._file.close()
        return stored

    def _filtered(self, local_filter: LocalFilter, envelope: Envelope) -> tuple[Envelope, tuple[Recipient, ...]]:
        """Shows the message to the milters. Raises InjectionRefused if it cannot be taken now."""
        filtered = local_filter.ask(
            self._spool,
            envelope,
            self._file,
            inline_limit=-1,
            recipients_max=RECIPIENTS_PER_RECORD,
            own_fields=1 if self._section is None else self._section.own_fields,
        )
        if filtered.why:
            raise InjectionRefused(f"{filtered.why}; try again later", code=Code.BUSY)
        assert filtered.file is not None
        self._file = filtered.file
        return filtered.envelope, filtered.refused

    def abandon(self) -> None:
        """Removes the file; ignores errors, since the sweep of orphans removes files that remain."""
        with contextlib.suppress(OSError):
            self._file.abandon()

    def _checked(self, data: bytes) -> bytes:
        return self._dropped.feed(data if self._section is None else self._section.feed(data))

    def _put(self, data: bytes) -> None:
        if not data:
            return
        if self._file.data_bytes + len(data) > self._size_bytes_max:
            raise InjectionRefused(
                f"the message is too big; allowed: {self._size_bytes_max} bytes (message_size_limit)", argument="data"
            )
        if len(self._beginning) < HEADER_KEPT:
            self._beginning += data[: HEADER_KEPT - len(self._beginning)]
        if not self._eight_bit and not data.isascii():
            self._eight_bit = True
        self._store(data)

    def _store(self, data: bytes) -> None:
        self._sums.feed(data)
        self._file.write([data])


def _by_checks(section: HeaderSection, envelope: Envelope) -> Envelope:
    if section.refusal:
        code = Code.BUSY if section.too_slow else Code.INVALID
        raise InjectionRefused(f"a header check refuses the message: {section.too_slow or section.refusal}", code=code)
    held_because = section.held_because or envelope.held_because
    return msgspec.structs.replace(section.of_local_mail(envelope), held_because=held_because)


def _with_refused(envelope: Envelope, refused: tuple[Recipient, ...]) -> Envelope:
    """Returns the envelope with the recipients that a milter refused, which are returned to the sender."""
    recipients = (*envelope.recipients, *refused)
    if len(recipients) > RECIPIENTS_PER_RECORD:
        raise InjectionRefused(f"more than {RECIPIENTS_PER_RECORD} recipients", argument="recipients")
    numbered = tuple(msgspec.structs.replace(each, number=number) for number, each in enumerate(recipients))
    return msgspec.structs.replace(envelope, recipients=numbered, recipient_count=len(numbered))


def _rewritten(rewriting: LiveMaps, envelope: Envelope) -> Envelope:
    envelope, more, why = rewriting.apply(envelope, ())
    if why:
        raise InjectionRefused(f"the recipients cannot be determined: {why}; try again later", code=Code.BUSY)
    if more:
        raise InjectionRefused(
            f"the aliases make {counted(envelope.recipient_count, 'recipient')}; allowed: {RECIPIENTS_PER_RECORD}",
            argument="recipients",
        )
    return envelope
