"""Every way to hold it wrong is one clear line on stderr, and a status that says which kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.main import main
from mailcore.faults import Code
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.faults import other_words

ID = "1K0RDGV4BE900"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explode", "unknown command 'explode'; did you mean 'reload' or 'export'? See waypost --help."),
        ("queue", "queue: the following arguments are required: COMMAND"),
        ("queue explode", "queue: unknown command 'explode'. See waypost queue --help."),
        ("queue list --limit x", "queue list: argument --limit: invalid int value: 'x'"),
        ("queue list --older-than soon", "argument --older-than: 'soon' is not a duration; allowed: 90s"),
        ("queue show", "the following arguments are required: QUEUE_ID"),
        ("queue delete", "queue delete: give queue IDs, or --all-matching with filters"),
        (f"queue delete {ID} --all-matching", "queue delete: give queue IDs, or --all-matching with filters"),
        (f"queue delete {ID} --sender x", "filters need --all-matching and cannot be combined with queue IDs"),
        (f"queue delete {ID} --dry-run", "--dry-run needs --all-matching"),
        (f"queue delay {ID}", "queue delay: the following arguments are required: --until"),
        (f"queue delay {ID} --until soon", "argument --until: 'soon' is not a time; allowed: +90s"),
        (f"queue reroute {ID}", "queue reroute: the following arguments are required: --to"),
        ("queue purge", "queue purge: give a filter"),
        ("transport set smtp x", "the following arguments are required: VALUE"),
        ("transport set smtp x \x07", "'\\x07'; allowed: a number, a word, or default"),
        ("transport set smtp x 1 --for 2h --until +2h", "argument --until: not allowed with argument --for"),
        ("transport set smtp x 1 --for soon", "argument --for: 'soon' is not a duration; allowed: 90s"),
        ("destination set example.org x 1", "destination: 'example.org' has no transport; expected TRANSPORT:NEXTHOP"),
        ("destination slow smtp:a.example --to 150% --for 2h", "--to '150%'; allowed: 1% to 99%"),
        ("destination slow smtp:a.example", "destination slow: give a time limit with --for DURATION"),
        ("destination suspend", "the following arguments are required: DESTINATION"),
        ("inject", "the following arguments are required: --to"),
        ("status --config /nowhere.toml", "/nowhere.toml: cannot be read: No such file or directory"),
    ],
)
def test_wrong_use(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("waypost: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "status", "code", "argument"),
    [
        ("--json explode", 2, "invalid", ""),
        ("queue list --json --limit x", 2, "invalid", "--limit"),
        ("--json queue show xyz", 2, "invalid", "QUEUE_ID"),
        ("status --json --config /nowhere.toml", 2, "invalid", ""),
        ("log dump /nowhere --json", 1, "not_found", ""),
        ("inject /nowhere --to a@example.org --json", 1, "not_found", ""),
    ],
)
def test_with_json_an_error_is_json(
    line: str, status: int, code: str, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == status
    (error,) = [json.loads(line)["error"] for line in capsys.readouterr().err.splitlines()]
    assert (error["code"], error["argument"]) == (code, argument)
    assert error["message"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("qeue", "waypost: unknown command 'qeue'; did you mean 'queue'? See waypost --help.\n"),
        (
            "--config x destinatoin list",
            "waypost: unknown command 'destinatoin'; did you mean 'destination'? See waypost --help.\n",
        ),
        ("zzz", "waypost: unknown command 'zzz'. See waypost --help.\n"),
        ("queue lits", "waypost: queue: unknown command 'lits'; did you mean 'list'? See waypost queue --help.\n"),
        ("queue re", "waypost: queue: unknown command 're'. See waypost queue --help.\n"),
        ("queue list --limt 5", "waypost: queue list: unknown option '--limt'; did you mean '--limit' or '--at'?\n"),
        ("queue list --limt=5", "waypost: queue list: unknown option '--limt'; did you mean '--limit' or '--at'?\n"),
        ("backup --qeue backup", "waypost: backup: unknown option '--qeue'; did you mean '--queue'?\n"),
        ("--xyz", "waypost: unknown option '--xyz'\n"),
        ("--verison", "waypost: unknown option '--verison'; did you mean '--version' or '--json'?\n"),
        ("status --xyz", "waypost: status: unknown option '--xyz'\n"),
        (f"queue show {ID} b", "waypost: queue show: unexpected argument 'b'\n"),
        ("log dmup", "waypost: log: unknown command 'dmup'; did you mean 'dump'? See waypost log --help.\n"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", message)


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in COMMANDS)


def test_a_missing_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if Path("/etc/waypost/waypost.toml").exists():
        pytest.skip("this host has a configuration")
    assert main(["queue", "size"]) == 2
    assert "neither waypost.toml nor /etc/waypost/waypost.toml exists" in capsys.readouterr().err


def test_every_fault_of_a_configuration_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text("x = 1\ny = 2\n")
    assert main(["status", "--config", str(config)]) == 2
    faults = capsys.readouterr().err.splitlines()
    assert [fault.split(": ")[1] for fault in faults] == [f"{config}:1", f"{config}:2"]


def test_when_the_appliance_is_not_running_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    assert main(["queue", "size", "--config", str(config)]) == 3
    assert capsys.readouterr().err == f"waypost: {other_words(Code.UNAVAILABLE)}\n"


async def test_options_for_all_may_stand_in_front(running: RunningControl, waypost: Waypost) -> None:
    running.manager.answers["size"] = lambda _: {
        "messages": 0,
        "recipients": 0,
        "lanes": {},
        "destinations": {},
        "unheard": [],
    }
    assert (await waypost("--json", "queue", "size")).json["messages"] == 0


async def test_while_the_manager_is_away_errors_say_so(running: RunningControl, waypost: Waypost) -> None:
    await running.lose_the_manager()
    said = await waypost("queue", "size")
    assert (said.status, said.err) == (
        1,
        f"waypost: {other_words(Code.UNAVAILABLE)}\n",
    )


def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    command = [sys.executable, "-m", "mailcore.cli.main", "check-config", "--config", str(config)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert done.stderr == b""


def test_only_what_is_needed_is_imported() -> None:
    program = "import sys; from mailcore.cli.main import main; main(['queue', 'size']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    for unwanted in (
        "uvloop",
        "aiosmtpd",
        "aiosmtplib",
        "dns",
        "mailcore.manager.manager",
        "mailcore.log.lane",
    ):
        assert unwanted not in done.stdout.split()
