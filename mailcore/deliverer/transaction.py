"""One mail transaction on an open connection: MAIL, RCPT, DATA, the bytes, the final dot; a verdict for every recipient.

With PIPELINING (RFC 2920) MAIL, all RCPT and DATA go out in one write. The data is copied as stored: CRLF, dot-stuffed.

Laws:
- A recipient is delivered only by a 2xx reply to the final dot. A reply that comes before the dot was sent is not one.
- In LMTP each accepted recipient has a reply of its own to the dot, in the order of RCPT (RFC 2033 4.2). If the connection is
  lost between two of them, what was answered counts, and the others are deferred: the server may have their mail or not.
- The dot follows only data whose every block matched its checksum. At the first that does not, the connection is closed: a
  server must not keep a message without its dot (RFC 5321 4.1.1.4), and RSET would be taken for data.
- Every recipient gets exactly one verdict in all cases, unless nothing at all was done (``None``: a kept
  connection was found dead; the caller takes a fresh one).
- The connection is afterwards either fit for the next transaction (perhaps after RSET), or ``failure`` is set.
- An address is written only when it cannot be mistaken for anything else (mailcore.routing.address).

Texts and codes are Postfix's, and so is the treatment of 552 at RCPT.

Keeps law: delivered-by-final-dot, law: lmtp-reply-by-recipient, law: one-verdict-per-recipient, law: data-matches-checksums,
law: success-is-the-last-word, law: passed-on-before-250, law: no-dot-after-lease (docs/laws.md).
"""

from __future__ import annotations

import time

import msgspec

from mailcore.config.settings import Deliverer
from mailcore.deliverer.chunks import send_chunks
from mailcore.deliverer.connection import Connection, Failure
from mailcore.deliverer.gate import NOT_ALL
from mailcore.deliverer.message_data import DataError, MessageData
from mailcore.deliverer.outcome import (
    SENDING_BODY,
    SENDING_DATA,
    SENDING_DOT,
    SENDING_MAIL,
    SENDING_RCPT,
    Addressee,
    Outcome,
    broken_off,
    by_recipient,
    failed,
    out_of_step,
    same_for_all,
)
from mailcore.deliverer.replies import Reply, enhanced_code, status_of
from mailcore.dsn_request import wants, wants_nothing
from mailcore.envelope import Options, Status, Verdict
from mailcore.esmtp import BINARY, Extension
from mailcore.frames import Deliver
from mailcore.log.data_blocks import BLOCK_BYTES
from mailcore.remote_reply import said
from mailcore.routing.address import is_mailbox, is_return_path
from mailcore.timed_request import is_too_late, owes_relayed

__all__ = ["transact"]

TURN_BYTES = 256 * 1024  # of one message that goes out before others have their turn: 0.1 ms
_DELIVERED = Status.DELIVERED  # reading a member from its class takes 0.1 us


async def transact(connection: Connection, work: Deliver, data: MessageData, limits: Deliverer) -> Outcome | None:
    """Sends ``work``; None when the kept connection turned out to be dead before anything was done.

    Raises DataError when the data cannot be read before anything was sent.
    """
    kept = connection.uses > 0
    connection.uses += 1
    verdicts: list[Verdict] = []
    if not connection.is_silent and connection.failure is None:
        connection.distrust()  # an unasked reply: no reply could be paired with its command any more
    recipients = _checked(connection, work, data, verdicts)
    if not recipients:
        return Outcome(verdicts, elsewhere=False)

    lines = [b"RSET\r\n"] if connection.needs_reset else []
    resets = len(lines)
    arguments = connection.extensions.mail_arguments(work, work.options)
    lines.append(b"MAIL FROM:<%b>%b\r\n" % (work.sender.encode(), arguments))
    lines += [recipient.line for recipient in recipients]
    is_binary = bool(work.options) and BINARY in work.options
    in_chunks = is_binary or connection.prefers_chunks
    if connection.pipelining:
        if not in_chunks:
            lines.append(b"DATA\r\n")
        connection.send(b"".join(lines))
        replies = await connection.replies(len(lines), limits.command_timeout_s)
    else:
        replies = await _step_by_step(connection, lines, resets, limits.command_timeout_s, asks=not in_chunks)

    dead = len(replies) <= resets or replies[resets].code == 421 or (resets and replies[0].code >= 300)
    if kept and dead and connection.failure in {None, Failure.LOST}:
        connection.abort()
        return None
    if resets:
        del replies[0:1]
    connection.needs_reset = True
    if replies and 300 <= replies[0].code < 400:
        out_of_step(connection, replies, 0)
    if not replies:
        return same_for_all(recipients, verdicts, *failed(connection, SENDING_MAIL))
    if replies[0].code >= 300:
        mail = replies[0]
        outcome = same_for_all(
            recipients, verdicts, status_of(mail), enhanced_code(mail), said(connection.name, mail.text, "MAIL FROM")
        )
        await _take_back_data(connection, replies, len(recipients), limits)
        return outcome

    accepted: list[Addressee] = []
    for index, recipient in enumerate(recipients, 1):
        if index < len(replies) and 300 <= replies[index].code < 400:
            out_of_step(connection, replies, index)
        if index >= len(replies):
            verdicts.append(Verdict(recipient.number, *failed(connection, SENDING_RCPT)))
            continue
        reply = replies[index]
        if reply.code < 300:
            accepted.append(recipient)
            continue
        if reply.code == 552:  # "too many recipients" from obsolete servers, RFC 5321 4.5.3.1.10
            reply = Reply(452, tuple(line.replace("5.", "4.", 1) if line[:2] == "5." else line for line in reply.lines))
        words = said(connection.name, reply.text, "RCPT TO")
        verdicts.append(Verdict(recipient.number, status_of(reply), enhanced_code(reply), words))

    go_ahead = replies[len(recipients) + 1] if len(replies) > len(recipients) + 1 else None
    if not accepted:
        await _take_back_data(connection, replies, len(recipients), limits)
        return Outcome(verdicts, all(verdict.status is Status.DEFERRED for verdict in verdicts))
    gate = data.gate
    if gate is not None and len(accepted) < gate.recipients:
        if go_ahead is not None and go_ahead.code < 400:
            connection.abort()  # it may wait for data, and a dot would deliver it to some
        return same_for_all(accepted, verdicts, Status.DEFERRED, "4.5.0", NOT_ALL)._replace(elsewhere=False)
    if in_chunks:
        outcome = await send_chunks(connection, data, accepted, verdicts, limits, is_binary=is_binary)
    elif go_ahead is None:
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_DATA))
    elif go_ahead.code != 354:
        if go_ahead.code < 400:
            connection.abort()
        if go_ahead.code == 421:
            connection.quit()
        words = said(connection.name, go_ahead.text, "DATA")
        status = status_of(go_ahead) if go_ahead.code >= 400 else Status.DEFERRED
        return same_for_all(
            accepted, verdicts, status, enhanced_code(go_ahead) if go_ahead.code >= 400 else "4.5.0", words
        )
    else:
        outcome = await _send(connection, data, accepted, verdicts, limits)
    if work.recipient_options and connection.extensions.notices_are_ours:
        outcome = outcome._replace(verdicts=_with_notices(outcome.verdicts, work, connection.name))
    if work.options and owes_relayed(work.options, connection.extensions.returns_in_time):
        outcome = outcome._replace(verdicts=_traced(outcome.verdicts, work, connection.name))
    return outcome


def _with_notices(verdicts: list[Verdict], work: Deliver, name: str) -> list[Verdict]:
    """Returns the verdicts; those for which we owe the sender a notice of success name the host (RFC 3461 5.2.2 b)."""
    asked = {
        number
        for (number, _), options in zip(work.recipients, work.recipient_options, strict=True)
        if wants(options, _DELIVERED)
    }
    return [
        msgspec.structs.replace(verdict, relayed_to=name)
        if verdict.status is _DELIVERED and verdict.number in asked
        else verdict
        for verdict in verdicts
    ]


def _traced(verdicts: list[Verdict], work: Deliver, name: str) -> list[Verdict]:
    """Returns the verdicts; those of recipients that were passed on name the host, unless their sender wants no reports."""
    options = work.recipient_options or ((),) * len(work.recipients)
    silent = {number for (number, _), each in zip(work.recipients, options, strict=True) if wants_nothing(each)}
    return [
        msgspec.structs.replace(verdict, relayed_to=name)
        if verdict.status is _DELIVERED and verdict.number not in silent
        else verdict
        for verdict in verdicts
    ]


def _checked(connection: Connection, work: Deliver, data: MessageData, verdicts: list[Verdict]) -> list[Addressee]:
    """Returns the recipients to send to; for each of the others it appends a verdict to ``verdicts``."""
    extensions = connection.extensions
    refusal: tuple[str, str] | None = None
    if not is_return_path(work.sender):
        refusal = "5.1.7", f"bad sender address syntax: {work.sender!a}"
    elif missing := extensions.missing(work, work.options, lambda: _header(data)):
        refusal = _not_offered(missing, connection)
    elif work.options and is_too_late(work.options, time.time()):
        refusal = "5.4.7", "delivery time expired: the sender set it with BY"
    elif 0 < connection.size_limit < data.length:
        limit = f"exceeds size limit {connection.size_limit} of server {connection.name}"
        refusal = "5.3.4", f"message size {data.length} {limit}"
    recipients: list[Addressee] = []
    options: Options = ()
    for index, (number, address) in enumerate(work.recipients):
        if work.recipient_options:
            options = work.recipient_options[index]
        if refusal is not None:
            verdicts.append(Verdict(number, Status.BOUNCED, *refusal))
        elif not is_mailbox(address):
            verdicts.append(Verdict(number, Status.BOUNCED, "5.1.3", f"bad address syntax: {address!a}"))
        elif (extensions.lacks_some or options) and (missing := extensions.missing_for(address, options)):
            verdicts.append(Verdict(number, Status.BOUNCED, *_not_offered(missing, connection)))
        elif options:
            arguments = extensions.rcpt_arguments(options)
            recipients.append(Addressee(number, b"RCPT TO:<%b>%b\r\n" % (address.encode(), arguments)))
        else:
            recipients.append(Addressee(number, b"RCPT TO:<%b>\r\n" % address.encode()))
    return recipients


def _not_offered(missing: Extension, connection: Connection) -> tuple[str, str]:
    return missing.missing_dsn, f"{missing.keyword} is required, but was not offered by host {connection.name}"


def _header(data: MessageData) -> bytes:
    """Returns the header section; only its beginning if it is longer than a block."""
    return data.read(0).partition(b"\r\n\r\n")[0]


async def _step_by_step(
    connection: Connection, lines: list[bytes], resets: int, timeout_s: float, *, asks: bool
) -> list[Reply]:
    """Sends one command after the other, as far as it makes sense. DATA only when a recipient was accepted, and if ``asks``."""
    replies: list[Reply] = []
    for index, line in enumerate(lines):
        connection.send(line)
        replies += await connection.replies(1, timeout_s)
        if len(replies) <= index or replies[-1].code == 421 or (index <= resets and replies[-1].code >= 300):
            return replies
    if asks and any(reply.code < 300 for reply in replies[resets + 1 :]):
        connection.send(b"DATA\r\n")
        replies += await connection.replies(1, timeout_s)
    return replies


async def _take_back_data(connection: Connection, replies: list[Reply], recipients: int, limits: Deliverer) -> None:
    """Ends a transaction without recipients: a dot if the server waits for data after a pipelined DATA (RFC 2920 3.1)."""
    if replies[-1].code == 421:
        connection.quit()
    elif len(replies) > recipients + 1 and replies[-1].code == 354:
        if connection.speaks_lmtp:
            connection.abort()  # a dot without recipients has no reply (RFC 2033 4.2)
            return
        await connection.command(b".", limits.final_timeout_s)


async def _send(
    connection: Connection, data: MessageData, accepted: list[Addressee], verdicts: list[Verdict], limits: Deliverer
) -> Outcome:
    tail = b".\r\n"
    if connection.is_quiet:
        try:
            if await _copy(connection, data, limits.data_timeout_s) != b"\r\n" and data.length:
                tail = b"\r\n.\r\n"  # stored data ends with CRLF; if it does not, the dot still needs its own line
            if data.files.deadline.is_set:  # a dot behind data in our memory would leave at any time
                await connection.drained(limits.data_timeout_s)
        except DataError as error:
            connection.abort()  # without the dot the server has got nothing
            return broken_off(connection, accepted, verdicts, error)
    if connection.failure is not None and connection.is_silent:
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_BODY))
    if not connection.is_silent:  # it spoke before the dot: with a refusal, or out of turn
        early = await connection.replies(1, limits.command_timeout_s)
        connection.abort()
        if not early or early[0].code < 400:
            words = Failure.PROTOCOL.value.format(name=connection.name, stage=SENDING_BODY)
            return same_for_all(accepted, verdicts, Status.DEFERRED, "4.5.0", words)
        words = said(connection.name, early[0].text, "end of DATA")
        if connection.speaks_lmtp:  # it may be meant for one recipient, or for all
            return same_for_all(accepted, verdicts, Status.DEFERRED, "4.5.0", words)
        return same_for_all(accepted, verdicts, status_of(early[0]), enhanced_code(early[0]), words)

    gate = data.gate
    if why := data.why_no_dot():
        connection.abort()
        return same_for_all(accepted, verdicts, Status.DEFERRED, "4.4.2", why)._replace(elsewhere=False)
    connection.send(data.whole + tail if data.whole is not None and not _goes_ahead(data) else tail)
    if connection.speaks_lmtp:
        replies = await connection.replies(len(accepted), limits.final_timeout_s)
        if gate is not None:
            gate.refused = len(replies) == len(accepted) and replies[0].code >= 400
        outcome = by_recipient(connection, replies, accepted, verdicts, "end of DATA")
        return outcome if gate is None else outcome._replace(elsewhere=False)
    final = await connection.replies(1, limits.final_timeout_s)
    if gate is not None:
        gate.refused = bool(final) and final[0].code >= 400  # a 3xx is a reply to something else
    if not final:
        status, dsn, words = failed(connection, SENDING_DOT)
    else:
        connection.needs_reset = final[0].code >= 300
        status, dsn, words = status_of(final[0]), enhanced_code(final[0]), final[0].text
        if status is not _DELIVERED:
            words = said(connection.name, final[0].text, "end of DATA")
            if final[0].code == 421:
                connection.quit()
    verdicts += [Verdict(recipient.number, status, dsn, words) for recipient in accepted]
    refused = final and status is not _DELIVERED and all(verdict.status is Status.DEFERRED for verdict in verdicts)
    return Outcome(verdicts, elsewhere=bool(refused) and gate is None)


def _goes_ahead(data: MessageData) -> bool:
    """Returns whether data in memory is sent before its dot: time may end for a client that waits, or for the shard, so a
    server that reads slowly must have it before the dot is decided on."""
    is_timed = data.gate is not None or data.files.deadline.is_set
    return is_timed and data.whole is not None and data.length > BLOCK_BYTES


async def _copy(connection: Connection, data: MessageData, timeout_s: float) -> bytes:
    """Sends big data block by block, as fast as the server takes it; each block is checked before it is sent.

    Small data goes out with its dot. Returns the last two bytes of the data. Raises DataError.
    """
    if data.whole is not None:
        if _goes_ahead(data):
            for at in range(0, data.length, BLOCK_BYTES):
                connection.send(data.whole[at : at + BLOCK_BYTES])
                if not await connection.room(timeout_s):
                    break
        return data.whole[-2:]
    sent = 0
    in_this_turn = 0
    end = b""
    while sent < data.length:
        block = data.read(sent)
        connection.send(block)
        sent += len(block)
        in_this_turn += len(block)
        end = (end + block[-2:])[-2:]
        if in_this_turn < TURN_BYTES and connection.is_taking:
            continue
        in_this_turn = 0
        if not await connection.room(timeout_s):
            break
    return end
