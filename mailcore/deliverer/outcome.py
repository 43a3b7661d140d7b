"""The outcome of a transaction, put together from replies and failures: a verdict for each recipient.

Knows neither commands nor data; mailcore.deliverer.transaction and mailcore.deliverer.chunks send these.

Keeps law: lmtp-reply-by-recipient (docs/laws.md).
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.deliverer.connection import Connection, Failure
from mailcore.deliverer.message_data import DataError
from mailcore.deliverer.replies import Reply, enhanced_code, status_of
from mailcore.envelope import Status, Verdict
from mailcore.remote_reply import said

__all__ = [
    "SENDING_BODY",
    "SENDING_DATA",
    "SENDING_DOT",
    "SENDING_MAIL",
    "SENDING_RCPT",
    "Addressee",
    "Outcome",
    "broken_off",
    "by_recipient",
    "failed",
    "out_of_step",
    "same_for_all",
]

SENDING_MAIL = "sending MAIL FROM"
SENDING_RCPT = "sending RCPT TO"
SENDING_DATA = "sending DATA command"
SENDING_BODY = "sending message body"
SENDING_DOT = "sending end of data -- message may be sent more than once"

_DSN_OF_FAILURE = {Failure.LOST: "4.4.2", Failure.TIMEOUT: "4.4.2", Failure.PROTOCOL: "4.5.0"}  # RFC 3463 3.5, 3.6
_DELIVERED = Status.DELIVERED  # reading a member from its class takes 0.1 us


class Outcome(NamedTuple):
    """The result of a transaction. ``elsewhere``: no verdict is final, so another host may be tried at once."""

    verdicts: list[Verdict]
    elsewhere: bool
    data_error: DataError | None = None  # the fault of the data on disk


class Addressee(NamedTuple):
    """A recipient of the transaction: its number, and its RCPT command."""

    number: int
    line: bytes


def same_for_all(recipients: list[Addressee], verdicts: list[Verdict], status: Status, dsn: str, words: str) -> Outcome:
    """Returns the outcome after ``verdicts`` with the same verdict for each of the recipients."""
    verdicts += [Verdict(recipient.number, status, dsn, words) for recipient in recipients]
    return Outcome(verdicts, all(verdict.status is Status.DEFERRED for verdict in verdicts))


def by_recipient(
    connection: Connection, replies: list[Reply], accepted: list[Addressee], verdicts: list[Verdict], command: str
) -> Outcome:
    """Returns the outcome of LMTP's replies to ``command``; missing ones at the end are a failure of the connection."""
    for index, reply in enumerate(replies):
        if 300 <= reply.code < 400:
            out_of_step(connection, replies, index)
            break
        status = status_of(reply)
        words = reply.text if status is _DELIVERED else said(connection.name, reply.text, command)
        verdicts.append(Verdict(accepted[index].number, status, enhanced_code(reply), words))
    unanswered = accepted[len(replies) :]
    if unanswered:
        failure = failed(connection, SENDING_DOT)
        verdicts += [Verdict(recipient.number, *failure) for recipient in unanswered]
        return Outcome(verdicts, elsewhere=False)
    connection.needs_reset = any(reply.code >= 300 for reply in replies)
    if any(reply.code == 421 for reply in replies):
        connection.quit()
    return Outcome(verdicts, elsewhere=all(verdict.status is Status.DEFERRED for verdict in verdicts))


def broken_off(connection: Connection, accepted: list[Addressee], verdicts: list[Verdict], error: DataError) -> Outcome:
    """Returns the outcome when the data on disk cannot be read to its end; the connection was aborted."""
    words = f"{error.reply}; the transfer to {connection.name} was broken off"
    outcome = same_for_all(accepted, verdicts, Status.DEFERRED, "4.3.0", words)
    return Outcome(outcome.verdicts, elsewhere=False, data_error=error)


def out_of_step(connection: Connection, replies: list[Reply], index: int) -> None:
    """Ends a conversation with a 3xx where none is possible: a reply is missing, so none can be paired any more."""
    del replies[index:]
    connection.distrust()


def failed(connection: Connection, stage: str) -> tuple[Status, str, str]:
    """Returns status, enhanced code and text for recipients that have no reply because the connection failed."""
    failure = connection.failure or Failure.LOST
    return Status.DEFERRED, _DSN_OF_FAILURE[failure], failure.value.format(name=connection.name, stage=stage)
