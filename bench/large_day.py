"""A large day, made up quickly: the same deliveries as events for the pipeline and as a Postfix mail log for pflogsumm.

Half an hour at a time, in columns, so that memory does not grow with the day. A tenth of the recipients are deferred at
first, and delivered in a second attempt; some bounce. numpy's generator with a seed chooses senders and recipients.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mailcore.events.checksum import Summed
from mailcore.events.schema import COLUMNS, VERSION

__all__ = ["Expected", "make_day"]

PIECES = 48
DOMAINS = 2_000
SENDERS, CLIENTS, MAILBOXES = 50_000, 5_000, 1_000_000
DEFERRED_SHARE, BOUNCED_SHARE = 0.10, 0.02  # of first attempts
RETRY_S = 400
ROWS_MAX = 20_000  # of a row group, as the export writes them
RECORD_BYTES = 200
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "strings": pa.list_(pa.string()),
}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
REPLIES = {
    "delivered": "250 2.0.0 Ok: queued as ",
    "deferred": "450 4.7.1 try again in 300 seconds, request ",
    "bounced": "550 5.1.1 unknown user, request ",
}
DSNS = {"delivered": "2.0.0", "deferred": "4.7.1", "bounced": "5.1.1"}
STATUSES = np.array(["delivered", "deferred", "bounced"])
LOGGED = {"delivered": "sent", "deferred": "deferred", "bounced": "bounced"}


@dataclass
class Expected:
    """Holds the sums that a report of the day must have."""

    messages: int = 0
    recipients: int = 0
    size_bytes: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    by_domain: Counter[str] = field(default_factory=Counter)  # delivered

    @property
    def attempts(self) -> int:
        return sum(self.statuses.values())


def make_day(directory: Path, day: date, attempts: int, seed: int = 1) -> Expected:
    """Writes ``directory/events`` and ``directory/mail.log``; returns the expected sums."""
    random, expected = np.random.default_rng(seed), Expected()
    events = directory / "events"
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
    messages = int(attempts / PIECES / (1.375 * (1 + DEFERRED_SHARE)))  # 1.375 recipients a message
    writer = _Writer(events)
    writer.cut(midnight)
    with (directory / "mail.log").open("wb") as log:
        for index in range(PIECES):
            begin = midnight + 86_400 * index / PIECES
            piece = _Piece(random, begin, 86_400 / PIECES, messages, first=expected.messages)
            piece.count(expected)
            writer.write(day, piece)
            log.write(piece.log())
    writer.cut(midnight + 86_400)
    return expected


class _Piece:
    def __init__(self, random: np.random.Generator, begin: float, length: float, messages: int, first: int) -> None:
        self.at = np.sort(begin + random.random(messages) * (length - RETRY_S - 10))
        numbers = np.arange(first, first + messages)
        self.ids = _strings("0A", (int(begin) >> 10) % 1_000, 3, numbers, 8)
        self.senders = _named("sender", random.integers(0, SENDERS, messages), "@example.org")
        clients = random.integers(0, CLIENTS, messages)
        self.clients = pc.binary_join_element_wise("10.0", _text(clients // 250), _text(clients % 250), ".")
        self.sizes = random.integers(800, 60_000, messages)
        self.counts = random.choice([1, 2, 3], messages, p=[0.75, 0.125, 0.125])
        domains = np.minimum(random.zipf(1.3, messages) - 1, DOMAINS - 1)
        # By recipient: whose message, which number in it.
        self.whose = np.repeat(np.arange(messages), self.counts)
        ends = np.cumsum(self.counts)
        self.numbers = np.arange(len(self.whose)) - np.repeat(ends - self.counts, self.counts)
        self.domain = domains[self.whose]
        boxes = random.integers(0, MAILBOXES, len(self.whose))
        self.addresses = pc.binary_join_element_wise(
            _named("user", boxes, ""), _named("d", self.domain, ".example"), "@"
        )
        share = random.random(len(self.whose))
        status = np.where(share < DEFERRED_SHARE, 1, np.where(share < DEFERRED_SHARE + BOUNCED_SHARE, 2, 0))
        # By attempt: first ones, then second ones; which recipient, when, what came of it.
        again = np.flatnonzero(status == 1)
        self.recipient = np.concatenate([np.arange(len(self.whose)), again])
        self.generation = np.concatenate([np.zeros(len(self.whose), int), np.ones(len(again), int)])
        self.status = np.concatenate([status, np.zeros(len(again), int)])
        message = self.whose[self.recipient]
        self.when = self.at[message] + 1 + RETRY_S * self.generation
        order = np.argsort(self.when, kind="stable")
        for name in ("recipient", "generation", "status", "when"):
            setattr(self, name, getattr(self, name)[order])
        self.message = self.whose[self.recipient]
        shape = len(self.recipient)
        self.delays = [
            np.round(random.random(shape) * 0.1 + RETRY_S * self.generation, 3),
            np.round(random.random(shape) * 0.01, 3),
            np.round(random.exponential(0.1, shape), 3),
            np.round(random.exponential(0.3, shape), 3),
        ]
        self.replies = pc.binary_join_element_wise(
            pa.array([REPLIES[name] for name in STATUSES]).take(pa.array(self.status)),
            _text(random.integers(10**8, 10**9, shape)),
            "",
        )
        self.replies = pc.binary_join_element_wise(self.replies, "X", "")
        last = np.zeros(messages)
        np.maximum.at(last, self.message, self.when)
        self.finished = last
        # A transaction: a message's recipients of one generation. Its first attempt is part 0.
        key = self.message * 2 + self.generation
        starts = np.concatenate([[True], key[1:] != key[:-1]])
        self.transaction = np.cumsum(starts) - 1
        firsts = np.flatnonzero(starts)
        self.part = np.arange(shape) - firsts[self.transaction]
        self.sizes_of = np.diff(np.append(firsts, shape))

    def count(self, expected: Expected) -> None:
        expected.messages += len(self.at)
        expected.recipients += len(self.whose)
        expected.size_bytes += int(self.sizes.sum())
        for number, name in enumerate(STATUSES):
            expected.statuses[str(name)] += int((self.status == number).sum())
        counted = np.bincount(self.domain[self.recipient[self.status == 0]], minlength=DOMAINS)
        expected.by_domain.update({f"d{number}.example": int(count) for number, count in enumerate(counted) if count})

    # -- as events

    def accepted(self) -> dict[str, Any]:
        offsets = np.concatenate([[0], np.cumsum(self.counts)])
        return {
            "at": self.at, "queue_id": self.ids, "sender": self.senders, "size_bytes": self.sizes,
            "recipient_count": self.counts,
            "recipients": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.addresses), "first_number": 0,
            "origin": "smtp", "client_address": self.clients, "helo": "client.example.org", "login": "",
            "message_id": pc.binary_join_element_wise("<", self.ids, "@example.org>", ""),
            "tls": "TLSv1.3 TLS_AES_256_GCM_SHA384",
        }  # fmt: skip

    def attempts(self) -> dict[str, Any]:
        counts = pa.array(np.where(self.part == 0, self.sizes_of[self.transaction], -1))
        domains = self.domain[self.recipient]
        return {
            "at": self.when, "queue_id": self.ids.take(pa.array(self.message)), "number": self.numbers[self.recipient],
            "recipient_count": pc.if_else(pc.equal(counts, -1), None, counts), "generation": self.generation,
            "status": pa.array(STATUSES).take(pa.array(self.status)),
            "dsn": pa.array([DSNS[name] for name in STATUSES]).take(pa.array(self.status)), "reply": self.replies,
            "destination": _named("smtp:d", domains, ".example"), "relay": self._relays(domains),
            **{f"delay_{letter}": delay for letter, delay in zip("abcd", self.delays, strict=True)},
            "tls": "TLSv1.3 TLS_AES_256_GCM_SHA384",
        }  # fmt: skip

    def finishes(self) -> dict[str, Any]:
        return {"at": self.finished, "queue_id": self.ids, "generation": 0, "why": ""}

    def replacements(self) -> dict[str, Any]:
        message = np.unique(self.message[self.status == 1])
        return {
            "at": self.at[message] + 1, "queue_id": self.ids.take(pa.array(message)), "generation": 0, "to_lane": "retry.300",
            "due_at": self.at[message] + 301,
        }  # fmt: skip

    def _relays(self, domains: np.ndarray[Any, Any]) -> pa.Array:
        """Fifty providers for all domains."""
        return pc.binary_join_element_wise(
            "mx", _text(domains % 4), ".provider", _text(domains % 50), ".example[192.0.2.1]:25", ""
        )

    # -- as a log

    def log(self) -> bytes:
        """Lines in the order of their times."""
        stamp = _stamps(self.at)
        done = _stamps(self.when)
        ends = _stamps(self.finished)
        join = pc.binary_join_element_wise
        domains = self.domain[self.recipient]
        total = sum(self.delays)
        sent = pa.array([LOGGED[name] for name in STATUSES]).take(pa.array(self.status))
        dsn = pa.array([DSNS[name] for name in STATUSES]).take(pa.array(self.status))
        lines = [
            join(stamp, " mx postfix/smtpd[1001]: ", self.ids, ": client=host.example.org[", self.clients, "]", ""),
            join(stamp, " mx postfix/cleanup[1002]: ", self.ids, ": message-id=<", self.ids, "@example.org>", ""),
            join(
                stamp, " mx postfix/qmgr[1003]: ", self.ids, ": from=<", self.senders, ">, size=", _text(self.sizes),
                ", nrcpt=",
                _text(self.counts), " (queue active)", "",
            ),
            join(
                done, " mx postfix/smtp[1004]: ", self.ids.take(pa.array(self.message)), ": to=<",
                self.addresses.take(pa.array(self.recipient)), ">, relay=", self._relays(domains), ", delay=", _seconds(total),
                ", delays=", *_slashed(self.delays), ", dsn=", dsn, ", status=", sent, " (", self.replies, ")", "",
            ),
            join(ends, " mx postfix/qmgr[1003]: ", self.ids, ": removed", ""),
        ]  # fmt: skip
        times = np.concatenate([self.at, self.at + 0.001, self.at + 0.002, self.when, self.finished + 0.001])
        every = pa.chunked_array(lines).take(pa.array(np.argsort(times, kind="stable"))).combine_chunks()
        whole = join(every, "", "\n")
        if isinstance(whole, pa.ChunkedArray):
            return b"".join(bytes(chunk.buffers()[2])[: chunk.nbytes] for chunk in whole.chunks)
        end = np.frombuffer(whole.buffers()[1], np.int32)[len(whole)]
        return bytes(whole.buffers()[2])[:end]


class _Writer:
    def __init__(self, events: Path) -> None:
        self.events = events
        self.ends = {"incoming.0": 0, "journal": 0}

    def write(self, day: date, piece: _Piece) -> None:
        self._file(day, "incoming.0", [("accepted", piece.accepted(), None)])
        base = len(piece.sizes_of)
        made = [("attempt", piece.attempts(), piece.transaction)]
        for kind, columns in (("finished", piece.finishes()), ("replaced", piece.replacements())):
            made.append((kind, columns, base + np.arange(len(columns["at"]))))
            base += len(columns["at"])
        self._file(day, "journal", made, piece.part)

    def _file(
        self,
        day: date,
        lane: str,
        kinds: list[tuple[str, dict[str, Any], Any]],
        parts: np.ndarray[Any, Any] | None = None,
    ) -> None:
        begin, end = self.ends[lane], self.ends[lane]
        tables = []
        for kind, columns, records in kinds:
            count = len(columns["at"])
            offsets = self.ends[lane] + RECORD_BYTES * (np.arange(count) if records is None else records)
            end = max(end, int(offsets[-1]) + RECORD_BYTES) if count else end
            part = parts if kind == "attempt" else 0
            whole = {**columns, "lane": lane, "kind": kind, "offset": offsets, "part": part}
            tables.append(
                pa.Table.from_arrays(
                    [_column(whole.get(each.name), count, each.type) for each in SCHEMA], schema=SCHEMA
                )
            )
        said = {
            "waypost.events": str(VERSION),
            "waypost.lane": lane,
            "waypost.from": str(begin),
            "waypost.to": str(end),
        }
        directory = self.events / f"dt={day.isoformat()}"
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{lane}.{begin}.parquet").open("wb") as file:
            summed = Summed(file)
            writer = pq.ParquetWriter(summed, SCHEMA.with_metadata(said), compression="zstd", write_page_checksum=True)
            for table in tables:
                writer.write_table(table, row_group_size=ROWS_MAX)
            summed.footer_follows()
            writer.close()
            summed.finish()
        self.ends[lane] = end

    def cut(self, at: float) -> None:
        """All mail ends within the day; so nothing is queued, and what is queued has no checksum but 0."""
        (self.events / "cuts").mkdir(parents=True, exist_ok=True)
        said = {"at": at, "messages": 0, "recipients": 0, "checksum": 0, "lanes": dict(self.ends)}
        (self.events / "cuts" / f"{at:.0f}.json").write_text(json.dumps(said))


def _column(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, pa.Array):
        return value.cast(kind)
    return pa.array(value, kind) if isinstance(value, np.ndarray) else pa.repeat(pa.scalar(value, kind), count)


def _text(numbers: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _named(before: str, numbers: np.ndarray[Any, Any], after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, _text(numbers), after, "")


def _strings(before: str, stretch: int, width: int, numbers: np.ndarray[Any, Any], digits: int) -> pa.Array:
    """Queue ids: thirteen characters that sort by arrival."""
    return pc.binary_join_element_wise(before, f"{stretch:0{width}d}", pc.utf8_lpad(_text(numbers), digits, "0"), "")


def _seconds(values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(np.round(values, 3)).cast(pa.string())


def _slashed(delays: list[np.ndarray[Any, Any]]) -> list[Any]:
    parts: list[Any] = []
    for delay in delays:
        parts += ["/", _seconds(delay)]
    return parts[1:]


def _stamps(times: np.ndarray[Any, Any]) -> pa.Array:
    """ "Nov 20 00:00:01", each made once."""
    seconds = times.astype(int)
    first = int(seconds.min())
    made = [
        (datetime.fromtimestamp(first, UTC) + timedelta(seconds=n)).strftime("%b %e %H:%M:%S")
        for n in range(int(np.ptp(seconds)) + 1)
    ]
    return pa.array(made).take(pa.array(seconds - first))
