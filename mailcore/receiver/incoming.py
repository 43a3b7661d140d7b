"""The data of one message while it comes in: checked, and kept in memory up to the inline limit, else in the spool.

Laws
- What is kept in memory is at most the inline limit and one read of the transport, or, once it goes to the spool, what
  one hop to the disk takes; ``busy`` says that no more may be fed before ``room`` is called. Beyond SURE_BYTES it needs
  room of the receiver's (``inline_room``), or goes to the spool.
- After ``failure`` nothing is kept; the end is still looked for, since the reply belongs there (RFC 5321 4.2.5).
- An upload that was begun is always completed or abandoned.

Knows no socket and no session.

Keeps law: upload-bounded, law: inline-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailcore.envelope import Envelope, Recipient
from mailcore.log.data_blocks import BlockSums
from mailcore.receiver.bare_lf import RepairingReader
from mailcore.receiver.chunk_reader import ChunkReader
from mailcore.receiver.data import DataFault, DataReader, HeaderScan
from mailcore.receiver.inline_room import InlineRoom
from mailcore.receiver.intake import Done, MessageIntake, Upload
from mailcore.rewriting.dropped_fields import DroppedFields, FieldNames
from mailcore.rewriting.header_section import HeaderSection

__all__ = ["INTERNAL_ERROR", "TOO_BIG", "IncomingMessage"]

UPLOAD_BYTES = 64 * 1024  # fewer are not worth a hop to the disk's thread; with room, as many as the log takes
TOO_BIG = b"552 5.3.4 Message size exceeds fixed limit"
INTERNAL_ERROR = b"451 4.3.0 Error: internal error"
_TOO_MANY_HOPS = b"554 5.4.6 Error: too many hops"
_FAULTS = {
    DataFault.BARE: b"550 5.6.0 Message refused: it has a CR or LF that is not part of a CRLF",
    DataFault.NUL: b"550 5.6.0 Message refused: it has a NUL byte",
    DataFault.TOO_BIG: TOO_BIG,
}


class IncomingMessage:
    """Holds one message. ``trace`` is put in front of the data; ``room`` is called when ``busy`` is over."""

    def __init__(
        self,
        intake: MessageIntake,
        queue_id: str,
        trace: bytes,
        *,
        size_limit: int,
        received_limit: int,
        inline_room: InlineRoom,
        room: Callable[[], None],
        tag_header: bytes = b"",
        dropped: FieldNames | None = None,
        reader: ChunkReader | None = None,
    ) -> None:
        self.queue_id = queue_id
        self.size_bytes = len(trace)  # of what is stored
        self.message_id = ""
        self.tag = ""
        self.failure = b""  # the reply the message gets at its end; b"" while all is well
        self.finished = False
        self.rest = b""  # bytes after the end of the data
        self.busy = False
        self._intake = intake
        self._reader: DataReader | ChunkReader = DataReader(size_limit) if reader is None else reader
        self._thrown_away_max = 2 * size_limit + UPLOAD_BYTES
        self._header: HeaderScan | None = HeaderScan(tag_header)  # None once it is over
        self._dropped = None if dropped is None else DroppedFields(dropped)  # None once the header is over
        self._received_limit = received_limit
        self._inline_room = inline_room
        self._has_inline_room = False  # beyond what is sure
        self._room = room
        self._sums = BlockSums()
        self._sums.feed(trace)
        self._blocks = [trace]  # not yet handed on
        self._block_bytes = len(trace)
        self._upload: Upload | None = None
        self._abandoned = False
        self.section: HeaderSection | None = None  # None: the header stays as it is

    def check_header(self, section: HeaderSection) -> None:
        """Lets the header, our trace field included, be checked and rewritten; before the first piece of data."""
        self.section = section
        trace = section.take(self._blocks[0])
        if trace is self._blocks[0]:
            return
        self._sums = BlockSums()
        self._sums.feed(trace)
        self._blocks = [trace]
        self._block_bytes = self.size_bytes = len(trace)

    def repair_bare_lf(self, size_limit: int) -> None:
        """Makes each bare LF a CRLF; before the first piece of data."""
        self._reader = RepairingReader(size_limit)

    @property
    def is_endless(self) -> bool:
        """Returns whether too many bytes beyond the limit came: the client gets 552 now, not after the end of the data."""
        return self._reader.size_bytes > self._thrown_away_max

    @property
    def received_bytes(self) -> int:
        """Returns how much has come from the client, also of a message that is refused."""
        return self._reader.size_bytes

    @property
    def data_sums(self) -> bytes:
        """Returns the checksums of what is stored, made from what came from the client."""
        return self._sums.sums

    @property
    def is_spooled(self) -> bool:
        """Returns whether the data goes to a spool file."""
        return self._upload is not None

    def feed(self, chunk: bytes) -> None:
        """Takes a piece of the data as it came from the client; not while ``busy``."""
        reader = self._reader
        block = reader.feed(chunk)
        if block and not self.failure:
            self._keep(block)
        if reader.finished:
            self._end_header()
            self.finished = True
            self.rest = reader.rest
        if reader.fault is not None:
            if not self.failure:
                self.fail(_FAULTS[reader.fault])
        elif self._upload is not None and not reader.finished and not self._may_keep_more():
            self.busy = True
            self._upload.write(self._taken(), self._written)

    def end_chunks(self) -> None:
        """Ends the data after the last chunk of BDAT; not while ``busy``, and not after a failure."""
        assert isinstance(self._reader, ChunkReader)
        block = self._reader.finish()
        if block:
            self._keep(block)
        self._end_header()
        if self._reader.fault is not None:
            self.fail(_FAULTS[self._reader.fault])
        self.finished = True

    def _end_header(self) -> None:
        """Takes what was held back of a header that the data ends in."""
        section = self.section
        if section is not None:
            if not self.failure and (rest := section.end()):
                self._keep(rest)
            if section.refusal and not self.failure:
                self.fail(section.refusal.encode())
        if self._dropped is not None and not self.failure:
            rest, self._dropped = self._dropped.end(), None
            if rest:
                self._keep(rest)

    def _keep(self, block: bytes) -> None:
        try:
            if self.section is not None:
                block = self.section.feed(block)
                if self.section.refusal:
                    self.fail(self.section.refusal.encode())
                    return
            dropped = self._dropped
            if dropped is not None:
                block = dropped.feed(block)
                if dropped.is_over:
                    self._dropped = None
            header = self._header
            if header is not None:
                header.feed(block)
                self.message_id, self.tag = header.message_id, header.tag
                if header.received > self._received_limit:
                    self.fail(_TOO_MANY_HOPS)
                    return
                if header.finished:
                    self._header = None
            self._sums.feed(block)
            self._blocks.append(block)
            self._block_bytes += len(block)
            self.size_bytes += len(block)
            if self._upload is None and self.size_bytes > self._inline_room.sure_bytes and not self._fits_inline():
                self._upload = self._intake.upload(self.queue_id)
        except Exception as error:  # a bug of ours: this message fails, not the session
            self._intake.session_failed(self.queue_id, error)
            self.fail(INTERNAL_ERROR)

    def _fits_inline(self) -> bool:
        # If it is too big, its room is given back when the spool has what it held.
        return self.size_bytes <= self._inline_room.limit_bytes and self._takes_room()

    def _may_keep_more(self) -> bool:
        """Returns whether the next hop to the disk's thread can wait for more: each costs more than the bytes that it takes."""
        kept_bytes = self._block_bytes
        return kept_bytes < UPLOAD_BYTES or (kept_bytes < self._inline_room.limit_bytes and self._takes_room())

    def _takes_room(self) -> bool:
        if not self._has_inline_room:
            self._has_inline_room = self._inline_room.take()
        return self._has_inline_room

    def _give_back_room(self) -> None:
        if self._has_inline_room:
            self._has_inline_room = False
            self._inline_room.give_back()

    def _taken(self) -> list[bytes]:
        blocks, self._blocks, self._block_bytes = self._blocks, [], 0
        return blocks

    def _written(self, failure: bytes) -> None:
        self.busy = False
        self._give_back_room()
        if failure and not self.failure:
            self.fail(failure)
        if not self._abandoned:
            self._room()

    def fail(self, reply: bytes) -> None:
        """Refuses the message with ``reply`` and throws away what was kept."""
        self.failure = reply
        self._header = None
        self._taken()
        self._give_back_room()
        if self._upload is not None:
            self._upload.abandon()
            self._upload = None

    def abandon(self) -> None:
        """Throws the message away: its end will never come."""
        self._abandoned = True
        self.fail(INTERNAL_ERROR)

    def store(self, envelope: Envelope, more: Sequence[Recipient], done: Done) -> None:
        """Stores the message, after its end. ``done`` gets b"" once it is durable, or the reply that refuses it."""
        upload = self._upload
        if upload is None:
            if self._has_inline_room:
                done = self._giving_back_room(done)
            try:
                self._intake.store(envelope, more, b"".join(self._taken()), done)
            except BaseException:
                self._give_back_room()
                raise
            return

        def uploaded(failure: bytes, stored: Envelope) -> None:
            self._give_back_room()
            if failure:
                done(failure)
            else:
                self._intake.store(stored, more, b"", done)

        upload.complete(self._taken(), envelope, uploaded)

    def _giving_back_room(self, done: Done) -> Done:
        def stored(failure: bytes) -> None:
            self._give_back_room()
            done(failure)

        return stored
