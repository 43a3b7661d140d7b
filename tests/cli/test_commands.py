"""``waypost status``, ``check-config``, ``inject``, ``transport`` and ``destination``."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.config.load import load
from mailcore.faults import Code
from mailcore.log.disk import Disk
from mailcore.queue.spool import DATA_AT, Spool
from mailcore.terminal.times import shown
from tests.cli.running_control import Waypost
from tests.control.running_control import CONFIGURATION, RunningControl
from tests.faults import OTHER_WORDS, other_words
from tests.lookup.sample_messages import envelope

MESSAGE = b"From: Me <me@example.org>\nSubject: x\n\n.dot\nlast"


# -- check-config


def test_check_config_prints_what_the_appliance_would_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(CONFIGURATION)
    assert main(["check-config", "--config", str(config)]) == 0
    printed = capsys.readouterr().out
    again = tmp_path / "again.toml"
    again.write_text(printed)
    assert load(again) == load(config)
    assert tomllib.loads(printed)["receiver"]["message_size_limit"] == 100_000
    assert main(["check-config", "--json", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["routes"] == {"*": "smtp"}


def test_check_config_names_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text("[queue]\nsegment_bytes = 1\nfoo = 2\n")
    assert main(["check-config", "--json", "--config", str(config)]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["valid"] is False
    assert len(json.loads(out)["faults"]) == 2
    assert [json.loads(line)["error"]["code"] for line in err.splitlines()] == ["invalid", "invalid"]
    assert main(["check-config", "--config", str(config)]) == 2
    err = capsys.readouterr().err
    assert f"waypost: {config}:2: [queue] segment_bytes must be between 65536 and 1073741824 bytes (got 1)" in err


# -- status


async def test_status_says_what_runs_and_what_is_queued(running: RunningControl, waypost: Waypost) -> None:
    (running.settings.run_directory / "processes.json").write_text('{"supervisor": 10, "manager": 11}')
    running.manager.answers["state"] = lambda _: {
        "uptime_s": 3700.0,
        "active_messages": 2,
        "receivers": {"incoming.0": 1, "incoming.1021": 2},
        "counters": {"recipients_delivered": 3, "recipients_lost": 0, "accepted": 4},
    }
    running.manager.answers["size"] = lambda _: {
        "messages": 3, "recipients": 4, "lanes": {"hold": {"messages": 3, "recipients": 4}}, "destinations": {}, "unheard": [],
    }  # fmt: skip
    said = await waypost("status")
    assert said.status == 0
    assert "processes:   manager 11, supervisor 10\n" in said.out
    assert "queued:      3 messages, 4 recipients\n" in said.out
    assert "receivers:   1\n" in said.out  # not the lane of the pickup
    assert "since start: 4 accepted, 3 recipients delivered\n" in said.out
    assert (await waypost("status", "--json")).json["state"]["active_messages"] == 2


async def test_status_without_the_manager_is_a_failure_that_says_why(running: RunningControl, waypost: Waypost) -> None:
    await running.lose_the_manager()
    said = await waypost("status")
    assert said.status == 1
    assert other_words(Code.UNAVAILABLE) in said.out
    told = await waypost("status", "--json")
    assert told.status == 1
    assert told.json["error"] == {"code": "unavailable", "message": other_words(Code.UNAVAILABLE), "argument": ""}


async def test_status_names_files_because_of_which_mail_gets_451(running: RunningControl, waypost: Waypost) -> None:
    aliases, valid = running.config.with_name("aliases"), running.config.with_name("valid")
    aliases.write_text("nonsense\n")
    valid.write_text("")
    text = running.config.read_text()
    running.config.write_text(
        f'{text}[rewriting]\nvirtual_alias_maps = ["{aliases}"]\n[relay]\ndomains = ["example.org"]\n'
        f'[recipients]\nknown_by = "file"\nrelay_recipient_maps = ["{valid}"]\n'
    )
    first, second = (await waypost("status", "--json")).json["problems"]
    assert first.startswith(f"[rewriting] {aliases}:1: 'nonsense' has no address behind it; ")
    assert second.startswith(f"[recipients] {valid}: no address is in it")
    assert "after a start, all mail gets 451" in (await waypost("status")).err
    aliases.write_text("a@example.org b@example.org\n")
    valid.write_text("kim@example.org\n")
    assert (await waypost("status", "--json")).json["problems"] == []


# -- inject


def take(running: RunningControl) -> None:
    running.manager.answers["inject"] = lambda given: {"queue_id": given["envelope"][0]}


def data_of(running: RunningControl, queue_id: str) -> bytes:
    spool = Spool(Disk(), str(running.settings.spool_directory))
    _, size = spool.read_envelope(queue_id)
    return Path(spool.path(queue_id)).read_bytes()[DATA_AT : DATA_AT + size]


async def test_a_file_is_handed_in(running: RunningControl, waypost: Waypost, tmp_path: Path) -> None:
    take(running)
    file = tmp_path / "message"
    file.write_bytes(MESSAGE)
    said = await waypost("inject", str(file), "--to", "a@example.org", "--to", "b@example.org", "--not-before", "+1h")
    assert (said.status, said.err) == (0, "")
    data = data_of(running, said.out.strip())
    assert data.endswith(b"\r\nFrom: Me <me@example.org>\r\nSubject: x\r\n\r\n..dot\r\nlast\r\n")
    (request,) = running.manager.asked("inject")
    assert request.arguments["envelope"][2] == "me@example.org"
    assert [each[1] for each in request.arguments["envelope"][3]] == ["a@example.org", "b@example.org"]
    assert request.arguments["not_before"] > 1_700_000_000


class Stdin:
    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


async def test_stdin_is_handed_in_piece_by_piece(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(running)
    monkeypatch.setattr("mailcore.cli.inject.CHUNK_BYTES_MAX", 1000)
    monkeypatch.setattr("sys.stdin", Stdin(MESSAGE + b"\n" + b"line\n" * 5000))
    said = await waypost("inject", "--from", "", "--to", "a@example.org", "--json")
    data = data_of(running, said.json["queue_id"])
    assert data.endswith(b"\r\nlast\r\n" + b"line\r\n" * 5000)
    assert running.manager.asked("inject")[0].arguments["envelope"][2] == ""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"Subject: x\n\nFrom: body@example.org\n", "the header has no From address; set the sender with --from"),
        (b"From: a@example.org, b@example.org\n\nx\n", "the header has more than one From address"),
    ],
)
async def test_without_a_single_from_the_sender_must_be_given(
    waypost: Waypost, monkeypatch: pytest.MonkeyPatch, message: bytes, words: str
) -> None:
    monkeypatch.setattr("sys.stdin", Stdin(message))
    said = await waypost("inject", "--to", "a@example.org")
    assert said.status == 2
    assert words in said.err


async def test_what_cannot_be_taken_is_said_and_leaves_nothing(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, message, wrong in (
        (("--to", "nobody"), MESSAGE, "recipients"),
        (("--to", "a@example.org"), MESSAGE + b"x" * 200_000, "data"),
        (("--to", "a@example.org", "--from", "<>"), b"", "data"),
    ):
        monkeypatch.setattr("sys.stdin", Stdin(message))
        said = await waypost("inject", *arguments)
        assert said.status == 1
        assert other_words(Code.INVALID, wrong) in said.err
        await waypost("status")  # the server has seen the client go
    assert running.spool_files() == []
    said = await waypost("inject", "/no/such/file", "--to", "a@example.org")
    assert (said.status, said.err) == (1, "waypost: /no/such/file: No such file or directory\n")


# -- transports and destinations


async def test_values_are_checked_without_being_set(running: RunningControl, waypost: Waypost) -> None:
    said = await waypost("transport", "check", "smtp", "process_limit=5", "process_limit=0")
    assert said.status == 1
    allowed, wrong = said.out.splitlines()
    assert allowed == "process_limit=5: allowed"
    assert wrong.startswith("process_limit=0: ")
    assert wrong != "process_limit=0: allowed"
    said = await waypost("transport", "check", "global", "minimal_backoff_time=10", "--json")
    assert (said.status, said.json) == (0, {"faults": [None]})
    assert (await waypost("transport", "check", "smtp", "process_limit")).status == 2
    assert running.manager.asked("set") == running.manager.asked("transport_set") == []


async def test_transports_are_listed_with_the_origin_of_each_value(running: RunningControl, waypost: Waypost) -> None:
    answer = {
        "": {"message_active_limit": {"value": 20_000, "origin": "configuration"}},
        "smtp": {"process_limit": {"value": 7, "origin": "tuned"}},
    }
    running.manager.answers["transports"] = lambda _: {"scopes": answer}
    lines = (await waypost("transport", "list")).out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["global", "message_active_limit", "20000", "configuration"],
        ["smtp", "process_limit", "7", "tuned"],
    ]
    assert (await waypost("transport", "list", "smtp", "--json")).json == {"transports": {"smtp": answer["smtp"]}}
    said = await waypost("transport", "list", "nosuch")
    assert (said.status, "unknown transport 'nosuch'; configured: global, smtp" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("scope", "value", "operation", "arguments"),
    [
        ("smtp", "7", "transport_set", {"transport": "smtp", "parameter": "p", "value": 7}),
        ("smtp", "0.5", "transport_set", {"transport": "smtp", "parameter": "p", "value": 0.5}),
        ("smtp", "default", "transport_set", {"transport": "smtp", "parameter": "p", "value": None}),
        ("global", "7", "set", {"scope": "", "parameter": "p", "value": 7}),
        ("smtp:example.org", "7", "set", {"scope": "smtp:example.org", "parameter": "p", "value": 7}),
        ("smtp", "1/concurrency", "transport_set", {"transport": "smtp", "parameter": "p", "value": "1/concurrency"}),
    ],
)
async def test_a_parameter_is_set(
    running: RunningControl, waypost: Waypost, scope: str, value: str, operation: str, arguments: dict[str, Any]
) -> None:
    running.manager.answers[operation] = lambda _: {}
    said = await waypost("transport", "set", scope, "p", value, "--why", "busy")
    assert (said.status, said.out) == (0, f"{scope}: p = {value}\n")
    (request,) = running.manager.asked(operation)
    assert (request.arguments, request.why) == ({**arguments, "until": None, "for_s": None}, "busy")


async def test_destinations_are_listed_suspended_and_resumed(running: RunningControl, waypost: Waypost) -> None:
    running.manager.answers["destinations"] = lambda _: {
        "destinations": {"smtp:example.org": {"busy": 3, "window": 5}},
        "queued": {"smtp:example.org": 12, "": 1},
        "suspended": {"smtp:example.net": None},
        "states": {"smtp:example.org": [["delivering", None]], "smtp:example.net": [["suspended", None]]},
    }
    lines = [line.split() for line in (await waypost("destination", "list")).out.splitlines()]
    assert lines[1] == ["smtp:example.org", "12", "3", "5", "delivering"]
    assert lines[3] == ["smtp:example.net", "0", "0", "-", "suspended", "until", "it", "is", "resumed"]
    told = await waypost("destination", "list", "--json")
    assert [(item["destination"], item["recipients"], item["suspended"]) for item in told.items] == [
        ("smtp:example.org", 12, False), ("", 1, False), ("smtp:example.net", 0, True),
    ]  # fmt: skip
    assert told.items[0]["active"]["window"] == 5
    assert (told.end["complete"], told.end["more"]) == (True, False)
    assert (await waypost("destination", "list", "--json", "--limit", "2")).end["more"]
    assert told.end["unanswered"] == ""
    running.manager.answers["suspend"] = running.manager.answers["resume"] = lambda _: {}
    assert (await waypost("destination", "suspend", "smtp:a.example", "--until", "2030-01-01T00:00Z")).status == 0
    assert running.manager.asked("suspend")[0].arguments["until"] == 1_893_456_000
    said = await waypost("destination", "suspend", "smtp:a.example", "--why", "asked")
    assert said.out == "smtp:a.example is suspended until it is resumed\n"
    assert running.manager.asked("suspend")[1].arguments["until"] is None
    assert (await waypost("destination", "resume", "smtp:a.example")).out == "smtp:a.example is resumed\n"
    running.manager.answers["resume"] = lambda _: {"unanswered": "shard 2 at b: away"}
    said = await waypost("destination", "resume", "smtp:a.example")
    assert (said.status, said.out) == (1, "smtp:a.example is resumed\n")
    assert f"it may not be tried now everywhere: {OTHER_WORDS}" in said.err


async def test_a_list_of_destinations_names_the_shards_that_are_not_in_it(
    running: RunningControl, waypost: Waypost
) -> None:
    """law: silent-is-unknown."""
    running.manager.answers["destinations"] = lambda _: {
        "queued": {"smtp:example.org": 12},
        "unanswered": "shard 2 at b does not answer, and its mail is not counted: away",
    }
    told = await waypost("destination", "list", "--json")
    assert (told.status, told.end["complete"], told.end["unanswered"]) == (1, False, OTHER_WORDS)
    said = await waypost("destination", "list")
    assert said.status == 1
    assert f"incomplete: {OTHER_WORDS}" in said.err
    assert "smtp:example.org" in said.out


async def test_recipients_that_are_destinations_are_listed_with_their_mail(
    running: RunningControl, waypost: Waypost
) -> None:
    running.manager.answers["destinations"] = lambda _: {
        "destinations": {"smtp:a@example.org": {"busy": 1, "window": 5, "queued": 7}},
        "queued": {},
        "suspended": {},
        "states": {"smtp:a@example.org": [["delivering", None]]},
    }
    lines = [line.split() for line in (await waypost("destination", "list")).out.splitlines()]
    assert lines[1:] == [["smtp:a@example.org", "7", "1", "5", "delivering"]]


@pytest.mark.parametrize(
    ("until", "shown_until"), [(None, "until it is resumed"), (1_893_456_000.0, f"until {shown(1_893_456_000)}")]
)
async def test_a_resume_says_who_suspends_it_still(
    running: RunningControl, waypost: Waypost, until: float | None, shown_until: str
) -> None:
    still = {"value": until, "origin": "tuned", "scope": "smtp:.example"}
    running.manager.answers["resume"] = lambda _: {"suspended": still}
    said = await waypost("destination", "resume", "smtp:a.example")
    assert (said.status, said.out) == (1, f"smtp:a.example is still suspended, by smtp:.example, {shown_until}\n")
    said = await waypost("destination", "resume", "smtp:a.example", "--json")
    assert (said.status, said.json["suspended"]) == (1, still)


async def test_nothing_of_what_is_in_force_is_cut(running: RunningControl, waypost: Waypost) -> None:
    long = {"value": 4, "origin": "tuned", "scope": "smtp:.prov.example", "until": 1_893_456_000.0}
    running.manager.answers["transports"] = lambda _: {
        "scopes": {
            "smtp:mx.prov.example": {
                "destination_concurrency_failed_cohort_limit": long,
                "destination_rate_delay": {"value": 0, "origin": "configuration", "scope": "smtp"},
                "suspended_until": {"value": 1_893_456_000.0, "origin": "tuned", "scope": "smtp:.prov.example"},
            }
        }
    }
    out = (await waypost("destination", "show", "smtp:mx.prov.example")).out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    when = shown(1_893_456_000)
    assert f"destination_concurrency_failed_cohort_limit 4 tuned of smtp:.prov.example until {when}" in words
    assert f"suspended_until {when} tuned of smtp:.prov.example" in words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["slow", "smtp:a", "--to", "-50%", "--for", "5s"], "--to '-50%'; allowed: 1% to 99%"),
        (["slow", "smtp:a", "--to", "100%", "--for", "5s"], "--to '100%'; allowed: 1% to 99%"),
        (["set", "smtp:a", "p", "default", "--for", "5s"], "'default' removes a value and cannot have an end"),
        (["set", "smtp:a", "p", "default", "--until", "+5s"], "'default' removes a value and cannot have an end"),
    ],
)
async def test_what_makes_no_sense_of_a_destination_is_refused(
    running: RunningControl, waypost: Waypost, words: list[str], says: str
) -> None:
    said = await waypost("destination", *words)
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert says in said.err
    assert not running.manager.asked("set")


async def test_a_value_of_a_destination_is_set_for_a_time_and_taken_back(
    running: RunningControl, waypost: Waypost
) -> None:
    running.manager.answers["set"] = lambda _: {"value": 10, "until": 1_893_456_000.0}
    said = await waypost("destination", "set", "smtp:a.example", "p", "10", "--for", "2h", "--why", "asked")
    assert (said.status, said.out) == (0, f"smtp:a.example: p = 10 until {shown(1_893_456_000)}\n")
    said = await waypost("destination", "slow", "smtp:.example", "--to", "25%", "--until", "2030-01-01T00:00Z")
    assert said.out == f"smtp:.example: destination_concurrency_limit = 10 until {shown(1_893_456_000)}\n"
    running.manager.answers["set"] = lambda _: {"value": None}
    said = await waypost("destination", "unset", "smtp:a.example", "p")
    assert said.out == "smtp:a.example: p = default\n"
    asked = [request.arguments for request in running.manager.asked("set")]
    assert asked == [
        {"scope": "smtp:a.example", "parameter": "p", "value": 10, "until": None, "for_s": 7200},
        {
            "scope": "smtp:.example",
            "parameter": "destination_concurrency_limit",
            "value": "25%",
            "until": 1_893_456_000,
            "for_s": None,
        },
        {"scope": "smtp:a.example", "parameter": "p", "value": None, "until": None, "for_s": None},
    ]
    assert running.manager.asked("set")[0].why == "asked"


async def test_what_is_in_force_for_a_destination_is_shown_with_its_origin(
    running: RunningControl, waypost: Waypost
) -> None:
    answer = {
        "smtp:a.example": {
            "p": {"value": 4, "origin": "tuned", "until": 1_893_456_000.0},
            "q": {"value": False, "origin": "configuration", "scope": "smtp"},
        }
    }
    running.manager.answers["transports"] = lambda _: {"scopes": answer}
    lines = [line.split() for line in (await waypost("destination", "show", "smtp:a.example")).out.splitlines()]
    assert lines[1:] == [
        ["p", "4", "tuned", "until", *shown(1_893_456_000).split()],
        ["q", "no", "configuration", "of", "smtp"],
    ]
    assert (await waypost("destination", "show", "smtp:a.example", "--json")).json == answer
    assert running.manager.asked("transports")[0].arguments == {"destination": "smtp:a.example"}


# -- log


async def test_the_log_is_dumped_from_its_configuration_or_a_path(running: RunningControl, waypost: Waypost) -> None:
    message = envelope()
    running.write("incoming.0", message)
    by_configuration = await waypost("log", "dump", "--json")
    assert by_configuration.status == 0
    assert message.queue_id in by_configuration.out
    assert main(["log", "dump", "--json", str(running.settings.queue_directory / "incoming.0")]) == 0
    assert message.queue_id in waypost.read(0).out


@pytest.mark.parametrize(("arguments", "status"), [(["log"], 2), (["log", "--help"], 0), (["log", "explode"], 2)])
def test_the_log_has_one_command(arguments: list[str], status: int) -> None:
    assert main(arguments) == status
