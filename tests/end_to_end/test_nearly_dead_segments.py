"""Segments that are kept for little: on a full disk they are emptied, and over days they take a few times what is needed."""

from __future__ import annotations

import smtplib
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.queue.ballast import Held, held
from tests.end_to_end.test_full_disk import reply_to_mail
from tests.eventually import PATIENCE_S
from tests.ext4 import ext4
from tests.running.running_core import DATA, SENDER, RunningCore, route_to

SEGMENT_BYTES = 1 << 18
LARGE = DATA + b"filler of a line\r\n" * 870  # a sixteenth of a segment, above carry_limit
SEGMENTS, EACH = 14, 16
BALLAST = Held(1 << 20, 64)
QUEUE: dict[str, object] = {
    "segment_bytes": SEGMENT_BYTES,
    "carry_limit": 4096,
    "refer_deferred": True,
    "reserve_bytes": 1 << 20,
    "reserve_inodes": 50,
    "ballast_bytes": BALLAST.space_bytes,
    "ballast_inodes": BALLAST.inodes,
}
ALL, SOME = "reject(1, 451)", "reject(never*@example.org, 451)"


def send(core: RunningCore) -> None:
    """One of EACH messages is for a recipient that the next hop goes on deferring."""
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        for number in range(SEGMENTS * EACH):
            name = "good" if number % EACH else "never"
            assert client.sendmail(SENDER, [f"{name}{number}@example.org"], LARGE) == {}


async def retired(core: RunningCore) -> dict[str, int]:
    """What the retired segments of all lanes take, and what of it is needed; -1: that is not known."""
    lanes = [lane["retired"] for lane in (await core.ask("positions"))["lanes"]]
    needed = [each["needed_bytes"] for each in lanes]
    return {
        "segments": sum(each["segments"] for each in lanes),
        "bytes": sum(each["bytes"] for each in lanes),
        "needed": -1 if None in needed else sum(needed),
    }


@pytest.mark.long  # a minute: when half of the ballast is used, a full disk lets one deferral out in ten seconds
@pytest.mark.timeout(600)
async def test_a_full_disk_of_nearly_dead_segments_drains_by_itself(tmp_path: Path) -> None:
    with ext4(tmp_path / "home") as disk:
        async with Lab([f"{ALL}:127.0.0.1:0"]) as lab:
            core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"queue": QUEUE})
            try:
                await core.start()
                send(core)

                async def all_wait() -> bool:
                    return bool((await retired(core))["segments"] >= SEGMENTS - 2)

                await core.eventually(all_wait, "the segments to be retired")
                assert not list((core.home / "spool").glob("??/*"))
                disk.fill_bytes()
                await core.until(lambda: reply_to_mail(core)[0] == 452, "new mail to be refused")
                await lab.hops[0].set_behaviour(SOME)

                async def only_the_few() -> bool:
                    size = await core.ask("size")
                    return bool(size["messages"] == SEGMENTS)

                await core.eventually(only_the_few, "what can be delivered to be gone")

                # The filler is still there: the room is that of the segments.
                async def is_emptied() -> bool:
                    return bool((await retired(core))["bytes"] <= 4 * SEGMENTS * len(LARGE))

                await core.eventually(is_emptied, "the segments to be emptied")
                await core.until(lambda: reply_to_mail(core)[0] == 250, "new mail to be accepted")
                await core.until(lambda: held(Disk(), str(core.home / "queue")) == BALLAST, "the ballast to be whole")
                await lab.hops[0].set_behaviour("accept")
                await core.until_empty()
                told = [message.recipients[0] for message in lab.messages]
                assert len(told) == len(set(told)) == SEGMENTS * EACH
            finally:
                await core.control.close()
                if core._process is not None:
                    core.stop()


MANY, LARGEST = 1000, DATA + b"filler of a line\r\n" * 14_000  # 1 000 of nearly inline_limit


def memory_mb(core: RunningCore, name: str) -> float:
    """A line of the manager's status: VmRSS, VmHWM."""
    status = Path(f"/proc/{core.processes()['manager']}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


def send_many(core: RunningCore) -> None:
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        for number in range(MANY):
            assert client.sendmail(SENDER, [f"never{number}@example.org"], LARGEST) == {}


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_the_data_of_many_deferrals_takes_little_memory(tmp_path: Path) -> None:
    """A quarter of a gigabyte is deferred, and carried as far as the bound allows; the rest stays where it lies."""
    queue = {"carry_limit": 1 << 20, "refer_deferred": True, "checkpoint_interval_s": 30.0, "segment_bytes": 32 << 20}
    async with Lab([f"{ALL}:127.0.0.1:0"]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"queue": queue})
        try:
            await core.start()
            before = memory_mb(core, "VmRSS")
            send_many(core)

            async def all_deferred() -> bool:
                return bool((await core.ask("state"))["counters"].get("replaced", 0) >= MANY)

            await core.eventually(all_deferred, "everything to be deferred")
            assert not list((core.home / "spool").glob("??/*"))
            # Two batches of 16 MiB, one being written and one being filled, each joined once; and a segment.
            assert memory_mb(core, "VmHWM") - before < 4 * 16 + 32
        finally:
            await core.control.close()
            core.stop()
