"""Completion in real shells: the test types a line and presses the Tab key, and the shell runs the completed line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.cli.main import main
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.eventually import PATIENCE_S
from tests.lookup.sample_messages import envelope

# The command under test prints its words; the running Waypost is two lines of values.
# Recipients choose some names of destinations: nothing in them may be run, neither by the shell nor by its user.
HOSTILE = "relay:$(touch owned)`touch owned`;touch owned@example.org"
DESTINATIONS = f"smtp:example.org\nsmtp:[192.0.2.1]:25\n{HOSTILE}\n"
PROGRAM = """waypost() {
    case "$1 $2 $3" in
    "completion --values queue-ids") printf '%s\\n' 1K0RDGV4BE900 1K0RDGV4BE911 ;;
    "completion --values destinations") cat destinations ;;
    "completion --values transports") printf '%s\\n' smtp global ;;
    "completion --values parameters") printf '%s\\n' process_limit destination_rate_delay ;;
    *) printf 'RAN'; printf '<%s>' "$@"; printf '\\n' ;;
    esac
}
"""
BEGIN = {
    "bash": "PS1=; unset PROMPT_COMMAND; bind 'set bell-style none'; bind 'set enable-bracketed-paste off'\n",
    "zsh": "PS1=; unsetopt zle_bracketed_paste prompt_sp beep; autoload -U compinit; compinit -u -D\n",
}


class Shell:
    """An interactive shell in a terminal of its own, with the completion of ``waypost``."""

    def __init__(self, shell: str, script: str, directory: Path) -> None:
        (directory / "program").write_text(PROGRAM)
        (directory / "completion").write_text(script)
        (directory / "destinations").write_text(DESTINATIONS)
        (directory / "a file.eml").write_text("")
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            options = ["--norc", "--noprofile", "-i"] if shell == "bash" else ["-f", "-i"]
            os.environ.update(TERM="dumb", HISTFILE="")
            os.execvp(shell, [shell, *options])
        self._type(BEGIN[shell] + 'source ./program; source ./completion; echo READ""Y\n')
        self._read_until("READY")

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read_until(self, pattern: str) -> str:
        output = ""
        until = time.monotonic() + PATIENCE_S
        while not (found := re.search(pattern, output)):
            assert time.monotonic() < until, output
            if select.select([self._terminal], [], [], 0.5)[0]:
                output += os.read(self._terminal, 65_536).decode(errors="replace")
        return found[0]

    def completed(self, line: str) -> list[str]:
        """The words that ``waypost`` gets when the line is typed, completed and entered."""
        self._type(f"{line}\t")
        time.sleep(0.3)  # some shells drop what is typed while they complete
        self._type("\n")
        return re.findall("<(.*?)>", self._read_until("RAN<[^\\r\\n]*[\\r\\n]"))

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian package {name})")
    assert main(["completion", name]) == 0
    shell = Shell(name, capsys.readouterr().out, tmp_path)
    yield shell
    shell.end()


def test_a_line_is_completed(shell: Shell) -> None:
    for line, words in {
        "waypost dest": ["destination"],
        "waypost queue add": ["queue", "add-recipient"],
        "waypost --config x queue li": ["--config", "x", "queue", "list"],
        "waypost help queue reroute --no": ["help", "queue", "reroute", "--no"],
        "waypost help dest": ["help", "destination"],
        "waypost queue list --curs": ["queue", "list", "--cursor"],
        "waypost queue list --limit 5 --curs": ["queue", "list", "--limit", "5", "--cursor"],
        "waypost queue show 1K0RDGV4BE90": ["queue", "show", "1K0RDGV4BE900"],
        "waypost queue hold 1K0RDGV4BE911 1K0RDGV4BE90": ["queue", "hold", "1K0RDGV4BE911", "1K0RDGV4BE900"],
        "waypost destination suspend smtp:e": ["destination", "suspend", "smtp:example.org"],
        "waypost destination set smtp:example.org proc": ["destination", "set", "smtp:example.org", "process_limit"],
        "waypost queue list --destination smtp:e": ["queue", "list", "--destination", "smtp:example.org"],
        "waypost transport list glo": ["transport", "list", "global"],
        "waypost log dump --type fin": ["log", "dump", "--type", "finish"],
        "waypost inject a\\ fi": ["inject", "a file.eml"],
        "waypost completion ba": ["completion", "bash"],
    }.items():
        assert shell.completed(line) == words, line


def test_nothing_in_a_value_is_run(shell: Shell, tmp_path: Path) -> None:
    assert shell.completed("waypost destination suspend relay:") == ["destination", "suspend", HOSTILE]
    assert not (tmp_path / "owned").exists()
    line = "waypost queue list --destination 'smtp:[19"
    assert shell.completed(line) == ["queue", "list", "--destination", "smtp:[192.0.2.1]:25"]
    line = "waypost queue list --destination smtp:\\[19"
    assert shell.completed(line) == ["queue", "list", "--destination", "smtp:[192.0.2.1]:25"]


async def test_values_are_those_of_the_running_waypost(running: RunningControl, waypost: Waypost) -> None:
    messages = [envelope(), envelope()]
    running.write("incoming.0", *messages)
    running.manager.answers["destinations"] = lambda _: {"queued": {"": 1, "smtp:example.org": 2}}
    said = await waypost("completion", "--values", "queue-ids")
    assert said.out.splitlines() == [each.queue_id for each in messages]
    assert (await waypost("completion", "--values", "destinations")).out == "smtp:example.org\n"
    assert "global" in (await waypost("completion", "--values", "transports")).out.splitlines()
    assert "process_limit" in (await waypost("completion", "--values", "parameters")).out.splitlines()


def test_without_a_running_waypost_nothing_is_offered_and_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    assert main(["completion", "--values", "queue-ids", "--config", str(config)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["completion"]) == 2
