"""Milters for mail that does not come over SMTP: that of local programs, and what is injected (Postfix's non_smtpd_milters).

A process without them does not load this file. All of it happens before a message is in the queue, so that a kill at any
point leaves it where it was: in the maildrop, or with the client that injects it.

- A message that a milter refuses for good is returned to its sender (``error:`` routes), one that it discards is thrown away
  (``discard:`` routes): both are in the queue first, so they have a record.
- A refusal for now leaves the message where it was. So does everything that fails here.

Keeps law: local-mail-filtered-or-kept (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from mailcore.config.milters import Milter, milters_of
from mailcore.config.settings import Settings
from mailcore.control.local_filter import Filtered, WaitingData
from mailcore.envelope import Envelope, Recipient
from mailcore.esmtp import EXTENSIONS
from mailcore.log.data_blocks import BlockSums, read_block
from mailcore.log.disk import Disk
from mailcore.maillog import MailLog
from mailcore.milter.chain import Chain
from mailcore.milter.decision import Decision, Kind
from mailcore.milter.simulated_session import CLIENT_ADDRESS, Answer, SimulatedSession
from mailcore.queue.spool import DATA_AT, Spool, SpoolFile
from mailcore.receiver.intake import Done, MilterEvent, Stored
from mailcore.receiver.milter_message import HeaderTooBig, MessageLimits, MilterMessage
from mailcore.receiver.scratch import Scratch
from mailcore.routing.route import TEXT_MAX

__all__ = ["Filtering", "Waiting"]

HEADER_TOO_BIG = Decision(Kind.REFUSE, b"552 5.3.4 Error: message header too big")
NO_RECIPIENTS = Decision(Kind.DISCARD, reason="milters removed all recipients")
_T = TypeVar("_T")


class Filtering:
    """Asks the milters of ``[receiver] non_smtpd_milters``. The calls block; several threads may call."""

    def __init__(self, settings: Settings) -> None:
        self._milters = milters_of(settings.receiver.non_smtpd_milters, settings.milter)
        self._settings = settings
        self._hostname = settings.receiver.hostname or socket.gethostname()
        self._log = MailLog(settings.log_directory)
        self._lock = threading.Lock()  # of the log

    def waiting(self, spool: Spool, queue_id: str) -> Waiting:
        """Returns a file for the data of a message. Raises OSError."""
        return Waiting(spool.disk, spool.path(queue_id))

    def ask(
        self,
        spool: Spool,
        envelope: Envelope,
        data: bytes | WaitingData,
        *,
        inline_limit: int,
        recipients_max: int,
        own_fields: int = 1,
    ) -> Filtered:
        """Shows a message to the milters. Raises OSError if our disk fails; anything else that fails makes it wait."""
        limits = MessageLimits(
            message_bytes=self._settings.receiver.message_size_limit,
            recipients=recipients_max,
            inline_limit=inline_limit,
            spool_data_at=DATA_AT,
            tag_header=self._settings.receiver.tag_header.lower().encode(),
            mail={each.keyword: each for row in EXTENSIONS for each in row.mail},
            rcpt={each.keyword: each for row in EXTENSIONS for each in row.rcpt},
        )
        asking = _Asking(self, spool, limits, envelope, own_fields)
        try:
            return asyncio.run(asking.run(data))
        except OSError:
            raise
        except Exception as error:  # a bug must not lose the message, nor let it pass
            with self._lock:
                self._log.session_failed(CLIENT_ADDRESS, repr(error))
                self._log.flush()
            return Filtered(envelope, why=f"internal error: {error!r}", is_failure=True)

    def chain(self, failed: Callable[[Milter, str, str], None]) -> Chain:
        """Returns the milters of one message."""
        return Chain(self._milters, failed)

    @property
    def hostname(self) -> str:
        """Returns our name."""
        return self._hostname

    def log_failed(self, milter: Milter, stage: str, what: str, queue_id: str) -> None:
        """Logs that a milter failed."""
        with self._lock:
            self._log.local_milter_failed(milter.address, stage, what, milter.default_action, queue_id)
            self._log.flush()

    def log_acted(self, event: MilterEvent) -> None:
        """Logs a decision."""
        with self._lock:
            self._log.local_milter_acted(
                event.milter, event.stage, event.action, event.what, event.queue_id, event.sender, event.recipients
            )
            self._log.flush()


class _Asking:
    """One message, in the loop of its own call."""

    def __init__(
        self, filtering: Filtering, spool: Spool, limits: MessageLimits, envelope: Envelope, own_fields: int
    ) -> None:
        self._own_fields = own_fields
        self._filtering = filtering
        self._limits = limits
        self._envelope = envelope
        self._intake = _LocalIntake(spool)
        self._returned: tuple[Recipient, ...] = ()  # recipients that were refused
        self._has_failed = False

    async def run(self, data: bytes | WaitingData) -> Filtered:
        """Asks, and gives the result."""
        envelope, scratch = self._envelope, _scratch_of(data)
        chain = self._filtering.chain(self._failed)
        try:
            if envelope.recipients[0].route:
                return await self._as_it_came(envelope, scratch)
            session = SimulatedSession(chain, self._filtering.hostname, envelope.queue_id)
            answer = await session.envelope(envelope.sender, [each.address for each in envelope.recipients])
            kept = [each for each in envelope.recipients if each.address not in session.refused]
            if answer.decision is not None:
                return await self._decided(answer, envelope, scratch)
            for address, decision in session.refused.items():
                self._acted(Answer("RCPT", decision), (address,))
            self._returned = tuple(
                _routed(each, _error(session.refused[each.address]))
                for each in envelope.recipients
                if each.address in session.refused
            )
            if kept:
                return await self._message(session, _with_recipients(envelope, kept), scratch)
            envelope, self._returned = _with_recipients(envelope, self._returned), ()
            return await self._as_it_came(envelope, scratch)
        except BaseException:
            self._intake.abandon()
            raise
        finally:
            scratch.close()
            chain.close()
            await asyncio.sleep(0)  # the connections close

    async def _message(self, session: SimulatedSession, envelope: Envelope, scratch: Scratch) -> Filtered:
        message = MilterMessage(envelope, (), scratch, self._intake, self._limits, self._own_fields)
        try:
            try:
                await message.open()
                answer = await session.message(message)
            except HeaderTooBig:
                answer = Answer("END-OF-MESSAGE", HEADER_TOO_BIG)
            if answer.decision is None and not message.recipients:
                answer = Answer("END-OF-MESSAGE", NO_RECIPIENTS)
            if answer.decision is not None:
                return await self._decided(answer, envelope, scratch)
            if message.held_because:
                self._acted(Answer("END-OF-MESSAGE", Decision(Kind.HOLD, reason=message.held_because)))
            return await self._stored(message)
        finally:
            message.close()

    async def _stored(self, message: MilterMessage) -> Filtered:
        failures: list[bytes] = []
        await message.store(failures.append)
        kept = self._intake.kept
        assert failures == [b""]  # our disk raises OSError
        assert kept is not None
        return kept._replace(refused=self._returned)

    async def _decided(self, answer: Answer, envelope: Envelope, scratch: Scratch) -> Filtered:
        decision = answer.decision
        assert decision is not None
        if decision.kind is Kind.REFUSE and decision.reply[:1] != b"5":
            self._acted(answer)
            why = f"milter {decision.milter}: {_text(decision)}"
            return Filtered(envelope, why=why, is_failure=self._has_failed)
        self._acted(answer)
        route = _error(decision) if decision.kind is Kind.REFUSE else "discard:"
        routed = [_routed(each, route) for each in envelope.recipients]
        return await self._as_it_came(_with_recipients(envelope, routed), scratch)

    async def _as_it_came(self, envelope: Envelope, scratch: Scratch) -> Filtered:
        if scratch.size <= self._limits.inline_limit:
            data = b"".join([block async for block in scratch.blocks()])
            return Filtered(envelope, data, refused=self._returned)
        file = self._intake.create(envelope.queue_id)
        async for block in scratch.blocks():
            file.write([block])
        return Filtered(envelope, file=file, refused=self._returned)

    def _failed(self, milter: Milter, stage: str, what: str) -> None:
        self._has_failed = True
        self._filtering.log_failed(milter, stage, what, self._envelope.queue_id)

    def _acted(self, answer: Answer, recipients: Sequence[str] = ()) -> None:
        decision, envelope = answer.decision, self._envelope
        assert decision is not None
        is_for_now = decision.kind is Kind.REFUSE and decision.reply[:1] != b"5"
        event = MilterEvent(
            decision.milter,
            "tempfail" if is_for_now else decision.kind.value,
            answer.stage,
            decision.reason or _text(decision),
            CLIENT_ADDRESS,
            envelope.queue_id,
            envelope.sender,
            tuple(recipients) or tuple(each.address for each in envelope.recipients),
        )
        self._filtering.log_acted(event)


class Waiting:
    """The data of a message while milters work: a file without a name on the disk of the spool."""

    def __init__(self, disk: Disk, path: str) -> None:
        disk.make_directory(os.path.dirname(path))
        self._disk = disk
        self._fd = disk.create(path)
        disk.unlink(path)
        self._sums = BlockSums()
        self.data_bytes = 0

    def write(self, buffers: list[bytes]) -> None:
        """Appends data as on the wire. Raises OSError."""
        self._disk.write(self._fd, buffers, self.data_bytes)
        for buffer in buffers:
            self._sums.feed(buffer)
            self.data_bytes += len(buffer)

    def read(self, start: int) -> bytes:
        """Returns the block that begins at ``start``. Raises OSError, DataDamaged."""
        return read_block(self._disk, self._fd, 0, self.data_bytes, start, self._sums.sums)

    def abandon(self) -> None:
        """Gives the file back."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


class _Store:
    """A ``ScratchStore`` that does its work at once: the loop has nothing else to do."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def write(self, blocks: Sequence[bytes]) -> asyncio.Future[None]:
        self._waiting.write(list(blocks))
        return _done(None)

    def read(self, start: int) -> asyncio.Future[bytes]:
        return _done(self._waiting.read(start))

    def close(self) -> None:
        self._waiting.abandon()


class _LocalIntake:
    """The ``Intake`` of one message: it keeps what is to be stored, in memory or in a spool file."""

    def __init__(self, spool: Spool) -> None:
        self.kept: Filtered | None = None
        self._spool = spool
        self._file: SpoolFile | None = None
        self._eight_bit = False

    def create(self, queue_id: str) -> SpoolFile:
        """Begins a spool file. Raises OSError."""
        self._file = self._spool.create(queue_id)
        return self._file

    def abandon(self) -> None:
        """Removes the spool file."""
        if self._file is not None:
            self._file.abandon()

    def scratch(self, queue_id: str) -> _Store:
        return _Store(Waiting(self._spool.disk, self._spool.path(queue_id)))

    def upload(self, queue_id: str) -> _LocalIntake:
        self.create(queue_id)
        return self

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        assert self._file is not None
        self._file.write(list(blocks))
        self._eight_bit = self._eight_bit or not all(block.isascii() for block in blocks)
        done(b"")

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        self.write(blocks, lambda failure: done(failure, envelope))

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        eight_bit = envelope.eight_bit or self._eight_bit or not data.isascii()
        recipients = (*envelope.recipients, *more)
        envelope = msgspec.structs.replace(envelope, recipients=recipients, eight_bit=eight_bit)
        self.kept = Filtered(envelope, data, self._file)
        done(b"")


def _done(result: _T) -> asyncio.Future[_T]:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def _scratch_of(data: bytes | WaitingData) -> Scratch:
    if isinstance(data, bytes):
        return Scratch.of(data)
    assert isinstance(data, Waiting)  # from ``Filtering.waiting``
    return Scratch.of_file(_Store(data), data.data_bytes)


def _with_recipients(envelope: Envelope, recipients: Sequence[Recipient]) -> Envelope:
    numbered = tuple(msgspec.structs.replace(each, number=number) for number, each in enumerate(recipients))
    return msgspec.structs.replace(envelope, recipients=numbered, recipient_count=len(numbered))


def _routed(recipient: Recipient, route: str) -> Recipient:
    return msgspec.structs.replace(recipient, route=route)


def _text(decision: Decision) -> str:
    """Returns status and text of a reply, on one line."""
    lines = [line[4:] for line in decision.reply.decode("ascii", "replace").splitlines()]
    return " ".join("".join(c if c.isprintable() else "?" for c in " ".join(lines)).split())[:TEXT_MAX]


def _error(decision: Decision) -> str:
    return f"error:{_text(decision)}"
