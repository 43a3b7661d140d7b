"""Message data sent with BDAT (RFC 3030), where the message needs it or the transport prefers it.

The octets are those that the next hop would have after DATA: without the stuffed dots, text with a line end at its end. A chunk
is a block of the data. With PIPELINING up to AHEAD_MAX chunks go out before their replies are read.

Laws:
- The first chunk is sent after the replies to all RCPT, and only when one was accepted, so that a chunk never
  follows a refusal.
- LAST follows only chunks that were all answered with 2xx, and nothing else was received: the reply after it belongs
  to it. In LMTP each accepted recipient has one (RFC 2033 4.3).
- LAST follows only data whose every block matched its checksum. At the first that does not, the connection is closed, and
  without LAST a server keeps no message.
- A server that offers CHUNKING and does not know BDAT would read the data as commands: its connection is closed at once,
  and the mail waits.

Keeps law: chunks-are-the-message, law: delivered-by-final-dot, law: lmtp-reply-by-recipient,
law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mailcore.config.settings import Deliverer
from mailcore.deliverer.connection import Connection
from mailcore.deliverer.message_data import DataError, MessageData
from mailcore.deliverer.outcome import (
    SENDING_BODY,
    SENDING_DOT,
    Addressee,
    Outcome,
    broken_off,
    by_recipient,
    failed,
    same_for_all,
)
from mailcore.deliverer.replies import Reply, enhanced_code, status_of
from mailcore.deliverer.unstuffed import unstuffed
from mailcore.envelope import Status, Verdict
from mailcore.remote_reply import said

__all__ = ["send_chunks"]

AHEAD_MAX = (
    8  # chunks of 64 KiB: half a megabyte for each round trip, and as much in memory if the server does not read
)
_UNKNOWN_COMMAND = (500, 502)  # RFC 5321 4.2.4


class _Refusal(NamedTuple):
    """Chunks were not taken. ``reply`` is None if the connection failed."""

    reply: Reply | None


async def send_chunks(
    connection: Connection,
    data: MessageData,
    accepted: list[Addressee],
    verdicts: list[Verdict],
    limits: Deliverer,
    *,
    is_binary: bool,
) -> Outcome:
    """Sends the data; the first refusal of a chunk counts for all recipients, else the reply to the last one."""
    octets = _octets(data, is_binary=is_binary)
    ahead_max = AHEAD_MAX if connection.pipelining else 1
    unanswered = 0
    refusal: _Refusal | None = None
    try:
        chunk = next(octets, b"")
        for following in octets:
            if not unanswered and not connection.is_quiet:
                refusal = _Refusal(None)
                break
            connection.send(b"BDAT %d\r\n%b" % (len(chunk), chunk))
            unanswered += 1
            chunk = following
            if unanswered == ahead_max or not await connection.room(limits.data_timeout_s):
                refusal = await _refusal(connection, unanswered, limits.data_timeout_s)
                unanswered = 0
                if refusal is not None:
                    break
    except DataError as error:
        connection.abort()  # without LAST the server has got nothing
        return broken_off(connection, accepted, verdicts, error)
    if refusal is None and unanswered:
        refusal = await _refusal(connection, unanswered, limits.data_timeout_s)
    if refusal is None and not connection.is_quiet:
        refusal = _Refusal(None)
    if refusal is not None:
        return _not_taken(connection, refusal.reply, accepted, verdicts)
    return await _send_last(connection, chunk, accepted, verdicts, limits.final_timeout_s)


def _octets(data: MessageData, *, is_binary: bool) -> Iterator[bytes]:
    """Yields the octets of the message; text gets the line end that DATA needs for its dot. Raises DataError."""
    end = b""
    for octets in unstuffed(data):
        end = (end + octets[-2:])[-2:]
        yield octets
    if not is_binary and end not in (b"", b"\r\n"):
        yield b"\r\n"


async def _refusal(connection: Connection, count: int, timeout_s: float) -> _Refusal | None:
    """Returns the first refusal among the replies to ``count`` chunks; None if all were taken."""
    replies = await connection.replies(count, timeout_s)
    for reply in replies:
        if reply.code >= 300:
            return _Refusal(reply)
    return None if len(replies) == count else _Refusal(None)


async def _send_last(
    connection: Connection, chunk: bytes, accepted: list[Addressee], verdicts: list[Verdict], timeout_s: float
) -> Outcome:
    connection.send(b"BDAT %d LAST\r\n%b" % (len(chunk), chunk))
    replies = await connection.replies(1, timeout_s)
    if not replies or 300 <= replies[0].code < 400:
        connection.distrust()  # it stays failed if it was
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_DOT))._replace(elsewhere=False)
    if replies[0].code in _UNKNOWN_COMMAND:
        return _not_taken(connection, replies[0], accepted, verdicts)
    if connection.speaks_lmtp:
        replies += await connection.replies(len(accepted) - 1, timeout_s)
        return by_recipient(connection, replies, accepted, verdicts, "BDAT")
    if replies[0].code >= 300:
        return _not_taken(connection, replies[0], accepted, verdicts)
    connection.needs_reset = False
    return same_for_all(accepted, verdicts, Status.DELIVERED, enhanced_code(replies[0]), replies[0].text)


def _not_taken(
    connection: Connection, reply: Reply | None, accepted: list[Addressee], verdicts: list[Verdict]
) -> Outcome:
    """Returns the outcome when a chunk got no 2xx. The transaction stays open: RSET comes before the next."""
    if reply is None or reply.code < 400:
        connection.distrust()  # a 3xx, or a reply that no chunk asked for; a connection that has failed stays so
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_BODY))
    words = said(connection.name, reply.text, "BDAT")
    if reply.code in _UNKNOWN_COMMAND:
        connection.abort()
        return same_for_all(accepted, verdicts, Status.DEFERRED, "4" + enhanced_code(reply)[1:], words)
    if reply.code == 421:
        connection.quit()
    return same_for_all(accepted, verdicts, status_of(reply), enhanced_code(reply), words)
