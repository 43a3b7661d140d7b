"""BDAT of an SMTP session (RFC 3030): chunks of counted octets, each with its reply; the last one ends the message.

Laws
- A client that got an error still sends the octets of its chunk: they are thrown away and never taken for commands. Where their
  number cannot be known, the session ends.
- The reply to a chunk comes after its octets; 250 to the last one only from ``Intake.store``.
- A chunk that is refused ends the transaction: what follows of it is refused until MAIL.

Knows nothing of other commands.

Keeps law: chunks-are-the-message (docs/laws.md).
"""

from __future__ import annotations

from mailcore.esmtp import BINARY
from mailcore.receiver.chunk_reader import ChunkReader
from mailcore.receiver.command_table import NOT_IMPLEMENTED, Phase
from mailcore.receiver.data_session import DataSession
from mailcore.receiver.incoming import TOO_BIG
from mailcore.receiver.line_session import State
from mailcore.receiver.spool_upload import WRITE_ERROR

__all__ = ["ChunkSession"]

SIZE_DIGITS_MAX = 20  # RFC 3030 2
THROWN_AWAY_MAX = 64 * 1024  # of a chunk beyond twice the size limit, as after DATA
_SYNTAX = b"501 5.5.4 Syntax: BDAT size [LAST]"


class ChunkSession(DataSession):
    """A session that takes BDAT."""

    # Of the chunk that is coming; of the class, because most sessions have none.
    _chunk_left = 0  # octets that have not come yet
    _chunk_bytes = 0
    _chunk_is_last = False
    _chunk_refusal = b""  # the reply to a chunk that is thrown away

    def smtp_BDAT(self, argument: bytes) -> bytes:
        """Begins to receive a chunk."""
        if "CHUNKING" in self.offer.discarded:
            self.refuse_chunk(argument, NOT_IMPLEMENTED)
            return b""
        if not self._begin_chunk(argument):
            return b""
        if self.phase is not Phase.CHUNKS:
            is_binary = BINARY in self.envelope.options
            try:
                self.begin_data(ChunkReader(self.context.settings.message_size_limit, is_binary=is_binary))
            except OSError:  # no queue id: the disk fails
                self.end_transaction()  # or chunks that follow would be a message without this one
                self._chunk_refusal = WRITE_ERROR
                self.take_chunk()
                return b""
            self.phase = Phase.CHUNKS
            self.begin_chunks()
        else:
            self.take_chunk()
        return b""

    def begin_chunks(self) -> None:
        """Begins the first chunk of a message."""
        self.take_chunk()

    def take_chunk(self) -> None:
        """Takes the octets of a chunk, which may have none."""
        self.state = State.CHUNK
        if not self._chunk_left:
            self._end_chunk()

    def refuse_chunk(self, argument: bytes, refusal: bytes) -> None:
        """Throws away the octets that follow a refused BDAT, and then replies."""
        if not self._begin_chunk(argument):
            return
        self._chunk_refusal = refusal
        self.take_chunk()

    def _begin_chunk(self, argument: bytes) -> bool:
        size, *last = argument.split()[:3] or [b""]
        is_last = [word.upper() for word in last] == [b"LAST"]
        if not size.isdigit() or len(size) > SIZE_DIGITS_MAX or (last and not is_last):
            self._abandon()
            self.last_reply(_SYNTAX)  # where the next command begins is not known
            return False
        self._chunk_bytes = self._chunk_left = int(size)
        self._chunk_is_last = is_last
        self._chunk_refusal = b""
        if self._chunk_left > 2 * self.context.settings.message_size_limit + THROWN_AWAY_MAX:
            self._abandon()
            self.last_reply(TOO_BIG)
            return False
        return True

    def chunk(self, data: bytes) -> bytes:
        """Takes octets in state CHUNK; returns what follows the chunk."""
        octets, rest = data[: self._chunk_left], data[self._chunk_left :]
        self._chunk_left -= len(octets)
        message = self._incoming
        if message is not None and not self._chunk_refusal:
            message.feed(octets)
            if message.busy:
                self.stop_reading()
        if not self._chunk_left:
            self._end_chunk()
        return rest

    def room(self) -> None:
        """Continues after the spool took what was buffered, perhaps with the end of a chunk."""
        if self.state is State.CHUNK and not self._chunk_left:
            self._end_chunk()
            self.flush()
        super().room()

    def _end_chunk(self) -> None:
        """Replies to a chunk whose octets have all come, unless the spool must be waited for."""
        message = self._incoming
        if self._chunk_refusal:
            self.state = State.COMMAND
            self.chunk_refused(self._chunk_refusal)
            return
        assert message is not None  # of a chunk that was not refused
        if message.busy:
            return
        if self._chunk_is_last and not message.failure:
            message.end_chunks()
        if message.failure:
            self._incoming = None
            self.answer(self.envelope, message.failure)
        elif self._chunk_is_last:
            self._incoming = None
            self.end_of_data(message)
        else:
            self.state = State.COMMAND
            taken = b"250 2.0.0 Ok: %d octets" % self._chunk_bytes
            if self._chunk_bytes:
                self.reply(taken)
            else:
                self.useless(taken)

    def chunk_refused(self, refusal: bytes) -> None:
        """Replies to a chunk that was thrown away."""
        self.error(refusal)
