"""The cost of events: the same journal exported as Parquet (zstd, snappy) and as JSON lines, then read by Spark.

    python -m bench.events [DELIVERIES]

Written: CPU seconds a million attempts, bytes on disk. Read: seconds for two questions of a report, by one local
Spark, round after round; files of the size that a journal segment gives.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from mailcore.envelope import Status, Verdict
from mailcore.events.rows import Row
from mailcore.events.schema import FIELDS
from mailcore.events.write import files
from mailcore.events.write.files import StretchFiles
from mailcore.events.write.stretch import write_stretch
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.queue.records import Delivery, Finish, encode

DAY = 1_795_219_200.0
SEGMENT_BYTES = 32 << 20
ROUNDS = 5  # the last ones count: Java warms up
REPLIES = [
    "250 2.0.0 Ok: queued as {}",
    "450 4.2.0 <user{}@example.org>: Recipient address rejected: Greylisted, see http://postgrey.example/help/{}",
    "550 5.1.1 <user{}@example.org>: Recipient address rejected: User unknown in virtual mailbox table",
]


def journal(directory: Path, deliveries: int) -> None:
    chance = random.Random(1)
    writer = LaneWriter(Disk(), str(directory), segment_bytes=SEGMENT_BYTES, clock=lambda: DAY, salt=lambda: 42)
    for number in range(deliveries):
        queue_id = f"4ZkP{number:08X}z0"
        kind = chance.choices((0, 1, 2), (85, 12, 3))[0]
        domain = f"d{int(chance.paretovariate(0.8)) % 5000}.example"
        verdicts = (Verdict(0, Status(kind), REPLIES[kind][4:9], REPLIES[kind].format(chance.getrandbits(40), number)),)
        at = DAY + 86_400 * number / deliveries
        delays = (chance.random(), chance.random() / 10, chance.random() / 5, chance.random() / 3)
        relay = f"mx.{domain}[198.51.100.{chance.randrange(256)}]:25"
        tls = "TLSv1.3 TLS_AES_256_GCM_SHA384"
        body = Delivery(queue_id, 0, verdicts, at, relay, tls, delays, f"smtp:{domain}")
        writer.append(RecordType.DELIVERY, encode(body))
        if kind != 1:
            writer.append(RecordType.FINISH, encode(Finish(queue_id, 0, None, at)))
        if number % 1000 == 0:
            writer.sync()
    writer.sync()
    writer.close()


class Lines(StretchFiles):
    """The same rows as JSON lines."""

    def __init__(self, directory: Path, start: int) -> None:
        super().__init__(Disk(), str(directory), "journal", start)
        day = directory / "dt=2026-11-21"
        day.mkdir(parents=True, exist_ok=True)
        self._out = (day / f"journal.{start}.json").open("w")

    def add(self, kind: str, offset: int, row: Row) -> None:
        part, at, queue_id, *fields = row
        event = {"lane": "journal", "offset": offset, "part": part, "at": at, "kind": kind, "queue_id": queue_id}
        event.update(zip(FIELDS[kind], fields, strict=True))
        self._out.write(json.dumps(event) + "\n")

    def complete(self, to: int, written: float, always: bool = False) -> dict[str, int]:
        self._out.close()
        return {}


def export(lane: Path, make: Callable[[int], StretchFiles]) -> float:
    """CPU seconds."""
    reader = LaneReader(Disk(), str(lane), print)
    bases = [*reader.bases, reader.end_of(reader.bases[-1], None)]
    began = time.process_time()
    for start, to in itertools.pairwise(bases):
        write_stretch(Disk(), str(lane), make(start), start, to, -1, print)
    return time.process_time() - began


def read(directories: dict[str, Path]) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    schema = spark.read.parquet(str(directories["zstd"])).schema
    for _ in range(ROUNDS):
        for name, directory in directories.items():
            source = spark.read.schema(schema)
            events = source.json(str(directory)) if name == "json" else source.parquet(str(directory))
            attempts = events.where(F.col("kind") == "attempt")
            began = time.monotonic()
            attempts.groupBy("destination", "status").agg(F.count("*"), F.avg("delay_d")).collect()
            one = time.monotonic() - began
            began = time.monotonic()
            attempts.agg(
                *(F.max(name) for name in ("queue_id", "at", "reply", "relay", "dsn", "tls", "delay_a"))
            ).collect()
            print(f"{name:8} by destination and status {one:6.2f} s   most columns {time.monotonic() - began:6.2f} s")


def main() -> None:
    deliveries = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    home = Path(tempfile.mkdtemp())
    try:
        journal(home / "journal", deliveries)
        size = sum(path.stat().st_size for path in (home / "journal").glob("*.seg"))
        print(f"journal: {size / 1e6:.0f} MB, {deliveries} deliveries")
        directories = {}
        for name in ("zstd", "snappy", "json"):
            directory = directories[name] = home / name
            files.COMPRESSION = name

            def make(start: int, name: str = name, directory: Path = directory) -> StretchFiles:
                return (
                    Lines(directory, start)
                    if name == "json"
                    else StretchFiles(Disk(), str(directory), "journal", start)
                )

            cpu = export(home / "journal", make)
            written = sum(path.stat().st_size for path in directory.glob("*/*"))
            print(
                f"{name:8} {cpu / deliveries * 1e6:6.1f} s CPU a million, {written / deliveries:6.1f} bytes an attempt"
            )
        read(directories)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
