"""Homes of other versions: what a release has made is opened, listed and delivered; what a newer one made is left alone."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow.parquet as pq
import pytest

from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.log.positions import read_positions
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, read_exported, write_exported
from mailcore.queue.identity import Identity, write_identity
from mailcore.queue.restored import Restored, write_restored
from tests.backup.place import command
from tests.end_to_end.appliance import COMMAND
from tests.homes.make import EXPECTED, SETTINGS
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to
from tests.test_tidy import ROOT

HOMES = sorted((ROOT / "tests" / "homes").glob("*.tar.gz"))
QUICK: Sections = dict(SETTINGS) | {"queue": {"retry_ladder_s": [1, 600], "segment_bytes": 64 << 10}}


def unpacked(packed: Path, into: Path) -> dict[str, Any]:
    """The home below ``into``; what must be in it."""
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has none, and needs none
        archive.extractall(into)
    expected: dict[str, Any] = json.loads((into / "home" / EXPECTED).read_text())
    return expected


def released() -> list[str]:
    """Versions with a heading in the changelog."""
    return re.findall(r"^## (\d+\.\d+\.\d+)\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_each_released_version_has_its_home() -> None:
    assert released()
    assert {packed.name for packed in HOMES} >= {f"{version}.tar.gz" for version in released()}


@pytest.mark.parametrize("packed", HOMES, ids=lambda path: path.name)
async def test_what_a_release_has_made_is_listed_and_delivered_whole(packed: Path, tmp_path: Path) -> None:
    expected = unpacked(packed, tmp_path)
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0), "sender.example": route_to(lab, 0)}, QUICK)
        await core.start()
        try:
            await delivered_whole(core, lab, expected)
        finally:
            await core.control.close()
            core.stop()


async def delivered_whole(core: RunningCore, lab: Lab, expected: dict[str, Any]) -> None:
    everybody = Counter(address for each in expected.values() for address in each["recipients"])
    seen: dict[str, str] = {}

    async def all_of_it() -> bool:
        """A message that moves while a list is read may be missing from it (mailcore/lookup/browse.py): look again."""
        seen.update(
            {item["queue_id"]: item["state"] for item in [*await core.listed(), *await core.listed(lane="deleted")]}
        )
        arrived = set(recipients_of(lab.messages))  # what was being worked on goes out at once
        return all(queue_id in seen or arrived & set(each["recipients"]) for queue_id, each in expected.items())

    await core.eventually(all_of_it, "every message, in a list or at its next hop")
    for queue_id, state in seen.items():
        # Words that are finer since: mail before its time is delayed, and an active message may be delivered just now.
        assert state in (expected[queue_id]["state"], "delayed", "active", "delivering", "queued"), queue_id
    limit = (await core.ask("transports"))["scopes"]["smtp"]["process_limit"]
    assert (limit["value"], limit["origin"]) == (7, "tuned")
    for operation, lane, *more in (("undelete", "deleted"), ("release", "hold"), ("retry", "retry.600", "--scheduled")):
        await command(core, "queue", operation, "--all-matching", "--lane", lane, "--yes", *more)
    await core.until_empty()
    assert Counter(recipients_of(lab.messages)) == everybody
    # A file may be empty: nothing happened in its stretch (docs/events.md). One that cannot be read raises. The exporter
    # works meanwhile: what it is writing has a dot before its name.
    assert sum(pq.read_metadata(file).num_rows for file in (core.home / "events").glob("dt=*/[!.]*.parquet"))


def tree(folder: Path) -> dict[str, str]:
    """Every file with what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def newer_segment(home: Path) -> None:
    path = max((home / "queue" / "journal").glob("*.seg"))
    content = bytearray(path.read_bytes())
    content[8] = content[2048 + 8] = 3  # the version in both copies of the header (FORMAT.md)
    path.write_bytes(content)


def newer_positions(home: Path) -> None:
    """With a checksum that is right: a newer Waypost has written it."""
    path = home / "queue" / "restart"
    content = bytearray(path.read_bytes())
    content[8] = 4
    checksum = google_crc32c.extend(google_crc32c.value(bytes(content[:16])), bytes(content[20:]))
    content[16:20] = checksum.to_bytes(4, "little")
    path.write_bytes(content)


def newer_marker(home: Path) -> None:
    write_restored(Disk(), str(home / "queue"), Restored(1.0, 2.0, version=3))


def newer_exported(home: Path) -> None:
    write_exported(Disk(), str(home / "events" / EXPORTED), ExportedPositions(version=2))


def newer_identity(home: Path) -> None:
    write_identity(Disk(), str(home), Identity("1" * 32, "home", str(home), 1.0, version=2))


@pytest.mark.parametrize("newer", [newer_segment, newer_positions, newer_marker, newer_exported, newer_identity])
def test_a_core_that_is_too_old_says_so_and_writes_nothing(newer: Any, tmp_path: Path) -> None:
    unpacked(HOMES[-1], tmp_path)
    home = tmp_path / "home"
    newer(home)
    core = RunningCore(tmp_path, {})
    before = tree(home)
    done = subprocess.run(
        [COMMAND, "mailcore", "--config", core.config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    read = {newer_positions: 3, newer_segment: 2, newer_marker: 2}.get(newer, 1)
    assert f"format version {read + 1}, this Waypost reads up to {read}" in done.stderr
    after = tree(home)
    assert {name for name in after if not name.startswith(("log/", "run/"))} - {"lock"} == set(before)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("name", ["queue", "spool"])
def test_an_upgrade_on_which_a_disk_is_missing_writes_nothing(name: str, tmp_path: Path) -> None:
    """A release without identities has left mail; nothing but that mail tells that a disk is missing."""
    unpacked(HOMES[0], tmp_path)
    home = tmp_path / "home"
    shutil.rmtree(home / name)
    (home / name).mkdir()
    core = RunningCore(tmp_path, {}, {"export": {"enabled": True}})
    before = tree(home)
    done = subprocess.run(
        [COMMAND, "mailcore", "--config", core.config], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert f"the {name} directory {home / name} " in done.stderr
    after = tree(home)
    assert {path for path in after if not path.startswith(("log/", "run/"))} - {"lock"} == set(before)


@pytest.mark.long
async def test_a_queue_that_begins_behind_the_events_of_an_old_one(tmp_path: Path) -> None:
    """Of a backup with reports and without a queue: new mail is exported, and no event is written over."""
    expected = unpacked(HOMES[-1], tmp_path)
    assert expected
    home = tmp_path / "home"
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, QUICK)
        path = tmp_path / "b"
        await command(core, "backup", str(path), "--reports")
        old = tree(home / "events")
        at = exported_lanes(home)
        home.rename(tmp_path / "old")
        await command(core, "restore", str(path))
        await core.start()
        try:
            await core.send("new@example.org")
            await core.until_empty()
            await command(core, "export", "--cut")
            positions = read_positions(Disk(), str(home / "queue"))
            assert positions is not None
            assert positions.lanes["incoming.0"].end > at["incoming.0"].at
        finally:
            await core.control.close()
            core.stop()
        assert recipients_of(lab.messages) == ["new@example.org"]
        new = tree(home / "events")
        kept = {name: new.get(name) for name in old if name.endswith(".parquet")}
        assert kept == {name: old[name] for name in kept}
        kinds = Counter(
            kind
            for name in new
            if name.endswith(".parquet") and name not in old and "windows" not in name
            for kind in pq.read_table(home / "events" / name, columns=["kind"])["kind"].to_pylist()
        )
        assert (kinds["accepted"], kinds["attempt"]) == (1, 1)


def exported_lanes(home: Path) -> dict[str, ExportedLane]:
    exported = read_exported(Disk(), str(home / "events" / EXPORTED))
    assert exported is not None
    return dict(exported.lanes)
