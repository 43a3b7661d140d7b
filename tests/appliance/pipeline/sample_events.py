"""Mail as the export tells of it, made up: events in files, cuts from a ledger of its own, and what a report must come to.

The ledger knows who is queued because it was told, not from the events: so what is lost between the two shows.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mailcore.events.checksum import Summed
from mailcore.events.schema import CHECKSUM_WRAPS, COLUMNS, VERSION
from mailcore.queue.lanes import tells_of_mail
from mailcore.queue.queue_id import QueueIds

__all__ = ["ARROW", "BOUNCED", "DEFERRED", "DELIVERED", "SampleMail", "rewrite", "utc", "write_file"]

_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "strings": pa.list_(pa.string()),
}
ARROW = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
DELIVERED = ("delivered", "2.0.0", "250 2.0.0 Ok: queued as 4XyZ123456")
DEFERRED = ("deferred", "4.7.1", "450 4.7.1 <someone@example.net>: try again in 300 seconds")
BOUNCED = ("bounced", "5.1.1", "550 5.1.1 <someone@example.net>: unknown user")
RECORD_BYTES = 100


def utc(text: str) -> float:
    """ "2026-11-20 12:00" in seconds since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class SampleMail:
    def __init__(self, shard: int = 0) -> None:
        self.shard = shard
        self.rows: list[dict[str, Any]] = []
        self.left: dict[str, set[int]] = {}  # the ledger: recipients without an end
        self._now = 0.0
        self._ids = QueueIds(0, lambda: self._now, shard=shard)
        self._ends: dict[str, int] = defaultdict(int)
        self._written: dict[str, int] = defaultdict(int)
        self._counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    # -- what happens

    def accept(
        self,
        at: float,
        to: Sequence[str] = ("b@example.net",),
        sender: str = "a@example.org",
        lane: str = "incoming.0",
        **more: Any,
    ) -> str:
        self._now = at
        queue_id = more.pop("queue_id", None) or self._ids.next()
        offset = self._record(lane)
        whole = {
            "size_bytes": 1_000,
            "origin": "smtp",
            "client_address": "192.0.2.7",
            "helo": "client",
            "login": "",
            "tls": "",
        }
        whole |= {"sender": sender, "recipient_count": len(to), "message_id": "<1@x>"} | more
        for part in range(0, max(len(to), 1), 1_000):
            addresses = list(to[part : part + 1_000])
            row = {"queue_id": queue_id, "recipients": addresses, "first_number": part, **(whole if part == 0 else {})}
            self._row(lane, offset, part // 1_000, at, "accepted", row)
        self.left[queue_id] = set(range(len(to)))
        return queue_id

    def attempt(
        self,
        queue_id: str,
        at: float,
        verdicts: Mapping[int, tuple[str, str, str]] | None = None,
        destination: str = "smtp:example.net",
        relay: str = "mx1.mail.example.net[192.0.2.1]:25",
        delays: tuple[float, float, float, float] = (0.1, 0.01, 0.2, 0.3),
        generation: int = 0,
        tls: str = "TLSv1.3 TLS_AES_256_GCM_SHA384",
        **labels: Any,
    ) -> None:
        verdicts = {0: DELIVERED} if verdicts is None else verdicts
        offset = self._record("journal")
        for part, (number, (status, dsn, reply)) in enumerate(verdicts.items()):
            row = {"queue_id": queue_id, "number": number, "status": status, "dsn": dsn, "reply": reply, "tls": tls}
            row |= {"destination": destination, "relay": relay, "generation": generation}
            row |= labels
            row |= {f"delay_{letter}": delay for letter, delay in zip("abcd", delays, strict=True)}
            row["recipient_count"] = len(verdicts) if part == 0 else None
            self._row("journal", offset, part, at, "attempt", row)
            if status != "deferred":
                self.left.get(queue_id, set()).discard(number)

    def finish(self, queue_id: str, at: float, why: str = "") -> None:
        self._row(
            "journal", self._record("journal"), 0, at, "finished", {"queue_id": queue_id, "generation": 0, "why": why}
        )
        if not self.left.get(queue_id, {0}):
            del self.left[queue_id]

    def replaced(self, queue_id: str, at: float, generation: int = 0) -> None:
        row = {"queue_id": queue_id, "generation": generation, "to_lane": "retry.300", "due_at": at + 300}
        self._row("journal", self._record("journal"), 0, at, "replaced", row)

    def order(self, queue_id: str, at: float, operation: str, **arguments: Any) -> None:
        row = {
            "queue_id": queue_id,
            "operation": operation,
            "who": "root",
            "why": "",
            "arguments": json.dumps(arguments),
        }
        self._row("journal", self._record("journal"), 0, at, "order", row)
        if operation == "add_recipients":
            had = self.left[queue_id]
            had |= set(range(100, 100 + len(arguments["recipients"])))

    def refuse(
        self, at: float, client: str = "198.51.100.1", reply: str = "554 5.7.1 <x@y.example>: Relay access denied"
    ) -> None:
        row = {
            "client_address": client,
            "helo": "bad",
            "reply": reply,
            "stage": "RCPT",
            "sender": "x@y",
            "recipient": "z@y",
        }
        self._row("incoming.0", self._record("incoming.0"), 0, at, "refused", {"queue_id": "", "tls": "", **row})

    def window(
        self, at: float, destination: str, window: float, busy: int, queued: int, dead_until: float = 0.0
    ) -> None:
        row = {"queue_id": "", "destination": destination, "window": window, "busy": busy, "queued": queued}
        self._row("windows", int(at * 1000), 0, at, "window", {**row, "dead_until": dead_until})

    def delivered(self, at: float, **more: Any) -> str:
        """Accepted, delivered a second later, finished."""
        queue_id = self.accept(at)
        self.attempt(queue_id, at + 1, **more)
        self.finish(queue_id, at + 1)
        return queue_id

    def traffic(self, begin: float, end: float, messages: int, seed: int = 1) -> None:
        """Mixed mail, evenly over the time: one to five recipients, some deferred once and delivered later, some bounced."""
        random = Random(seed)
        due: list[tuple[float, str, list[int], str]] = []
        for index in range(messages):
            at = begin + (end - begin) * index / messages
            while due and due[0][0] <= at:
                when, queue_id, numbers, domain = due.pop(0)
                self.attempt(
                    queue_id,
                    when,
                    dict.fromkeys(numbers, DELIVERED),
                    f"smtp:{domain}",
                    f"mx.{domain}[192.0.2.9]:25",
                    generation=1,
                )
                self.finish(queue_id, when)
            domain = f"d{int(random.paretovariate(1)) % 20}.example"
            to = [f"user{random.randrange(50)}@{domain}" for _ in range(random.choice((1, 1, 1, 2, 5)))]
            queue_id = self.accept(
                at, to, sender=f"sender{random.randrange(30)}@example.org", size_bytes=random.randrange(500, 5_000)
            )
            verdicts = {
                number: random.choices((DELIVERED, DEFERRED, BOUNCED), (8, 1, 1))[0] for number in range(len(to))
            }
            delays = (random.uniform(0, 0.1), 0.001, random.expovariate(5), random.expovariate(2))
            self.attempt(queue_id, at, verdicts, f"smtp:{domain}", f"mx.{domain}[192.0.2.9]:25", delays)
            again = [number for number, verdict in verdicts.items() if verdict is DEFERRED]
            if again:
                self.replaced(queue_id, at)
                due.append((at + 400, queue_id, again, domain))
            else:
                self.finish(queue_id, at)

    # -- how it is told

    def write(
        self, events: Path, rows_max: int = 1_000_000, without: Callable[[dict[str, Any]], bool] = lambda row: False
    ) -> list[Path]:
        """All since the last time, a file for each stretch and UTC day; ``without``: rows that are lost on the way."""
        lanes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self.rows:
            lanes[row["lane"]].append(row)
        self.rows = []
        written = []
        for lane, rows in lanes.items():
            while rows:
                size = rows_max
                while size < len(rows) and rows[size]["offset"] == rows[size - 1]["offset"]:
                    size += 1  # a record is in one stretch
                stretch, rows = rows[:size], rows[size:]  # noqa: PLW2901
                begin, end = self._written[lane], stretch[-1]["offset"] + RECORD_BYTES
                self._written[lane] = end
                days: dict[str, list[dict[str, Any]]] = defaultdict(list)
                for row in stretch:
                    days[datetime.fromtimestamp(row["at"], UTC).date().isoformat()].append(row)
                for day, those in days.items():
                    kept = [row for row in those if not without(row)]
                    path = events / f"dt={day}" / f"{lane}.{begin}.parquet"
                    written.append(write_file(path, kept, lane, begin, end, sorted(days), self.shard))
        return written

    def cut(
        self,
        events: Path,
        at: float,
        ids: bool = False,
        by_time: bool = False,
        checksum: bool = True,
        closed: bool = False,
    ) -> Path:
        """What is queued now. Without ``checksum``: as it was told at first."""
        name = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H%M%S}"
        queued = {queue_id: len(left) for queue_id, left in self.left.items()}
        said: dict[str, Any] = {
            "at": at,
            "messages": len(queued),
            "recipients": sum(queued.values()),
            "lanes": dict(self._ends),
            "exported": {lane: end for lane, end in self._ends.items() if tells_of_mail(lane)},
        }
        if self.shard:
            said |= {"shard": self.shard, "closed": closed}
        if by_time:
            del said["lanes"], said["exported"]
        if checksum:
            said["counted"] = {
                lane: {"since": 0, "at": self._ends[lane], "counts": counts} for lane, counts in self._counts.items()
            }
            said["checksum"] = sum(zlib.crc32(queue_id.encode()) * n for queue_id, n in queued.items())
        (events / "cuts").mkdir(parents=True, exist_ok=True)
        if ids:
            said["ids"] = f"{name}.ids.jsonl"
            lines = (json.dumps({"lane": "x", "queue_id": each, "recipients": n}) for each, n in queued.items())
            (events / "cuts" / said["ids"]).write_text("".join(f"{line}\n" for line in lines))
        path = events / "cuts" / f"{name}.json"
        path.write_text(json.dumps(said))
        return path

    def _record(self, lane: str) -> int:
        offset = self._ends[lane]
        self._ends[lane] = offset + RECORD_BYTES
        return offset

    def _row(self, lane: str, offset: int, part: int, at: float, kind: str, row: Mapping[str, Any]) -> None:
        self.rows.append({"lane": lane, "offset": offset, "part": part, "at": at, "kind": kind, **row})
        if kind != "window":
            self._count(self._counts[lane], self.rows[-1])

    @staticmethod
    def _count(counts: dict[str, int], row: Mapping[str, Any]) -> None:
        """The counters of ``schema.COUNTERS``, said once more: not by the code that is tested."""
        kind, what = row["kind"], [row["offset"], row["part"], row["queue_id"]]
        what += [row["number"], row["status"]] if kind == "attempt" else [kind]
        counts["rows"] += 1
        counts["checksum"] = (counts["checksum"] + zlib.crc32(" ".join(map(str, what)).encode())) % CHECKSUM_WRAPS
        if kind == "accepted":
            counts["messages"] += row["part"] == 0
            counts["accepted"] += len(row["recipients"])
            counts["bytes"] += row.get("size_bytes") or 0
        elif kind in ("attempt", "refused"):
            counts[row["status"] if kind == "attempt" else kind] += 1
            if kind == "attempt":
                route = [row["offset"], row["part"], row.get("destination") or "", row.get("recipient_domain") or ""]
                counts["routed"] += 1
                counts["routes"] = (counts["routes"] + zlib.crc32(" ".join(map(str, route)).encode())) % CHECKSUM_WRAPS
        elif row.get("operation") == "add_recipients":
            counts["added"] += len(json.loads(row["arguments"])["recipients"])


def write_file(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    lane: str,
    begin: int,
    end: int,
    days: Sequence[str] = (),
    shard: int = 0,
) -> Path:
    """With checksums, as the export writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"waypost.events": str(VERSION), "waypost.lane": lane, "waypost.from": str(begin), "waypost.to": str(end)}
    said |= {"waypost.days": json.dumps(days)} if days else {}
    said |= {"waypost.shard": str(shard)} if shard else {}
    table = pa.Table.from_pylist(list(rows), ARROW.with_metadata(said))
    rewrite(path, table)
    return path


def rewrite(path: Path, table: pa.Table) -> None:
    """Writes the file and its checksums: what it says of itself agrees with its rows, whatever these are."""
    with path.open("wb") as file:
        summed = Summed(file)
        with pq.ParquetWriter(summed, table.schema, compression="zstd") as writer:
            for kind in sorted(set(table["kind"].to_pylist())):  # a row group has rows of one kind
                writer.write_table(table.filter(pc.equal(table["kind"], kind)))
            summed.footer_follows()
        summed.finish()
