"""An SMTP session whose messages are checked when they are complete, and before they are stored: by us, or by milters.

Laws
- The bytes that are checked are stored, except for the fields that the checks themselves add and remove.
- What the checks decide about a message is done before it is stored, and 250 is only said once it is durable
  (law: durable-before-250).
- A check that fails for a reason of ours refuses the message for a time, or lets it through, by setting; it loses none.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence

from mailcore.envelope import Envelope, Recipient
from mailcore.receiver.chunk_reader import ChunkReader
from mailcore.receiver.incoming import INTERNAL_ERROR
from mailcore.receiver.intake import Done, Intake, Stored
from mailcore.receiver.line_session import LineSession
from mailcore.receiver.milter_message import HeaderTooBig, MessageLimits, MilterMessage
from mailcore.receiver.scratch import Scratch, ScratchStore
from mailcore.receiver.server_context import ServerContext
from mailcore.receiver.session import ServerSession
from mailcore.receiver.spool_upload import storage_reply
from mailcore.rewriting.header_section import HeaderSection

__all__ = ["CheckedSession"]

_HEADER_TOO_BIG = b"552 5.3.4 Error: message header too big"


class CheckedSession(ServerSession):
    """The SMTP session of one connection, with checks of its messages."""

    def __init__(
        self,
        context: ServerContext,
        address: str,
        port: int,
        server_address: str,
        closed: Callable[[LineSession], None],
    ) -> None:
        super().__init__(context, address, port, server_address, closed)
        self._asking: asyncio.Task[None] | None = None
        self._check_intake = _CheckedIntake(context.intake, self)
        self._section: HeaderSection | None = None  # of the message under way

    def broken_off(self) -> None:
        """Abandons a check that is under way."""
        super().broken_off()
        if self._asking is not None:
            self._asking.cancel()

    @property
    def is_checked(self) -> bool:
        """Returns whether the next message has checks; that of a client in our networks only by milters."""
        return bool(self.context.milters) or bool(self.login) or not self.trusted

    def begin_data(self, reader: ChunkReader | None = None) -> None:
        """Takes what comes as data of a message, which is checked at its end or stored at once."""
        self.intake = self._check_intake if self.is_checked else self.context.intake
        super().begin_data(reader)
        assert self._incoming is not None
        self._section = self._incoming.section

    def take_message(
        self, envelope: Envelope, more: Sequence[Recipient], scratch: Scratch, done: Done
    ) -> asyncio.Task[None]:
        """Checks a message, and stores it, or what the checks made of it."""
        self._asking = self.loop.create_task(self._decide(envelope, more, scratch, done))
        return self._asking

    async def examine(self, message: MilterMessage) -> bytes | None:
        """Checks a message. Returns b"" to store it, the reply that refuses it, or None: it is 250, and not stored."""
        check = self.context.sender_check
        if check is None or (self.trusted and not self.login):
            return b""
        is_ours = self.trusted or not self.context.evaluates
        return await check.examine(message, self.address, self.session.host_name or "", is_ours=is_ours)

    async def _decide(self, envelope: Envelope, more: Sequence[Recipient], scratch: Scratch, done: Done) -> None:
        context = self.context
        limits = MessageLimits(
            message_bytes=context.settings.message_size_limit,
            recipients=context.settings.recipient_limit,
            inline_limit=context.inline_room.sure_bytes,
            spool_data_at=context.spool_data_at,
            tag_header=context.tag_header,
            mail=self.offer.mail,
            rcpt=self.offer.rcpt,
        )
        own_fields = 1 if self._section is None else self._section.own_fields
        message = MilterMessage(envelope, more, scratch, context.intake, limits, own_fields)
        failure: bytes | None = b""
        try:
            await message.open()
            failure = await self.examine(message)
            if failure == b"":
                await message.store(done)
                return
        except HeaderTooBig:
            failure = _HEADER_TOO_BIG
        except OSError as error:
            context.intake.session_failed(self.address, error)
            failure = storage_reply(error)
        except Exception as error:
            context.intake.session_failed(self.address, error)
            failure = INTERNAL_ERROR
        finally:
            message.close()
            self._asking = None
        done(failure or b"")


class _CheckedIntake:
    """The intake of a session with checks: a message passes them before the real one stores it."""

    def __init__(self, intake: Intake, session: CheckedSession) -> None:
        self._intake = intake
        self._session = session
        self._upload: _ScratchUpload | None = None
        self.session_failed = intake.session_failed

    def upload(self, queue_id: str) -> _ScratchUpload:
        self._upload = _ScratchUpload(self._intake.scratch(queue_id))
        return self._upload

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        upload, self._upload = self._upload, None
        scratch = Scratch.of(data) if upload is None else Scratch.of_file(upload.file, upload.size)
        self._session.take_message(envelope, more, scratch, done)


class _ScratchUpload:
    """An ``Upload`` into a file that is only kept during the checks."""

    def __init__(self, file: ScratchStore) -> None:
        self.file = file
        self.size = 0
        self._abandoned = False

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        self.size += sum(map(len, blocks))
        future = self.file.write(blocks)
        future.add_done_callback(functools.partial(self._written, done))

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        self.write(blocks, lambda failure: done(failure, envelope))

    def abandon(self) -> None:
        self._abandoned = True
        self.file.close()

    def _written(self, done: Done, future: asyncio.Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self.file.close()
        if not self._abandoned:
            done(b"" if error is None else storage_reply(error))
