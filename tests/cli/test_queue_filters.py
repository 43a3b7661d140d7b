"""Filters on the command line: an empty value is wrong use, and changes nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest

from mailcore.cli.main import by_option, main
from mailcore.faults import Code, Fault
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.faults import other_words
from tests.lookup.sample_messages import deferred, envelope

EMPTY = ("", " ", "\t")


def accept(running: RunningControl) -> list[Any]:
    """Returns the changes that the manager is asked for."""
    asked: list[Any] = []

    def change(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given)
        return {"changed": len(given["messages"]), "errors": {}, "elsewhere": []}

    for name in ("delete", "hold"):
        running.manager.answers[name] = change
    return asked


@pytest.mark.parametrize("value", EMPTY)
@pytest.mark.parametrize(
    "option",
    [
        "--sender", "--recipient", "--destination", "--lane", "--reason", "--older-than", "--younger-than", "--larger-than",
        "--smaller-than",
    ],
)  # fmt: skip
async def test_an_empty_filter_deletes_nothing(
    running: RunningControl, waypost: Waypost, option: str, value: str
) -> None:
    running.write("incoming.0", envelope(), envelope(sender=""))
    asked = accept(running)
    for command in ("purge --yes", "delete --all-matching --yes", "hold --all-matching --dry-run", "list"):
        said = await waypost("queue", *command.split(), option, value)
        assert (said.status, said.out) == (2, "")
        assert f"argument {option}: an empty value is not allowed" in said.err
        assert said.err.count("\n") == 1
    assert asked == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("queue list --older-than 0", "argument --older-than: 0.0 is not allowed; allowed: more than 0 seconds"),
        ("queue list --older-than 0s", "argument --older-than: 0.0 is not allowed"),
        ("queue list --older-than -5", "argument --older-than: '-5' is not a duration"),
        ("queue list --older-than nan", "argument --older-than: 'nan' is not a duration"),
        ("queue list --younger-than inf", "argument --younger-than: 'inf' is not a duration"),
        ("queue list --younger-than 999999999w", "argument --younger-than: "),
        ("queue list --larger-than 0", "argument --larger-than: 0 is not allowed; allowed: 1 to "),
        ("queue list --larger-than -1", "argument --larger-than: -1 is not allowed"),
        ("queue list --smaller-than 1e3", "argument --smaller-than: invalid int value: '1e3'"),
        ("queue list --sender a\\", "argument --sender: a \\ at the end has no meaning; write \\\\ for a backslash"),
        ("queue list --sender <a@example.org>", "argument --sender: write the address without < and >"),
        ("queue list --recipient <>", "argument --recipient: write the address without < and >"),
        ("queue list --sender a\udcff@example.org", "argument --sender: 'a\\udcff@example.org' is not UTF-8"),
        ("queue search --message-id <>", "argument --message-id: an empty value is not allowed"),
        ("queue purge --sender * --yes", "queue purge: give a filter"),
        ("queue purge --sender * --recipient ** --yes", "queue purge: give a filter"),
        ("queue purge --all --sender a@example.org", "--all deletes the whole queue and cannot be combined"),
    ],
)
def test_a_filter_that_limits_nothing_is_wrong_use(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("option", ["--sender", "--recipient", "--message-id"])
def test_a_search_refuses_an_empty_value(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "search", "--sender", "a@example.org", option, ""]) == 2
    assert f"argument {option}: an empty value is not allowed" in capsys.readouterr().err


@pytest.mark.parametrize("cursor", EMPTY)
def test_an_empty_cursor_is_not_the_beginning(cursor: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "search"):
        assert main(["queue", command, "--cursor", cursor]) == 2
        assert "argument --cursor: an empty value is not allowed" in capsys.readouterr().err


async def test_an_unknown_lane_is_wrong_use(running: RunningControl, waypost: Waypost) -> None:
    running.write("retry.5", deferred("a@example.org"))
    asked = accept(running)
    for command in (("list",), ("delete", "--all-matching", "--yes"), ("delete", "--all-matching", "--dry-run")):
        said = await waypost("queue", *command, "--lane", "retry.7")
        assert (said.status, said.out) == (2, "")
        assert f"argument --lane: {other_words(Code.INVALID, 'filter.lane')}" in said.err
    assert asked == []


def test_the_refusal_of_a_filter_names_the_option() -> None:
    """The core names its argument in front of the message; a person typed an option."""
    fault = Fault(Code.INVALID, "filter.lane: there is no lane 'x'; there are hold", "filter.lane")
    assert by_option(fault).message == "argument --lane: there is no lane 'x'; there are hold"


@pytest.mark.parametrize("given", [("",), (" ",), ("-", "")])
async def test_an_empty_queue_id_is_wrong_use(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1K0RDGV4BE900\n"))
    asked = accept(running)
    said = await waypost("queue", "hold", *given)
    assert (said.status, said.out, asked) == (2, "", [])
    assert "is not a queue ID" in said.err


@pytest.mark.parametrize("lines", ["", "\n", " \n\n"])
async def test_no_queue_id_on_stdin_is_wrong_use(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    said = await waypost("queue", "hold", "-")
    assert (said.status, said.out) == (2, "")
    assert "queue hold: no queue ID on stdin; nothing was changed" in said.err


async def test_the_empty_sender_is_shown_and_selected_as_brackets(running: RunningControl, waypost: Waypost) -> None:
    bounce, other = envelope("anna@example.org", sender=""), envelope("bert@example.org")
    running.write("incoming.0", bounce, other)
    for command in ("list", "search"):
        said = await waypost("queue", command, "--sender", "<>")
        assert said.out.splitlines()[0].split()[0] == bounce.queue_id
        assert said.out.splitlines()[0].endswith("  <>")
        assert other.queue_id not in said.out


async def test_stars_and_question_marks_can_be_escaped(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", envelope(sender="a*b@example.org"), envelope(sender="axb@example.org"))
    assert (await waypost("queue", "list", "--sender", "A\\*b@example.org")).out.splitlines()[-1] == "-- 1 message"
    assert (await waypost("queue", "list", "--sender", "a*b@example.org")).out.splitlines()[-1] == "-- 2 messages"
