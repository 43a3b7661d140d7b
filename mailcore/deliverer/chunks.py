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
  and the mail waits. A server knows BDAT if it took a chunk, or if the enhanced code of its 500 or 502 is about the mail:
  such a reply is the verdict. After the latter the connection is closed, too.

Keeps law: chunks-are-the-message, law: delivered-by-final-dot, law: lmtp-reply-by-recipient,
law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mailcore.config.settings import Deliverer
from mailcore.deliverer.connection import Connection
from mailcore.deliverer.gate import Gate
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
_OF_COMMANDS = ("0", "5")  # subjects of enhanced codes: undefined, and the protocol (RFC 3463 3.1, 3.6)


class _Refusal(NamedTuple):
    """Chunks were not taken. ``reply`` is None if the connection failed; ``knows``: the server took a chunk before."""

    reply: Reply | None
    knows: bool = False

    @property
    def may_be_of_bdat(self) -> bool:
        """Returns whether the server may not know BDAT."""
        return self.reply is not None and not self.knows and self.reply.code in _UNKNOWN_COMMAND

    @property
    def is_of_bdat(self) -> bool:
        """Returns whether the server does not know BDAT: the reply says nothing about the mail."""
        if self.reply is None or not self.may_be_of_bdat:
            return False
        return enhanced_code(self.reply).split(".")[1] in _OF_COMMANDS


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
    knows = False  # a chunk was taken
    refusal: _Refusal | None = None
    try:
        chunk = next(octets, b"")
        for following in octets:
            if not unanswered and not connection.is_quiet:
                refusal = _Refusal(None)
                break
            connection.send(b"BDAT %d\r\n" % len(chunk), chunk)
            unanswered += 1
            chunk = following
            if unanswered == ahead_max or not await connection.room(limits.data_timeout_s):
                refusal = await _refusal(connection, unanswered, limits.data_timeout_s, knows=knows)
                if refusal is not None:
                    break
                unanswered, knows = 0, True
    except DataError as error:
        connection.abort()  # without LAST the server has got nothing
        return broken_off(connection, accepted, verdicts, error)
    if refusal is None and unanswered:
        refusal = await _refusal(connection, unanswered, limits.data_timeout_s, knows=knows)
        knows = True  # if there is no refusal
    if refusal is None and not connection.is_quiet:
        refusal = _Refusal(None)
    if refusal is not None:
        return _not_taken(connection, refusal, accepted, verdicts)
    if why := data.why_no_dot():
        connection.abort()
        return same_for_all(accepted, verdicts, Status.DEFERRED, "4.4.2", why)._replace(elsewhere=False)
    outcome = await _send_last(connection, chunk, accepted, verdicts, limits.final_timeout_s, data.gate, knows=knows)
    return outcome if data.gate is None else outcome._replace(elsewhere=False)


def _octets(data: MessageData, *, is_binary: bool) -> Iterator[bytes]:
    """Yields the octets of the message; text gets the line end that DATA needs for its dot. Raises DataError."""
    end = b""
    for octets in unstuffed(data):
        end = (end + octets[-2:])[-2:]
        yield octets
    if not is_binary and end not in (b"", b"\r\n"):
        yield b"\r\n"


async def _refusal(connection: Connection, count: int, timeout_s: float, *, knows: bool) -> _Refusal | None:
    """Returns the first refusal among the replies to ``count`` chunks; None if all were taken."""
    replies = await connection.replies(count, timeout_s)
    for reply in replies:
        if reply.code >= 300:
            return _Refusal(reply, knows)
        knows = True
    return None if len(replies) == count else _Refusal(None)


async def _send_last(
    connection: Connection,
    chunk: bytes,
    accepted: list[Addressee],
    verdicts: list[Verdict],
    timeout_s: float,
    gate: Gate | None,
    *,
    knows: bool,
) -> Outcome:
    connection.send(b"BDAT %d LAST\r\n" % len(chunk), chunk)
    replies = await connection.replies(1, timeout_s)
    if not replies or 300 <= replies[0].code < 400:
        connection.distrust()  # it stays failed if it was
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_DOT))._replace(elsewhere=False)
    refusal = _Refusal(replies[0], knows)  # if it is one
    if gate is not None:
        gate.refused = replies[0].code >= 400  # in LMTP there is one recipient
    if connection.speaks_lmtp and not refusal.is_of_bdat:
        replies += await connection.replies(len(accepted) - 1, timeout_s)
        outcome = by_recipient(connection, replies, accepted, verdicts, "BDAT")
        if refusal.may_be_of_bdat:
            connection.abort()
        return outcome
    if replies[0].code >= 300:
        return _not_taken(connection, refusal, accepted, verdicts)
    connection.needs_reset = False
    return same_for_all(accepted, verdicts, Status.DELIVERED, enhanced_code(replies[0]), replies[0].text)


def _not_taken(
    connection: Connection, refusal: _Refusal, accepted: list[Addressee], verdicts: list[Verdict]
) -> Outcome:
    """Returns the outcome when a chunk got no 2xx. The transaction stays open: RSET comes before the next."""
    reply = refusal.reply
    if reply is None or reply.code < 400:
        connection.distrust()  # a 3xx, or a reply that no chunk asked for; a connection that has failed stays so
        return same_for_all(accepted, verdicts, *failed(connection, SENDING_BODY))
    words = said(connection.name, reply.text, "BDAT")
    if refusal.may_be_of_bdat:
        connection.abort()
    if refusal.is_of_bdat:
        return same_for_all(accepted, verdicts, Status.DEFERRED, "4" + enhanced_code(reply)[1:], words)
    if reply.code == 421:
        connection.quit()
    return same_for_all(accepted, verdicts, status_of(reply), enhanced_code(reply), words)
