"""An argument that is not UTF-8 is an error in one line, wherever it stands; the name of a file may be any bytes, not none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.main import main
from mailcore.cli.tree import Command, command_tree, options_of, positionals_of
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlClient, Refused
from mailcore.faults import Code
from mailcore.terminal.command import file_name
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl

WRONG = os.fsdecode(b"M\xfcller")
OWN_PARSERS = ("lab", "demo")  # tools for tests
LEAVES = [
    command
    for command in command_tree(COMMANDS).walk()
    if not command.children and command.words[1:2] and command.words[1] not in OWN_PARSERS
]


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: " ".join(command.words[1:]))
def test_every_argument_that_is_no_file_is_refused(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = list(command.words[1:])
    positionals = [action for action in positionals_of(command) if action.type not in (Path, file_name)]
    options = [
        option
        for option in options_of(command)
        if option.nargs != 0 and option.type not in (Path, file_name) and "--config" not in option.option_strings
    ]
    lines = [[*words, option.option_strings[-1], WRONG] for option in options]
    if positionals:
        lines.append([*words, *(WRONG for _ in positionals_of(command))])
    for line in lines:
        assert main(line) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "'M\\udcfcller' is not UTF-8" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: " ".join(command.words[1:]))
def test_an_empty_name_of_a_file_is_refused(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """Python takes it for the working directory."""
    words = list(command.words[1:])
    actions = [action for action in command.parser._actions if action.type in (Path, file_name)]
    before = {
        action: ["show" if words == ["export"] else "x"]
        * (0 if action.option_strings else positionals_of(command).index(action))
        for action in actions
    }
    given = [[*words, *before[action], *action.option_strings[-1:], ""] for action in actions]
    for line in [*given, ["--config", "", *words]]:
        assert main(line) == 2, line
        assert "an empty value is not allowed" in capsys.readouterr().err


def test_an_empty_name_of_a_lane_or_a_home_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["log", "dump", "--lane", ""], ["import-postfix", "etc", "--home", ""]):
        assert main(line) == 2, line
        assert "an empty value is not allowed" in capsys.readouterr().err


async def test_the_name_of_the_user_may_be_any_bytes(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", WRONG)
    said = await waypost("ping")
    assert said.status == 0, said.err


def test_the_program_itself_shows_no_traceback(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    command = [
        sys.executable,
        "-m",
        "mailcore.cli.main",
        "destination",
        "suspend",
        os.fsdecode(b"smtp:\xff"),
        "--config",
        str(config),
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"is not UTF-8" in done.stderr


def test_a_file_may_have_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / WRONG
    config.write_text('home = "home"\n')
    assert main(["check-config", "--config", str(config)]) == 0
    assert main(["--config", str(config), "check-config"]) == 0
    assert main(["log", "dump", str(tmp_path / f"{WRONG}.seg")]) == 1
    assert main(["inject", str(tmp_path / f"{WRONG}.eml"), "--to", "a@example.org", "--json"]) == 1
    assert main(["backup", "--verify", f"{tmp_path}/{WRONG}.tar.zst"]) == 1
    assert "is not UTF-8" not in capsys.readouterr().err


async def test_neither_client_sends_text_that_is_not_unicode(running: RunningControl) -> None:
    arguments = {"queue_id": "\ud800"}
    with ControlClient(running.socket) as client, pytest.raises(Refused) as refused:
        client.call("show", arguments)
    assert refused.value.code is Code.INVALID
    async with AsyncControlClient(running.socket) as client_of_loop:
        with pytest.raises(Refused) as refused:
            await client_of_loop.call("show", arguments)
        assert refused.value.code is Code.INVALID
