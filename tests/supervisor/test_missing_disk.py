"""Real processes on a home of which a disk is missing, or is another's: no start, one sentence, and nothing is deleted."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import smtplib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.backup.place import command
from tests.end_to_end.appliance import COMMAND
from tests.eventually import PATIENCE_S, eventually
from tests.running.running_core import DATA, RunningCore, route_to

BIG = DATA + b"filler\r\n" * 40_000  # beyond inline_limit: it has a spool file
REFUSING = "reject(1, 451):127.0.0.1:0"  # mail stays in the queue
LATER = {"minimal_backoff_time": 600, "maximal_backoff_time": 600}


def refused(core: RunningCore) -> str:
    """What a start that must be refused says. It must be one sentence on one line."""
    done = subprocess.run(
        [COMMAND, "mailcore", "--config", core.config], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def tree(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


async def started_once(core: RunningCore) -> str:
    """Starts the core, gives it a message with a spool file, and ends it; returns the queue id."""
    await core.start()
    try:
        queue_id = await core.send("r@example.org", data=BIG)
        await core.until_in(queue_id, "retry.")
    finally:
        await core.control.close()
        core.stop()
    return queue_id


@pytest.mark.parametrize(
    ("found", "name"),
    [
        ("an empty directory", "queue"),
        ("nothing", "spool"),
        ("an empty directory", "events"),
        *(
            pytest.param(found, name, marks=pytest.mark.long)
            for found, name in (("nothing", "queue"), ("an empty directory", "spool"), ("nothing", "events"))
        ),
    ],
)
async def test_without_one_of_its_disks_it_does_not_start_and_touches_nothing(
    tmp_path: Path, name: str, found: str
) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER, "export": {"enabled": True}})
        queue_id = await started_once(core)
        directory, away = core.home / name, tmp_path / "away"
        directory.rename(away)
        if found == "an empty directory":
            directory.mkdir()
        before = tree(core.home)
        said = refused(core)
        assert str(directory) in said
        assert "waypost identity" in said
        assert {each for each in tree(core.home) - before if not each.startswith(("log", "run"))} == set()
        logged = [json.loads(line) for line in (core.home / "log" / "mail.jsonl").read_text().splitlines()]
        assert [line["why"] for line in logged if line["event"] == "start_refused"] == [
            said.removeprefix("waypost: ").rstrip("\n")
        ]
        if directory.is_dir():
            directory.rmdir()
        away.rename(directory)
        await core.start()
        try:
            assert [item["queue_id"] for item in await core.listed()] == [queue_id]
            assert core.spool_files() == [queue_id]
        finally:
            await core.control.close()
            core.stop()


async def test_a_second_home_with_the_same_spool_does_not_start(tmp_path: Path) -> None:
    async with Lab([REFUSING]) as lab:
        first = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        queue_id = await started_once(first)
        (tmp_path / "two").mkdir()
        second = RunningCore(tmp_path / "two", {"*": route_to(lab, 0)})
        second.config.write_text(f'spool_directory = "{first.home / "spool"}"\n' + second.config.read_text())
        said = refused(second)
        assert str(first.home / "spool") in said
        assert str(first.home) + ":" in said or f"{first.home}," in said or f"{first.home};" in said
        assert first.spool_files() == [queue_id]


async def test_a_lost_spool_is_given_up_by_a_command(tmp_path: Path) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        await started_once(core)
        (core.home / "spool").rename(tmp_path / "lost")
        code, out, _ = await core._run("identity", "show")
        why_not = {name: each["why_not"] for name, each in json.loads(out).items()}
        assert (code, why_not.pop("spool")) == (1, refused(core).removeprefix("waypost: ").rstrip())
        assert set(why_not.values()) == {""}
        before = tree(core.home)
        assert "Confirm with --yes" in await wrong(core, "identity", "adopt", "spool")
        assert tree(core.home) == before
        given = await command(core, "identity", "adopt", "spool", "--yes")
        assert given["directory"] == str(core.home / "spool")
        await core.start()
        try:
            await core.send("r@example.org", data=BIG)
            running = await command(core, "identity", "adopt", "spool", "--yes", fails=True)
            assert f"Waypost runs on {core.home}" in running
            found = await command(core, "identity", "show")
            assert {each["identity"] for each in found.values()} == {given["identity"]}
            assert [line["name"] for line in core.log() if line["event"] == "adopted"] == ["spool"]
        finally:
            await core.control.close()
            core.stop()


async def wrong(core: RunningCore, *words: str) -> str:
    code, _, err = await core._run(*words)
    assert code == 2
    return err


REFUSED = (AssertionError, smtplib.SMTPException, ConnectionError)  # of a message, or of its connection


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def why_not_unmounted(directory: Path) -> str:
    done = subprocess.run(["umount", directory], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


@contextlib.contextmanager
def bound(disk: Path, directory: Path) -> Iterator[Callable[[], None]]:
    """Mounts ``disk`` on ``directory``; yields the function that unmounts it while it is in use."""

    def unmount() -> None:
        subprocess.run(["umount", "-l", directory], check=False)

    disk.mkdir(exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    mount("--bind", str(disk), str(directory))
    try:
        yield unmount
    finally:
        unmount()


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


@as_root
async def test_a_disk_that_is_in_use_is_not_unmounted_by_mistake(tmp_path: Path) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        with bound(tmp_path / "disk", core.home / "spool"):
            await core.start()
            try:
                said = await asyncio.to_thread(why_not_unmounted, core.home / "spool")
                assert "busy" in said
            finally:
                await core.control.close()
                core.stop()


@as_root
@pytest.mark.parametrize("name", ["queue", "spool"])
async def test_a_disk_that_goes_away_under_a_running_core_costs_no_mail(tmp_path: Path, name: str) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        directory, disk = core.home / name, tmp_path / "disk"
        with bound(disk, directory) as unmount:
            await core.start()
            try:
                first = await core.send("one@example.org", data=BIG)
                await core.until_in(first, "retry.")
                unmount()
                # Directories as a package or tmpfiles.d makes them, below the mount point.
                for below in ("incoming.0", "journal", *(f"{folder:02x}" for folder in range(64))):
                    (directory / below).mkdir()
                before = tree(directory)
                accepted = {first}

                async def refuses() -> bool:
                    """For a second the open segment may be written to, which lies on the disk that went away."""
                    try:
                        accepted.add(await core.send("two@example.org", data=BIG, heard=False))
                    except REFUSED:
                        return True
                    return False

                await eventually(refuses, "a refusal")
                for process in ("receiver.0", "manager"):
                    # One that has ended already did so because the disk went away.
                    with contextlib.suppress(KeyError, ProcessLookupError):
                        await core.kill_now(process)
                with pytest.raises(REFUSED):
                    await core.send("three@example.org", data=BIG, heard=False)
                await asyncio.sleep(0.5)
                assert tree(directory) == before, "something was written below the mount point"
                code, out, _ = await core._run("identity", "show")
                assert (code, json.loads(out)[name]["identity"]) == (1, None)
                assert f"no mail is accepted: the {name} directory" in (await core._run("queue", "size"))[2]
                mount("--bind", str(disk), str(directory))
                await core.ready()
                accepted.add(await core.send("four@example.org", data=BIG))

                async def all_listed() -> bool:
                    """A message that moves while a list is read may be missing from it."""
                    return accepted == {item["queue_id"] for item in await core.listed()}

                await eventually(all_listed, f"all of {accepted}")
                assert accepted <= set(core.spool_files())
            finally:
                await core.control.close()
                core.stop()
                unmount()


@as_root
async def test_a_disk_that_is_mounted_read_only_is_told(tmp_path: Path) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        with bound(tmp_path / "disk", core.home / "spool"):
            await started_once(core)
            mount("-o", "remount,bind,ro", str(core.home / "spool"))
            assert refused(core) == f"waypost: {core.home / 'spool'}: Read-only file system\n"


async def test_links_to_disks_are_followed_and_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER})
        disk = tmp_path / "disk"
        disk.mkdir()
        core.home.mkdir()
        (core.home / "spool").symlink_to(disk)
        await started_once(core)
        disk.rename(tmp_path / "away")
        assert f"{core.home / 'spool'} is a symbolic link to {disk}, which does not exist" in refused(core)


async def test_a_first_start_that_is_killed_is_followed_by_one_that_succeeds(tmp_path: Path) -> None:
    """Real kills, at any time; tests/queue/test_identity.py has each step."""
    async with Lab([REFUSING]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"scheduler": LATER, "export": {"enabled": True}})
        for number in range(6):
            core.launch()
            await asyncio.sleep(0.1 + 0.08 * number)
            core.stop()
        await started_once(core)
        code, out, _ = await core._run("identity", "show")
        assert code == 0
        assert len({each["identity"] for each in json.loads(out).values()}) == 1
