"""Composes the message that goes into the queue from a file of the maildrop: data as on the wire, final envelope.

The header section is completed and checked, then milters see the message, then its addresses become final. The report that
a request about addresses asks for passes neither checks nor milters, as Postfix's.

Keeps law: local-mail-filtered-or-kept (docs/laws.md).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mailcore.config.settings import Settings
from mailcore.control.injection import WireForm
from mailcore.control.local_filter import LocalFilter
from mailcore.envelope import DataPlace, Envelope, Options, Origin, Recipient
from mailcore.pickup.dropped import RECIPIENTS_MAX, DroppedDamaged
from mailcore.pickup.letter import complete, split_header
from mailcore.pickup.requests import Requests
from mailcore.pickup.store import Store
from mailcore.pickup.verification import Letter, Verifier, questions, reported
from mailcore.queue.from_maildrop import CAME_FROM
from mailcore.queue.spool import DATA_AT, Spool
from mailcore.rewriting.dropped_fields import FieldNames
from mailcore.routing.address import is_mailbox, is_return_path
from mailcore.tag import pattern_of, tag_of

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps
    from mailcore.rewriting.header_section import HeaderSection, Note

__all__ = ["Composed", "Composer", "NotYet"]

OPTIONS_MAX = 10
VERIFIED_S = 1.0  # until the next look for the answers about addresses
_OPTION = re.compile(r"[\x21-\x7e]{0,500}\Z")  # characters that may be written to the next hop (mailcore.esmtp)


class NotYet(Exception):
    """The message cannot be taken now: its final recipients cannot be determined, or a milter says so, or has failed.

    ``is_fault``: of our own code; ``again_s`` says when to look again; 0.0: after the usual time.
    """

    def __init__(
        self,
        why: str,
        *,
        is_logged: bool = False,
        is_failure: bool = False,
        is_fault: bool = False,
        again_s: float = 0.0,
    ) -> None:
        super().__init__(why)
        self.is_logged = is_logged
        self.is_failure = is_failure
        self.is_fault = is_fault
        self.again_s = again_s


class Composed(NamedTuple):
    """A message for the lane. ``recipients``: all of them; ``inline``: its data, if that is not in a spool file."""

    envelope: Envelope
    recipients: tuple[Recipient, ...]
    inline: bytes
    notes: list[Note]  # findings of header checks


class Composer:
    """Composes one message after the other."""

    def __init__(
        self,
        settings: Settings,
        hostname: str,
        spool: Spool,
        rewriting: LiveMaps | None,
        local_filter: LocalFilter | None,
        verifier: Callable[[], Verifier] | None = None,
    ) -> None:
        """``verifier`` returns the one that answers requests about addresses."""
        places = settings.maildrop.verify_requests_max
        self._requests = Requests(verifier, places) if verifier is not None else None
        self._settings = settings
        self._hostname = hostname
        self._origin = settings.lenient.own_domain(hostname)
        self._spool = spool
        self._rewriting = rewriting
        self._filter = local_filter
        self._dropped = FieldNames(settings.receiver.message_drop_headers).names
        self._tag = pattern_of(settings.receiver.tag_header)

    def compose(self, dropped: Letter, queue_id: str, now: float) -> Composed:
        """Returns the message; a large one is in a spool file, synced. Raises DroppedDamaged, NotYet, OSError."""
        recipients = self._recipients(dropped)
        local_filter, section = self._filter, None
        if dropped.submission.verify:
            dropped, local_filter = self._report(dropped, now), None
        elif self._rewriting is not None:
            section = self._rewriting.header()
        store = Store(self._spool, queue_id, self._settings.queue.inline_limit, local_filter)
        try:
            return self._composed(dropped, recipients, queue_id, now, store, section, local_filter)
        except BaseException:
            store.abandon()
            raise

    def due(self, names: Sequence[str]) -> Sequence[str]:
        """Returns the files that are worth a look: not those of requests whose answers are not there."""
        return names if self._requests is None else list(self._requests.due(names))

    def keep(self, names: Collection[str]) -> None:
        """Forgets what is known of files that are not among ``names``."""
        if self._requests is not None:
            self._requests.keep(names)

    def _report(self, request: Letter, now: float) -> Letter:
        """Returns the report that a request about addresses asks for. Raises DroppedDamaged, NotYet."""
        limit = self._settings.maildrop.verify_addresses_max
        answer = None
        try:
            if self._requests is not None:
                answer = self._requests.answer(request, lambda: questions(request, self._rewriting, limit, now))
            if answer is not None:
                return reported(request, answer.findings, answer.more, self._hostname, self._origin)
        except DroppedDamaged:
            raise
        except Exception as error:  # a fault of ours: the request is whole, and is tried again
            raise NotYet(f"internal error: {error!r}", is_fault=True) from error
        raise NotYet("the addresses are being verified", is_logged=True, again_s=VERIFIED_S)

    def _recipients(self, dropped: Letter) -> dict[str, Options]:
        submission = dropped.submission
        given = itertools.zip_longest(submission.recipients, submission.recipient_options[: len(submission.recipients)])
        recipients = {address: _valid(options or ()) for address, options in given}
        if not is_return_path(submission.sender):
            raise DroppedDamaged(f"sender {submission.sender!a} is not an address")
        for address in recipients:
            if not is_mailbox(address):
                raise DroppedDamaged(f"recipient {address!a} is not an address")
        if dropped.data_bytes > self._settings.receiver.message_size_limit:
            raise DroppedDamaged(f"{dropped.data_bytes} bytes are more than [receiver] message_size_limit")
        return recipients

    def _composed(
        self,
        dropped: Letter,
        recipients: Mapping[str, Options],
        queue_id: str,
        now: float,
        store: Store,
        section: HeaderSection | None,
        local_filter: LocalFilter | None,
    ) -> Composed:
        pieces = self._letter(dropped, queue_id, now, store)
        trace = next(pieces)
        store.write(trace if section is None else section.take(trace))
        for piece in pieces:
            store.write(piece if section is None else section.feed(piece))
        if section is not None:
            store.write(section.end())
            if section.too_slow:
                raise NotYet(section.too_slow)
        envelope = self._envelope(dropped, recipients, queue_id, now, store)
        if section is not None:
            envelope = section.of_local_mail(envelope)
        refused: tuple[Recipient, ...] = ()
        if local_filter is not None:
            own_fields = 1 if section is None else section.own_fields
            envelope, refused = self._filtered(local_filter, envelope, store, own_fields)
        final = envelope.recipients
        if self._rewriting is not None and not (final and final[0].route):
            envelope, more, why = self._rewriting.apply(envelope, ())
            if why:
                raise NotYet(why)
            final = (*envelope.recipients, *more)
        final = (*final, *(msgspec.structs.replace(each, number=len(final) + n) for n, each in enumerate(refused)))
        envelope = msgspec.structs.replace(envelope, recipients=final, recipient_count=len(final))
        envelope = store.complete(envelope)
        return Composed(envelope, final, store.inline, section.notes if section is not None else [])

    def _filtered(
        self, local_filter: LocalFilter, envelope: Envelope, store: Store, own_fields: int
    ) -> tuple[Envelope, tuple[Recipient, ...]]:
        """Shows the message to the milters. Raises NotYet, OSError."""
        filtered = local_filter.ask(
            self._spool,
            envelope,
            store.waiting,
            inline_limit=self._settings.queue.inline_limit,
            recipients_max=RECIPIENTS_MAX,
            own_fields=own_fields,
        )
        if filtered.why:
            raise NotYet(filtered.why, is_logged=True, is_failure=filtered.is_failure)
        store.take(filtered)
        return filtered.envelope, filtered.refused

    def _letter(self, dropped: Letter, queue_id: str, now: float, store: Store) -> Iterator[bytes]:
        """Yields the message as on the wire: our trace field, the header section completed, the body."""
        pieces = dropped.pieces()
        beginning, header = b"", None
        for piece in pieces:
            beginning += piece
            if (header := split_header(beginning, is_all=len(beginning) == dropped.data_bytes)) is not None:
                break
        if header is None:
            header = split_header(beginning, is_all=True)
            assert header is not None
        submission = dropped.submission
        submitted = datetime.fromtimestamp(min(max(submission.submitted_at, 0.0), now), UTC)
        by = f"Received: by {self._hostname} (Waypost, from uid {dropped.uid})\r\n\tid {queue_id}; "
        section = complete(
            header,
            queue_id=queue_id,
            hostname=self._hostname,
            origin=self._origin,
            sender=submission.sender,
            full_name=submission.full_name,
            submitted=submitted,
            dropped=self._dropped,
        )
        form = WireForm()
        yield f"{by}{datetime.fromtimestamp(now, UTC):%a, %d %b %Y %H:%M:%S +0000}\r\n".encode("ascii", "replace")
        store.header = form.feed(section)
        yield store.header
        yield form.feed(header.rest)
        for piece in pieces:
            yield form.feed(piece)
        yield form.end()

    def _envelope(
        self, dropped: Letter, recipients: Mapping[str, Options], queue_id: str, now: float, store: Store
    ) -> Envelope:
        submission = dropped.submission
        named = re.search(
            rb"(?:\A|\r\n)message-id:[ \t]*(?:\r\n[ \t]+)?([\x21-\x7e]{1,998})", store.header, re.IGNORECASE
        )
        tag = self._tag.search(store.header) if self._tag is not None else None
        return Envelope(
            queue_id=queue_id,
            generation=0,
            sender=submission.sender,
            recipients=tuple(
                Recipient(number, address, options=options)
                for number, (address, options) in enumerate(recipients.items())
            ),
            recipient_count=len(recipients),
            arrived_at=now,
            size_bytes=store.data_bytes,
            data=DataPlace.INLINE if store.inline else DataPlace.SPOOL,
            data_offset=0 if store.inline else DATA_AT,
            origin=Origin.LOCAL,
            helo=CAME_FROM + dropped.name,
            login=submission.user[:64],
            eight_bit=store.eight_bit,
            smtputf8=submission.smtputf8 or not all(address.isascii() for address in (submission.sender, *recipients)),
            message_id=named[1].decode("ascii") if named else "",
            options=_valid(submission.options),
            tag=tag_of(tag[1]) if tag is not None else "",
            data_sums=store.sums.sums,
        )


def _valid(options: Options) -> Options:
    return tuple(
        (keyword, value) for keyword, value in options[:OPTIONS_MAX] if keyword.isalnum() and _OPTION.match(value)
    )
