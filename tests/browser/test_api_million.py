"""The API's list with a million messages behind it: read to its end by cursor, in flat memory; rate and memory are printed."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from bench.fill import fill
from mailcore.lab.lab import Lab
from mailcore.queue.identity import NAME
from tests.browser.api_client import token_of
from tests.browser.queue_steps import SLOW
from tests.browser.site import Site, site
from tests.running.running_core import Sections, route_to

MESSAGES = 1_000_000
LIMIT = 1_000
LATER_S = 86_400.0
WARM = 50  # pages until caches, threads and the allocator have what they need
GROWTH_KB_MAX = 16_384  # a page is 0.7 MB; a list that was kept would be 700
QUICK: Sections = {**SLOW, "queue": {"retry_ladder_s": [600, 4000]}, "portal": {"api_requests_per_minute": 100_000}}


def _later(_: int) -> float:
    return LATER_S


def memory_of(it: Site) -> dict[str, int]:
    """Resident kB of the portal, and of the process of the core that reads the queue."""
    assert it.process is not None
    pids = {"portal": it.process.pid, "control": it.core.processes()["control"]}
    return {name: _resident(pid) for name, pid in pids.items()}


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_a_list_of_a_million_is_read_by_cursor_in_flat_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, QUICK) as it:
        it.core.stop()
        for name in ("queue", "spool"):  # its restart positions would count for more than those that are filled in
            shutil.rmtree(it.core.home / name)
        for path in (it.core.home / NAME, it.core.home / "events" / NAME):
            path.unlink(missing_ok=True)  # as of a version without identities
        await asyncio.to_thread(fill, it.core.home, MESSAGES, route_to(lab, 0), due_in=_later)
        await it.core.start()
        api = await token_of(it, "viewer")
        seen: set[str] = set()
        cursor: str | None = ""
        pages, warm, highest, begun = 0, {"portal": 0, "control": 0}, {"portal": 0, "control": 0}, time.monotonic()
        while cursor is not None:
            status, page = await api.ask("GET", f"/queue/messages?limit={LIMIT}&cursor={cursor}")
            assert status == 200, page
            before = len(seen)
            seen.update(item["queue_id"] for item in page["items"])
            assert len(seen) == before + len(page["items"]), "a message is on two pages"
            cursor, pages = page["cursor"], pages + 1
            if pages == WARM:
                warm = memory_of(it)
            if pages % WARM == 0:
                highest = {name: max(highest[name], used) for name, used in memory_of(it).items()}
        took = time.monotonic() - begun
        assert len(seen) == MESSAGES
        with capsys.disabled():
            print(
                f"\n{MESSAGES} messages in {pages} pages: {took:.0f} s; resident kB after {WARM} pages {warm},"
                f" highest {highest}"
            )
        for name, used in highest.items():
            assert used - warm[name] < GROWTH_KB_MAX, name
