"""``waypost import-postfix``: the file it writes, and a queue that arrives once, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.faults import Code
from mailcore.import_postfix import import_queue
from mailcore.import_postfix.ledger import Begun, Ledger
from mailcore.import_postfix.queue_directory import postfix_stopped
from tests.end_to_end.appliance import Appliance
from tests.import_postfix.importing import Import, arrived
from tests.import_postfix.old_queue import LONG_LINE, OldQueue
from tests.running.catcher import Catcher

WAITING = ["b@example.org", "c@example.org", "d@example.org", "f@example.org", "g@example.org", "h@example.org",
           "i@example.org", "local@bench.invalid"]  # fmt: skip
HELD = "e@example.org"


# An import that is killed when it has written so many lines; with a half, in front of the next.
DYING = """
import os, signal, sys
from mailcore.cli import main
from mailcore.import_postfix import import_queue
from mailcore.import_postfix import ledger
import_queue.AT_ONCE, import_queue.SETTLED_S = 1, 0.2
write, left = ledger.Ledger._write, float(sys.argv.pop(1))
def dying(self, line, sync=True):
    global left
    if left < 1:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, line, sync)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
ledger.Ledger._write = dying
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: a Unix socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="wp") as name:
        yield Path(name)


async def the_only_one(appliance: Appliance) -> dict[str, Any]:
    """What is left in the queue; what has just been delivered is listed until its marks are written."""
    items: list[dict[str, Any]] = []

    async def alone() -> bool:
        items[:], _ = await appliance.ask_list("queue", "list")
        return len(items) == 1

    await appliance.until(alone, "one message to be left")
    return items[0]


async def test_what_postfix_had_to_deliver_is_delivered_once_and_what_it_held_is_held(
    old: OldQueue, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in old.queue.rglob("*") if path.is_file()}
    async with Catcher() as catcher:
        appliance = Appliance(place, {"*": catcher.route})
        await appliance.start()
        try:
            run = Import(old, appliance, capsys)
            with (old.etc / "main.cf").open("a") as main_cf:
                main_cf.write("mydestination = $myhostname\nmulti_instance_directories = /etc/postfix-out\n")
            dry = await run("--dry-run")
            assert "6 messages with 9 recipients would be imported, 1 of them held" in dry
            assert "1 message: a recipient's domain had mailboxes or aliases on the old host" in dry
            assert "1 other Postfix instance on its host was not imported" in dry
            told = await run.told("--queue")
            assert (told["messages"], told["recipients"], told["held"], told["done_before"]) == (6, 9, 1, 1)
            assert (told["stays"], told["other_instances"]) == ([], ["/etc/postfix-out"])
            assert await arrived(catcher, len(WAITING)) == WAITING
            assert "6 messages were imported before" in await run("--queue")
            assert sorted((await run("--list-done")).split()) == sorted(old.ids.values())
            held = await the_only_one(appliance)
            assert (held["state"], held["recipients"]) == ("held", [HELD])
            assert held["reason"] == "it was held in Postfix's queue"
            assert (await arrived(catcher, len(WAITING))) == WAITING
            _look_at_data(catcher)
        finally:
            appliance.stop()
    assert {path: path.read_bytes() for path in old.queue.rglob("*") if path.is_file()} == before


def _look_at_data(catcher: Catcher) -> None:
    by_first = {recipients[0]: (sender, data) for sender, recipients, data in catcher.caught}
    sender, data = by_first["b@example.org"]
    assert sender == "s@example.org"
    assert data.count(b"Received: ") == 2  # Postfix's, and in front of it ours
    text = data.replace(b"\r\n ", b"")  # where the deliverer broke the long line
    assert text.endswith(b"\r\n\r\n.a dot\r\n" + LONG_LINE + b"\r\nlast \xe4\r\n")
    assert by_first["d@example.org"][0] == ""
    sender, data = by_first["g@example.org"]
    assert sender == "root@bench.invalid"
    assert b"secret@" not in data
    assert b"\r\nDate: " in data


async def test_an_import_killed_again_and_again_brings_each_once(
    old: OldQueue, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a line of the ledger that says it is begun, and in front of one that says it is done."""
    monkeypatch.setattr(import_queue, "SETTLED_S", 0.2)  # the kills are over, and nothing is under way
    async with Catcher() as catcher:
        appliance = Appliance(place, {"*": catcher.route})
        await appliance.start()
        try:
            run = Import(old, appliance, capsys)
            for lines in (1, 2.5, 2.5):
                command = [sys.executable, "-c", DYING, str(lines), *run.command, "--queue", *run.config]
                done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
                assert done.returncode == -signal.SIGKILL, done.stderr
            ledger = (appliance.home / import_queue.LEDGER).read_text()
            assert [line.split()[0] for line in ledger.splitlines()] == ["begun", "void", "begun", "done", "begun"]
            told = await run.told("--queue")
            assert (told["stays"], told["before"]) == ([], 2)
            assert Counter(await arrived(catcher, len(WAITING))) == Counter(WAITING)
            await the_only_one(appliance)
        finally:
            appliance.stop()


def forget_how_it_ended(path: Path, queue_id: str) -> None:
    """As if it had been begun long before the journal's first record, and nobody had written how it ended."""
    lines = path.read_text().splitlines()
    key = next(line.split()[1] for line in lines if queue_id in line)
    path.write_text("".join(f"{line}\n" for line in lines if key not in line))
    ledger = Ledger(path)
    ledger.begun(Begun(key, 0, 0, "0000000000001", 1))
    ledger.close()


async def test_what_may_have_arrived_is_not_handed_in_again_but_told(
    old: OldQueue, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_queue, "SETTLED_S", 1.0)
    async with Catcher() as catcher:
        appliance = Appliance(place, {"*": catcher.route})
        await appliance.start()
        try:
            run = Import(old, appliance, capsys)
            told = await run.told("--queue")
            assert told["messages"] == 6
            forget_how_it_ended(Path(told["ledger"]), old.ids["held"])
            told = await run.told("--queue", status=1)
            (stays,) = told["stays"]
            assert stays["queue_id"] == old.ids["held"]
            assert "may be in the queue as 0000000000001" in stays["why"]
            assert (told["messages"], told["before"]) == (0, 5)
        finally:
            appliance.stop()


async def test_what_waypost_refuses_stays_and_is_named_and_the_rest_comes(
    old: OldQueue, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Catcher() as catcher:
        sections = {"receiver": {"message_size_limit": 4000, "recipient_limit": 1}}
        appliance = Appliance(place, {"*": catcher.route}, sections)
        await appliance.start()
        try:
            told = await Import(old, appliance, capsys).told("--queue", status=1)
            assert [each["queue_id"] for each in told["stays"]] == [old.ids["partly"]]
            assert told["stays"][0]["code"] == Code.INVALID
            assert (told["messages"], told["recipients"]) == (5, 7)
            assert await arrived(catcher, 6) == WAITING[2:]  # one recipient a message, and none left out
        finally:
            appliance.stop()


async def test_nothing_is_touched_while_the_master_runs_or_the_appliance_does_not(
    old: OldQueue, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    appliance = Appliance(place, {"*": "smtp:[127.0.0.1]:1"})
    appliance.home.mkdir()
    run = Import(old, appliance, capsys)
    await run("--queue", status=3)
    with postfix_stopped(old.queue):
        assert "stop it first" in await run("--queue", status=1)


def test_the_file_is_written_whole_never_over_another_and_the_appliance_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "main.cf").write_text("myhostname = mail.example.org\nheader_checks = regexp:/x\x1b[31m\n")
    target = tmp_path / "waypost.toml"
    assert main(["import-postfix", str(tmp_path / "etc"), "--write", str(target)]) == 0
    out = capsys.readouterr().out
    assert "main.cf:2: header_checks" in out
    assert "\x1b" not in out
    assert main(["check-config", "--config", str(target)]) == 0
    before = target.read_text()
    assert main(["import-postfix", str(tmp_path / "etc"), "--write", str(target)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert target.read_text() == before
    assert main(["import-postfix", str(tmp_path / "etc"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"] == before
    (tmp_path / "etc" / "main.cf").write_bytes(b"myhostname = \xff\n")
    for more in ([], ["--dry-run"], ["--queue"]):
        assert main(["import-postfix", str(tmp_path / "etc"), *more]) == 2
        assert "main.cf is not UTF-8" in capsys.readouterr().err
    assert main(["import-postfix", str(tmp_path / "nowhere")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_report_needs_neither_a_home_nor_a_configuration(
    old: OldQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mailcore.terminal.command.INSTALLED", tmp_path / "none.toml")
    command = ["import-postfix", str(old.etc), "--queue-directory", str(old.queue)]
    before = sorted(tmp_path.iterdir())
    for config in ([], ["--config", str(tmp_path / "waypost.toml")]):
        if config:
            Path("waypost.toml").write_text('home = "home"\n')
            before = sorted(tmp_path.iterdir())
        assert main([*command, "--dry-run", "--home", str(tmp_path / "home"), *config]) == 0
        assert "6 messages with 9 recipients would be imported" in capsys.readouterr().out
        assert main([*command, "--list-done", *config]) == 0
        assert capsys.readouterr().out == ""
        assert sorted(tmp_path.iterdir()) == before, "a report creates nothing"
    assert main([*command, "--queue", "--config", "waypost.toml"]) == 2
    assert "start Waypost, which creates its home" in capsys.readouterr().err
