"""How many deliveries a second the nightly report counts: ``python -m bench.reports [--attempts N]``.

A day of N delivery attempts is made as events and as a Postfix mail log, of the same deliveries
(``bench/large_day.py``). Then, in turn, our whole run, the start of Java included and all tables written, and pflogsumm
over the log. Told: deliveries a second, memory of all processes at the most, and whether the numbers of both are those
that were made; of a further run, which does not count, the jobs, stages and tasks of Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from bench.large_day import Expected, make_day
from bench.processes import cpu_s, memory

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
DAY = date(2026, 11, 20)
FACTOR_WANTED = 2.0  # wanted; five times is the goal
MEMORY_WANTED = 4 << 30  # the same
KEEP = ("--keep-classes",)
SAMPLE_S = 0.2


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu_s: float
    memory_bytes: int  # PSS of all its processes, at the most
    said: str


def run(command: list[str], output: Path) -> Run:
    """From its start to its end."""
    most, cpu = [0], [0.0]
    with output.open("wb") as told:
        began = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)

        def watch() -> None:
            while process.poll() is None:
                try:
                    most[0] = max(most[0], memory(process.pid).pss)
                    cpu[0] = max(cpu[0], cpu_s(process.pid))
                except (OSError, ValueError, IndexError):
                    pass  # it has just ended
                time.sleep(SAMPLE_S)

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        seconds = time.monotonic() - began
        watcher.join()
    said = output.read_text(errors="replace")
    if status != 0:
        raise SystemExit(f"{command[0]} ended with {status}:\n{said[-2000:]}")
    return Run(seconds, cpu[0], most[0], said)


def spark_counts(command: list[str], directory: Path) -> dict[str, int]:
    """Counts jobs, stages and tasks of one more run, by Spark's own log of events."""
    told = directory / "spark-events"
    shutil.rmtree(told, ignore_errors=True)
    told.mkdir()
    options = {"enabled": "true", "dir": told.as_uri(), "compress": "false"}
    more = [part for name, value in options.items() for part in ("--option", f"spark.eventLog.{name}={value}")]
    run([*command, *more], directory / "ours.txt")
    counts = Counter(
        json.loads(line)["Event"] for path in told.rglob("events_*") for line in path.read_text().splitlines()
    )
    names = {"jobs": "JobStart", "stages": "StageCompleted", "tasks": "TaskEnd"}
    return {name: counts[f"SparkListener{event}"] for name, event in names.items()}


def cleared(output: Path) -> Path:
    """Removes the reports that a run made, but not what Java keeps for the next run."""
    for name in ("gold", "silver", "versions"):
        shutil.rmtree(output / name, ignore_errors=True)
    return output


def check_ours(output: Path, expected: Expected) -> list[str]:
    version = output / "gold" / f"day={DAY}"
    (total,) = pq.read_table(version / "totals").to_pylist()
    wrong = []
    found = {name: total[name] for name in ("messages", "recipients", "size_bytes", "attempts", *expected.statuses)}
    wanted = {
        "messages": expected.messages,
        "recipients": expected.recipients,
        "size_bytes": expected.size_bytes,
        "attempts": expected.attempts,
        **expected.statuses,
    }
    wrong += [f"ours: {name} {found[name]}, made {wanted[name]}" for name in wanted if found[name] != wanted[name]]
    rows = pq.read_table(version / "destinations", columns=["destination", "delivered"]).to_pylist()
    by_domain = {row["destination"].removeprefix("smtp:"): row["delivered"] for row in rows if row["delivered"]}
    if by_domain != dict(expected.by_domain):
        wrong.append("ours: deliveries by destination differ")
    told = json.loads((version / "report.json").read_text())
    if told["balance"]["balances"] is not True:
        wrong.append(f"ours: {told['words']}")
    return wrong


def check_pflogsumm(said: str, expected: Expected) -> list[str]:
    """Its numbers are written in thousands and millions when they are big: as far as it says."""
    wrong = []
    wanted = {"received": expected.messages, **{name: expected.statuses[name] for name in ("delivered", "bounced")}}
    for name, number in wanted.items():
        found = re.search(rf"^\s*(\d+[km]?)\s+{name}$", said, re.MULTILINE)
        if found is None or not _as_written(found[1], number):
            wrong.append(f"pflogsumm: {name} {found and found[1]}, made {number}")
    deferrals = re.search(r"deferred\s+\((\d+[km]?)\s+deferrals\)", said)
    if deferrals is None or not _as_written(deferrals[1], expected.statuses["deferred"]):
        wrong.append(f"pflogsumm: deferrals {deferrals and deferrals[1]}, made {expected.statuses['deferred']}")
    section = said.split("Host/Domain Summary: Message Delivery", 1)[-1].split(
        "Host/Domain Summary: Messages Received", 1
    )[0]
    for count, domain in re.findall(r"^\s*(\d+[km]?)\s.*\s(d\d+\.example)$", section, re.MULTILINE):
        if not _as_written(count, expected.by_domain[domain]):
            wrong.append(f"pflogsumm: {domain} {count}, made {expected.by_domain[domain]}")
    return wrong


def _as_written(text: str, number: int) -> bool:
    if text[-1] == "m":
        return abs(int(text[:-1]) - number / 2**20) <= 1
    return abs(int(text[:-1]) - number / 2**10) <= 1 if text[-1] == "k" else int(text) == number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--keep", type=Path, help="a day made before, or to be made and kept there")
    parser.add_argument("--only", choices=("ours", "pflogsumm"))
    parser.add_argument("--json", type=Path, help="every single run")
    given = parser.parse_args()
    directory = given.keep or Path(tempfile.mkdtemp(prefix="bench-reports-", dir=given.directory))
    try:
        return measure(given, directory)
    finally:
        if given.keep is None:
            shutil.rmtree(directory)


def measure(given: argparse.Namespace, directory: Path) -> int:
    made = directory / "expected.json"
    if made.exists():
        expected = Expected(**json.loads(made.read_text()))
    else:
        directory.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        expected = make_day(directory, DAY, given.attempts)
        made.write_text(json.dumps(vars(expected)))
        print(f"made in {time.monotonic() - began:.0f} s")
    log = directory / "mail.log"
    size = sum(path.stat().st_size for path in (directory / "events").rglob("*.parquet"))
    attempts = sum(expected.statuses.values())
    print(
        f"{expected.messages} messages, {attempts} attempts; events {size >> 20} MB, log {log.stat().st_size >> 20} MB"
    )
    runs: dict[str, list[Run]] = {"ours": [], "pflogsumm": []}
    wrong: list[str] = []
    output = directory / "reports"
    command = [sys.executable, "-m", "appliance.pipeline", str(DAY), "--events", str(directory / "events")]
    command += ["--output", str(output), "--zone", "UTC", "--master", given.master]
    counts: dict[str, int] = {}
    if given.only != "pflogsumm":
        shutil.rmtree(output, ignore_errors=True)
        counts = spark_counts([*command, *KEEP], directory)  # the first run of a home: Java has no archive of classes
    for _ in range(given.rounds):
        if given.only != "pflogsumm":
            cleared(output)
            runs["ours"].append(run(command, directory / "ours.txt"))
            wrong += check_ours(output, expected)
        if given.only != "ours":
            runs["pflogsumm"].append(run(["pflogsumm", str(log)], directory / "pflogsumm.txt"))
            wrong += check_pflogsumm(runs["pflogsumm"][-1].said, expected)
    if counts:
        print(f"{attempts} attempts: " + ", ".join(f"{number} {name}" for name, number in counts.items()))
    for name, those in runs.items():
        for each in those:
            rate = f"{attempts / each.seconds:9.0f} deliveries/s"
            used = f"CPU {each.cpu_s:6.1f} s  memory {each.memory_bytes >> 20} MB"
            print(f"{name:10} {each.seconds:7.1f} s  {rate}  {used}")
        if those:
            medians = [statistics.median(getattr(each, what) for each in those) for what in ("seconds", "cpu_s")]
            print(f"{name:10} {attempts} attempts, median of {len(those)}: {medians[0]:.1f} s, CPU {medians[1]:.1f} s")
    if given.json:
        given.json.write_text(
            json.dumps({name: [vars(each) | {"said": ""} for each in those] for name, those in runs.items()})
        )
    for what in wrong:
        print(f"WRONG {what}")
    if not runs["ours"] or not runs["pflogsumm"]:
        return 1 if wrong else 0
    factor = statistics.median(e.seconds for e in runs["pflogsumm"]) / statistics.median(
        e.seconds for e in runs["ours"]
    )
    flat = max(each.memory_bytes for each in runs["ours"]) <= MEMORY_WANTED
    print(
        f"{factor:.1f} times as many deliveries a second as pflogsumm; wanted {FACTOR_WANTED:g}; {os.cpu_count()} cores"
    )
    return 1 if wrong or factor < FACTOR_WANTED or not flat else 0


if __name__ == "__main__":
    sys.exit(main())
