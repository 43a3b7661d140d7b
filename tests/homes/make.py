"""Makes the home of a release: mail in every state there is, killed and packed. Once, when the release is made.

    python -m tests.homes.make        # tests/homes/VERSION.tar.gz, of the version in pyproject.toml

What later code must make of it stands in ``expected.json`` inside. Nothing is packed that belongs to one machine or one run.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.backup.place import command
from tests.running.running_core import DATA, RunningCore, Sections, route_to, running

__all__ = ["EXPECTED", "MANY"]

EXPECTED = "expected.json"
MANY = 1_500  # recipients of one message: more than an ENVELOPE holds
BIG = DATA + b"x" * 70 + b"\r\n" * 20_000
SETTINGS: Sections = {
    "queue": {"retry_ladder_s": [600], "segment_bytes": 64 << 10, "inline_limit": 8 << 10, "undo_time_s": 30 * 86_400},
    "scheduler": {"minimal_backoff_time": 600, "maximal_backoff_time": 600},
    "receiver": {"recipient_limit": 2_000},
    "export": {"enabled": True, "interval_s": 0.2},
}
ROOT = Path(__file__).resolve().parent.parent.parent
LEFT = ("lock", "run", "log")  # nobody's who comes later


async def fill(core: RunningCore, lab: Lab) -> dict[str, Any]:
    """queue id -> state, recipients."""
    expected: dict[str, Any] = {}

    async def one(state: str, *recipients: str, data: bytes = DATA, lane: str = "retry.600") -> str:
        queue_id = await core.send(*recipients, data=data)
        if lane:
            await core.until_in(queue_id, lane)
        expected[queue_id] = {"state": state, "recipients": sorted(recipients)}
        return queue_id

    await one("deferred", "deferred@example.org")
    await one("deferred", "big@example.org", data=BIG)
    await one("deferred", *(f"r{number}@example.org" for number in range(MANY)))
    await core.order("hold", await one("held", "held@example.org"), why="a question of its author")
    await core.order("delete", await one("deleted", "deleted@example.org"))
    scheduled = await core.inject("scheduled@example.org", not_before=4_000_000_000.0)
    expected[scheduled] = {"state": "deferred", "recipients": ["scheduled@example.org"]}
    await core.ask("transport_set", "a value of the release", transport="smtp", parameter="process_limit", value=7)
    await command(core, "export", "--cut")
    await core.ask("suspend", destination=route_to(lab, 0))
    await one("queued", "waiting@example.org", "second@example.org", lane="")
    await one("queued", "spooled@example.org", data=BIG, lane="")
    return expected


async def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    packed = Path(__file__).parent / f"{version}.tar.gz"
    if packed.exists():
        print(f"{packed} is there: a release's home is made once", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        async with Lab(["reject(1, 451):127.0.0.1:0"]) as lab, running(Path(folder), lab, SETTINGS) as core:
            expected = await fill(core, lab)
            core.stop()
            (core.home / EXPECTED).write_text(json.dumps(expected, indent=1))
            pack(core.home, packed)
            core.launch()  # there is one to be ended
    print(packed)
    return 0


def pack(home: Path, packed: Path) -> None:
    """Names in order, no owners, no times: made of the same files it is the same."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if info.name.endswith("/lock"):
            return None
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with (
        open(packed, "wb") as file,
        gzip.GzipFile("", "wb", mtime=0, fileobj=file) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for path in sorted(path for path in home.iterdir() if path.name not in LEFT):
            archive.add(path, f"home/{path.name}", filter=plain)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
