"""Which node mails the report of a day: each makes it, and one mails it.

A row of the database says for each day which node is about to mail it, or that it was mailed. A node writes its name there and
hands the mail in at once. Another one takes its turn if the row says for CLAIM_S that it is about to: that node, or its portal,
ended in between. One that could not hand it in gives its turn back.

- law: one-letter-a-day. A mail is handed in only by the node that the row names, and by none once the row says that it was.
  If a node ends between both, the mail comes a second time, under the same Message-ID. It never is missing.

The row is among the small files, of no shard: "" is not the name of one.

Keeps law: one-letter-a-day (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta

import msgspec

from mailcore.config.settings import Settings
from mailcore.nodes.parameters import node_of, parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import TIMEOUT_S, check_kept
from mailcore.replication.statements import LETTER_MAKE, LETTER_READ, LETTER_TAKE, LETTERS_REMOVE
from mailcore.replication.values import as_int

__all__ = ["CLAIM_S", "KEEP_DAYS", "Claim", "Letters"]

CLAIM_S = 600.0  # handing in takes seconds, and its time-out is below a minute
KEEP_DAYS = 40  # a report is mailed within a day of its run
_PREFIX = "letter/"  # of the names of the rows, before the day


class Claim(msgspec.Struct, frozen=True):
    """The content of the row of a day, or the answer to a node that asks. ``sent``: the queue id of the mail."""

    node: str
    at_ms: int  # by the database's clock
    sent: str = ""
    ours: bool = False


class Letters:
    """Claims the mail of a day for this node, and writes that it was sent. Each raises StoreError, OSError."""

    def __init__(
        self, settings: Settings, *, opener: Callable[[StoreParameters], Connection] = Connection.open
    ) -> None:
        self._settings = settings
        self._node = node_of(settings)
        self._opener = opener

    def claim(self, day: str) -> Claim:
        """Returns whose turn it is. ``ours``: this node hands the mail in now."""
        with self._opened() as connection:
            while True:
                before, known, now_ms = _read(connection, day)
                if known is not None:
                    is_under_way = known.node != self._node and now_ms - known.at_ms < CLAIM_S * 1000
                    if known.sent or is_under_way:
                        return msgspec.structs.replace(known, ours=False)
                claim = Claim(self._node, now_ms)
                if _write(connection, day, before, claim):
                    return msgspec.structs.replace(claim, ours=True)

    def sent(self, day: str, queue_id: str) -> Claim:
        """Writes that the mail was handed in by this node."""
        with self._opened() as connection:
            while True:
                before, _, now_ms = _read(connection, day)
                claim = Claim(self._node, now_ms, queue_id)
                if _write(connection, day, before, claim):
                    oldest = _PREFIX + (date.fromisoformat(day) - timedelta(days=KEEP_DAYS)).isoformat()
                    connection.execute(LETTERS_REMOVE, [_PREFIX, oldest], TIMEOUT_S)
                    return claim

    def release(self, day: str) -> Claim:
        """Gives the turn back, because nothing was handed in: another node may have it at once."""
        with self._opened() as connection:
            before, known, _ = _read(connection, day)
            claim = Claim(self._node, 0)
            if known is not None and known.node == self._node and not known.sent:
                _write(connection, day, before, claim)
            return claim

    @contextmanager
    def _opened(self) -> Iterator[Connection]:
        connection = self._opener(parameters_of(self._settings))
        try:
            yield connection
        finally:
            connection.close()


def _read(connection: Connection, day: str) -> tuple[bytes, Claim | None, int]:
    """Returns what the row of a day has, b"" if there is none, what it says, and the database's time."""
    ((text, now_ms),) = connection.execute(LETTER_READ, [_PREFIX + day], TIMEOUT_S).rows
    try:
        return text or b"", msgspec.json.decode(text, type=Claim) if text else None, as_int(now_ms)
    except msgspec.MsgspecError:
        return text or b"", None, as_int(now_ms)


def _write(connection: Connection, day: str, before: bytes, claim: Claim) -> bool:
    """Replaces what the row says, if that is still ``before``; b"": there is none. Raises Lost."""
    text = msgspec.json.encode(claim)
    if before:
        answer = connection.execute(LETTER_TAKE, [_PREFIX + day, before, text], TIMEOUT_S)
    else:
        answer = connection.execute(LETTER_MAKE, [_PREFIX + day, text], TIMEOUT_S)
    return check_kept(answer) is not None
