"""Which lines ``waypost tail`` prints, and how it ends."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.lookup.log_selection import ERRORS, EVENTS, WARNINGS, Selection
from mailcore.maillog import mail_lines
from tests.eventually import PATIENCE_S
from tests.test_tidy import read

LINES: list[dict[str, Any]] = [
    {"event": "accepted", "queue_id": "Q1", "sender": "a@example.org"},
    {"event": "accepted", "queue_id": "Q2", "sender": ""},
    {
        "event": "delivery",
        "queue_id": "Q1",
        "recipient": "b@example.net",
        "relay": "mx.example.net[192.0.2.1]:25",
        "transport": "smtp",
    },
    {"event": "refused", "queue_id": "", "sender": "a@example.org", "recipient": "c@example.net"},
    {"event": "bounced", "queue_id": "Q1", "bounce_id": "Q2"},
    {"event": "removed", "queue_id": "Q1"},
    {"event": "removed", "queue_id": "Q2"},
    {"event": "disk_full", "directory": "/q"},
    {"event": "failed", "process": "manager"},
    {"event": "window_changed", "destination": "smtp:example.com"},
]


@pytest.mark.parametrize(
    ("given", "matching"),
    [
        ({}, range(10)),
        ({"queue_id": "q1"}, [0, 2, 4, 5]),
        ({"queue_id": "Q2"}, [1, 4, 6]),
        ({"sender": "*@example.org"}, [0, 2, 3, 4, 5]),
        ({"sender": "<>"}, [1, 6]),
        ({"recipient": "*@EXAMPLE.net"}, [2, 3]),
        ({"destination": "mx.example.net"}, [2]),
        ({"destination": "example.net"}, [2, 3]),
        ({"destination": "smtp:example.com"}, [9]),
        ({"destination": "smtp:example.net"}, [2]),
        ({"destination": "smtp:[192.0.2.1]:25"}, [2]),
        ({"destination": "smtp:mx.example.net"}, [2]),
        ({"destination": "smtp:*"}, [2, 9]),
        ({"destination": "relay:example.net"}, []),
        ({"event": "removed"}, [5, 6]),
        ({"level": "warning"}, [7, 8]),
        ({"level": "error"}, [8]),
        ({"sender": "a@example.org", "event": "delivery"}, [2]),
    ],
)
def test_lines_match_all_that_is_given(given: dict[str, str], matching: Any) -> None:
    selection = Selection(**given)
    assert [number for number, line in enumerate(LINES) if selection.matches(line)] == list(matching)


def _log() -> ast.Module:
    """Returns the code of all families of lines."""
    files = sorted(Path(mail_lines.__file__).parent.glob("*lines.py"))
    return ast.parse("".join(path.read_text().replace("from __future__ import annotations", "") for path in files))


def test_levels_are_those_of_the_log() -> None:
    """An event is a warning if the line beside it in mail.log says so."""
    warnings, fatal = set(), set()
    for function in ast.walk(_log()):
        if isinstance(function, ast.FunctionDef):
            calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
            events = {
                each.args[0].value
                for each in calls
                if isinstance(each.func, ast.Attribute)
                and each.func.attr == "_object"
                and each.args
                and isinstance(each.args[0], ast.Constant)
            }
            plain = {each.func.attr for each in calls if isinstance(each.func, ast.Attribute)}
            if "_warning" in plain and "_line" not in plain:
                warnings |= events
            if "fatal: " in ast.dump(function):
                fatal |= events
    assert fatal == ERRORS
    assert warnings - WARNINGS == set()


def test_the_events_are_those_of_the_log() -> None:
    """An event that the log has and ``tail`` does not know could not be asked for; the page of the log has them all, too."""
    tree = _log()
    events: set[object] = {event for event, _ in mail_lines._REPORTS.values()}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "_object":
            events |= {each.value for each in ast.walk(call.args[0]) if isinstance(each, ast.Constant)}
        if isinstance(call, ast.Dict):
            events |= {
                value.value
                for key, value in zip(call.keys, call.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "event" and isinstance(value, ast.Constant)
            }
    assert events == EVENTS
    page = read("docs/log.md").partition("## The objects")[2]
    assert [event for event in sorted(EVENTS) if f"`{event}`" not in page] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--event", "deliverd"), "did you mean 'delivery'"),
        (("--event", ""), "allowed: accepted"),
        (("--sender", ""), "an empty value is not allowed"),
        (("--recipient", " "), "an empty value is not allowed"),
        (("--destination", ""), "an empty value is not allowed"),
        (("--queue-id", ""), "is not a queue ID"),
        (("--queue-id", "x y"), "is not a queue ID"),
        (("--lines", "-1"), "0 or more"),
        (("--level", "warn"), "invalid choice: 'warn'"),
    ],
)
def test_a_value_that_matches_nothing_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, str], said: str
) -> None:
    (tmp_path / "waypost.toml").write_text('home = "home"\n')
    assert main(["tail", "=".join(words), "--config", str(tmp_path / "waypost.toml")]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def heed_ctrl_c() -> None:
    """Below a shell's "&" the signal is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_ends_when_its_reader_does_and_on_ctrl_c(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    log = tmp_path / "home" / "log" / "mail.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(json.dumps(LINES[0]) + "\n")
    command = [sys.executable, "-m", "mailcore.cli.main", "tail", "--config", str(config)]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline()) == LINES[0]
        with log.open("a") as file:
            file.write(json.dumps(LINES[1]) + "\n")
        assert json.loads(tail.stdout.readline()) == LINES[1]
        tail.stdout.close()  # nothing is written any more, and it ends
        assert tail.wait(20) == 0
        assert tail.stderr is not None
        assert tail.stderr.read() == b""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,  # noqa: PLW1509 - no thread runs here
    ) as text:
        assert text.stdout is not None
        assert text.stdout.readline() == "accepted Q1 sender=a@example.org\n"
        assert "accepted Q2" in text.stdout.readline()
        time.sleep(0.1)
        os.kill(text.pid, signal.SIGINT)
        _, err = text.communicate(timeout=PATIENCE_S)
    assert (text.returncode, err) == (130, "")
