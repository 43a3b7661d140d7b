"""A real ext4 that is full, of bytes, of files, or because another program takes all that is free: what is queued goes out.

Every kind of start on it. There is no new mail meanwhile (452 4.3.1); when there is room again, the ballast is whole again
before there is any.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import smtplib
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.queue.ballast import NAME, Held, held
from tests.backup.place import REASON, backed_up, command, restored
from tests.end_to_end.appliance import COMMAND
from tests.eventually import PATIENCE_S
from tests.ext4 import Ext4, another_program, ext4
from tests.running.running_core import DATA, RunningCore, route_to

BALLAST = Held(4 << 20, 128)
QUEUE = {
    "reserve_bytes": 4 << 20,
    "reserve_inodes": 200,
    "ballast_bytes": BALLAST.space_bytes,
    "ballast_inodes": BALLAST.inodes,
}
BIG = DATA + b"filler of a line\r\n" * 16_000  # beyond inline_limit: it has a spool file
SMALL, LARGE = 30, 6
NEVER = "reject(1, 451)"


@contextlib.contextmanager
def full(disk: Ext4, how: str) -> Iterator[None]:
    if how == "another program":
        with another_program(disk):
            wait_until(lambda: is_taken(disk), "disk without free space; the other program takes it")
            yield
        return
    disk.fill_bytes() if how == "bytes" else disk.fill_inodes()
    yield


def wait_until(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"no {what}"
        time.sleep(0.01)


def is_taken(disk: Ext4) -> bool:
    """Without a block a directory cannot grow, so that inodes may be left; ext4 keeps a few blocks for its own tables."""
    return disk.free()[0] < 64 << 10


def reply_to_mail(core: RunningCore) -> tuple[int, bytes]:
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        code, reply = client.mail("a@example.com")
        return code, reply


async def queued(core: RunningCore) -> None:
    """Mail that was tried once and waits, large and small."""
    for number in range(SMALL):
        await core.send(f"small{number}@example.org", heard=False)
    for number in range(LARGE):
        await core.send(f"large{number}@example.org", data=BIG, heard=False)

    async def all_waiting() -> bool:
        state = await core.ask("state")
        return bool(state["counters"].get("replaced", 0) >= SMALL + LARGE)

    await core.eventually(all_waiting, "everything to be deferred")


def one_sentence(core: RunningCore) -> str:
    """What a start says that must end."""
    done = subprocess.run(
        [COMMAND, "mailcore", "--config", core.config], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def arrived(lab: Lab) -> Counter[str]:
    return Counter(recipient for message in lab.messages for recipient in message.recipients)


EVERYBODY = Counter(
    [*(f"small{n}@example.org" for n in range(SMALL)), *(f"large{n}@example.org" for n in range(LARGE))]
)


async def goes_out(core: RunningCore, lab: Lab) -> None:
    """No new mail; all that is queued reaches the next hop once."""
    refused = (452, b"4.3.1 Insufficient system storage")
    await core.until(lambda: reply_to_mail(core) == refused, "new mail to be refused")
    await lab.hops[0].set_behaviour("accept")
    await core.until_empty()
    assert arrived(lab) == EVERYBODY


async def backed_up_and_emptied(core: RunningCore) -> Path:
    """Ends the core and removes its home's contents: the home is a mount point."""
    path = await backed_up(core, "--queue")
    core.stop()
    await core.control.close()
    for each in core.home.iterdir():
        if each.name != "lost+found":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    return path


async def is_whole_again(core: RunningCore) -> None:
    """Room again, the ballast whole again, new mail again."""
    await core.until(lambda: held(Disk(), str(core.home / "queue")) == BALLAST, "the ballast to be whole")
    await core.until(lambda: reply_to_mail(core)[0] == 250, "new mail to be accepted")
    await core.send("new@example.org")
    await core.until_empty()


@contextlib.asynccontextmanager
async def placed(tmp_path: Path, **queue: int) -> AsyncIterator[tuple[RunningCore, Lab, Ext4]]:
    """A core with its home on an ext4 of its own, and a next hop that defers everything."""
    with ext4(tmp_path / "home") as disk:
        async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab:
            core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"queue": {**QUEUE, **queue}})
            try:
                yield core, lab, disk
            finally:
                await core.control.close()
                if core._process is not None:
                    core.stop()


# ./test tries one of each kind; --long tries each kind at every start.
OTHER_PROGRAM = pytest.param("another program", marks=pytest.mark.long)


@pytest.mark.parametrize("how", ["bytes", pytest.param("inodes", marks=pytest.mark.long), OTHER_PROGRAM])
async def test_a_running_one_drains(tmp_path: Path, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        await core.start()
        await queued(core)
        assert held(Disk(), str(core.home / "queue")) == BALLAST
        with full(disk, how):
            await goes_out(core, lab)
        disk.empty()
        await is_whole_again(core)


# -- every kind of start


async def ended(core: RunningCore, disk: Ext4, start: str) -> None:
    """Ends a core with mail in it so that ``start`` is what comes next."""
    if start == "after a power cut":
        processes = core.processes()
        os.kill(processes["supervisor"], signal.SIGSTOP)  # first: it would start the others again
        for pid in processes.values():
            os.kill(pid, signal.SIGSTOP)
        disk.power_cut()
    if start == "clean":
        assert core._process is not None
        core._process.terminate()
        core._process.wait(PATIENCE_S)
    core.stop()
    await core.control.close()
    if start == "after a power cut":
        disk.after_the_power_cut()
    if start == "with a ballast already given back":
        shutil.rmtree(core.home / "queue" / NAME)


@pytest.mark.parametrize(
    ("start", "how"),
    [
        ("after a power cut", "bytes"),
        *(
            pytest.param(start, how, marks=pytest.mark.long)
            for start in ("clean", "after kill -9", "after a power cut")
            for how in ("bytes", "inodes", "another program")
            if (start, how) != ("after a power cut", "bytes")
        ),
    ],
)
async def test_it_starts_on_a_full_disk_and_drains(tmp_path: Path, start: str, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        await core.start()
        await queued(core)
        await ended(core, disk, start)
        with full(disk, how):
            await core.start()
            await goes_out(core, lab)
        disk.empty()
        await is_whole_again(core)


@pytest.mark.parametrize("how", [pytest.param("bytes", marks=pytest.mark.long), "inodes", OTHER_PROGRAM])
async def test_it_starts_with_what_little_is_left_when_the_ballast_was_given_back(tmp_path: Path, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        await core.start()
        await queued(core)
        await ended(core, disk, "with a ballast already given back")
        with full(disk, how):
            assert "is full" in one_sentence(core)
        disk.empty()
        disk.fill_inodes(leave=24) if how == "inodes" else disk.fill_bytes(leave_bytes=1 << 20)
        await core.start()
        await goes_out(core, lab)
        disk.empty()
        await is_whole_again(core)


@pytest.mark.parametrize("how", [pytest.param("bytes", marks=pytest.mark.long), "inodes", OTHER_PROGRAM])
async def test_a_first_start_on_a_full_disk_ends_with_one_sentence(tmp_path: Path, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        with full(disk, how):
            assert one_sentence(core).endswith("free disk space and inodes\n")
        disk.empty()
        await core.start()
        await queued(core)
        with full(disk, how):
            await goes_out(core, lab)


@pytest.mark.parametrize("how", ["bytes", pytest.param("inodes", marks=pytest.mark.long), OTHER_PROGRAM])
async def test_a_restored_queue_goes_out_on_a_full_disk(tmp_path: Path, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        await core.start()
        await queued(core)
        path = await backed_up_and_emptied(core)
        await restored(core, path)
        assert held(Disk(), str(core.home / "queue")) == Held(0, 0), "a backup has none"
        await core.start()
        await core.until(lambda: held(Disk(), str(core.home / "queue")) == BALLAST, "the ballast")
        with full(disk, how):
            await command(core, "queue", "release", "--all-matching", "--reason", REASON, "--yes")
            await goes_out(core, lab)


@pytest.mark.long
@pytest.mark.parametrize("how", ["bytes", "inodes", "another program"])
async def test_a_restore_onto_a_full_disk_says_so_and_works_when_there_is_room(tmp_path: Path, how: str) -> None:
    async with placed(tmp_path) as (core, lab, disk):
        await core.start()
        await queued(core)
        path = await backed_up_and_emptied(core)
        with full(disk, how):
            said = await command(core, "restore", str(path), fails=True)
            assert "No space left on device" in said, said
            assert str(core.home) in said, said
            assert "Traceback" not in said
        disk.empty()
        await restored(core, path)
        await core.start()
        await command(core, "queue", "release", "--all-matching", "--reason", REASON, "--yes")
        await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        assert arrived(lab) == EVERYBODY


@pytest.mark.long
@pytest.mark.parametrize("which", ["the spool's", "the queue's"])
@pytest.mark.parametrize("how", ["bytes", "inodes", "another program"])
async def test_one_of_two_disks_is_full(tmp_path: Path, which: str, how: str) -> None:
    """Each has a ballast of its own."""
    async with placed(tmp_path) as (core, lab, home):
        with ext4(core.home / "spool") as spool:
            await core.start()
            await queued(core)
            for directory in ("queue", "spool"):
                assert held(Disk(), str(core.home / directory)) == BALLAST
            disk = spool if which == "the spool's" else home
            with full(disk, how):
                await goes_out(core, lab)
            disk.empty()
            await is_whole_again(core)
            await core.control.close()
            core.stop()


async def test_without_a_reserve_it_drains_too(tmp_path: Path) -> None:
    async with placed(tmp_path, reserve_bytes=0, reserve_inodes=0) as (core, lab, disk):
        await core.start()
        await queued(core)
        with full(disk, "bytes"):
            await goes_out(core, lab)
        disk.empty()
        await is_whole_again(core)
