"""Reports of an appliance that lived: made at a terminal as somebody does it, read back, and what the next hops know of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mailcore.lab.lab import Lab
from tests.running.running_core import RunningCore
from tests.test_tidy import ROOT

__all__ = ["Gold", "Told", "delivered", "gold_of", "ordered", "waypost_report", "with_more"]

FOREIGN = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "WAYPOST_CONFIG")  # of the tests' own portal
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Told:
    """What ``waypost report`` said."""

    status: int
    output: str
    terminal: str  # standard error, at a terminal: its bar, and what is wrong


async def waypost_report(config: Path, day: date, *more: str) -> Told:
    return await asyncio.to_thread(_report, config, day, *more)


def _report(config: Path, day: date, *more: str) -> Told:
    command = [sys.executable, "-m", "mailcore.cli.main", "report", str(day), *more, "--config", str(config)]
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    ours, its = pty.openpty()
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its
    ) as process:
        os.close(its)
        seen = b""
        with contextlib.suppress(OSError):  # EIO: the last who had the terminal is gone
            while piece := os.read(ours, 65_536):
                seen += piece
        os.close(ours)
        assert process.stdout is not None
        output = process.stdout.read()
        status = process.wait(PATIENCE_S)
    return Told(status, output.decode(), seen.decode(errors="replace"))


@dataclass(frozen=True)
class Gold:
    """A day, week or month as the pipeline published it."""

    directory: Path
    told: dict[str, Any]  # report.json

    def rows(self, table: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in sorted((self.directory / table).glob("*.parquet")):
            found += pq.read_table(file).to_pylist()
        return found

    @property
    def total(self) -> dict[str, Any]:
        (row,) = self.rows("totals")
        return row

    @property
    def balance(self) -> dict[str, Any]:
        balance: dict[str, Any] = self.told["balance"]
        return balance

    def by(self, table: str, key: str, value: str) -> dict[str, Any]:
        """Of each row with a value other than 0."""
        return {row[key]: row[value] for row in self.rows(table) if row[value]}


async def ordered(core: RunningCore, operation: str, queue_id: str) -> None:
    """A change to a message, once it was tried, and while it is not being tried."""

    async def done() -> bool:
        item = await core.item(queue_id)
        resting = item is not None and not item["lane"].startswith("incoming.")
        return resting and bool((await core.ask(operation, queue_ids=[queue_id]))["changed"])

    await core.eventually(done, f"{operation} of {queue_id}")


async def with_more(core: RunningCore, queue_id: str, *recipients: str) -> None:
    """The same, of an operator who adds recipients."""

    async def done() -> bool:
        answer = await core.ask("add_recipients", queue_id=queue_id, recipients=list(recipients))
        return bool(answer["changed"])

    await core.until_in(queue_id, "retry")
    await core.eventually(done, f"more recipients of {queue_id}")


def gold_of(home: Path, name: str) -> Gold:
    """``name``: "day=2026-11-20", "week=2026-W47"."""
    directory = (home / "reports" / "gold" / name).resolve(strict=True)
    return Gold(directory, json.loads((directory / "report.json").read_text()))


def delivered(lab: Lab) -> dict[str, Counter[str]]:
    """By destination, as a route straight to a hop makes it: who got how many messages."""
    found: dict[str, Counter[str]] = {}
    for hop in lab.hops:
        host, port = hop.address
        got = Counter(address for arrival in hop.messages for address in arrival.recipients)
        if got:
            found[f"smtp:[{host}]:{port}"] = got
    return found
