"""``waypost simulate``: scenario files and their faults, the live queue, tables, JSON, pictures."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.cli.simulate import chart
from mailcore.cli.simulate.reference import reference
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.test_tidy import ROOT, read

SMALL = """
[simulation]
parameters = "defaults"
[next_hops."*"]
transaction_s = "exponential(0.5)"
[messages.list]
recipients = { "smtp:a.example" = 400, "smtp:b.example" = 100 }
[mail.single]
per_s = 2
to_s = 30
destinations = { "smtp:a.example" = 1, "smtp:d{1..3}.example" = 1 }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def simulated(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    assert main(["simulate", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["simulate", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return str(err)


def test_a_scenario_is_simulated_and_told_as_tables(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(small)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("An estimate: ")
    assert "all mail finished after" in out
    assert "RECIPIENTS  MESSAGES" in out
    assert "smtp:a.example" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_same_seed_says_the_same(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again = simulated(capsys, small, "--seed", "5"), simulated(capsys, small, "--seed", "5")
    assert first == again
    assert first["seed"] == 5
    assert first != simulated(capsys, small, "--seed", "6")
    (run,) = first["runs"]
    outcome = run["outcome"]
    assert outcome["end"] == "drained"
    assert outcome["recipients_in"] == outcome["delivered"] == sum(outcome["series"]["delivered"])


def test_two_runs_stand_side_by_side(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = ["--set", "smtp:a.example:destination_concurrency_limit=1", "--compare"]
    before, after = (run["outcome"] for run in simulated(capsys, small, *narrow)["runs"])
    assert before["recipients_in"] == after["recipients_in"]
    assert after["drained_s"] > before["drained_s"]
    assert after["destinations"][0]["concurrency_max"] == 1
    assert main(["simulate", str(small), *narrow]) == 0
    out = capsys.readouterr().out
    assert "before" in out
    assert "after" in out
    assert max(map(len, out.splitlines())) <= 80
    (only,) = simulated(capsys, small, *narrow[:2])["runs"]
    assert only["outcome"] == after


@pytest.mark.parametrize("name", ["smtp:A.Example", "smtp:a.example:25", "smtp:a.example."])
def test_names_hold_in_whatever_spelling(small: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = simulated(capsys, small, "--set", f"{name}:destination_concurrency_limit=1")["runs"]
    assert run["outcome"]["destinations"][0]["concurrency_max"] == 1
    small.write_text(SMALL.replace("smtp:a.example", name) + f'[set."{name}"]\ndestination_concurrency_limit = 1\n')
    (spelled,) = simulated(capsys, small)["runs"]
    assert spelled["outcome"] == run["outcome"]


def test_time_ends_where_it_is_told_to(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = simulated(capsys, small, "--until", "5s")["runs"]
    assert (run["outcome"]["end"], run["outcome"]["simulated_s"]) == ("until_s", 5.0)
    assert run["outcome"]["waiting"] > 0


@pytest.mark.parametrize("compare", [False, True])
def test_the_picture_is_a_png_of_some_size(small: Path, tmp_path: Path, compare: bool) -> None:
    picture = tmp_path / "outcome.png"
    more = ["--set", "smtp:initial_destination_concurrency=1", "--compare"] if compare else []
    assert main(["simulate", str(small), "--chart", str(picture), *more]) == 0
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1300, 860)
    assert len(data) > 20_000


def test_a_picture_of_nothing_is_drawn_too(tmp_path: Path) -> None:
    empty, picture = tmp_path / "empty.toml", tmp_path / "empty.png"
    empty.write_text('[simulation]\nparameters = "defaults"\n')
    assert main(["simulate", str(empty), "--chart", str(picture)]) == 0
    assert picture.stat().st_size > 0


def test_a_picture_that_cannot_be_written_is_one_line_before_anything_is_simulated(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dir.png").mkdir()
    for path, says in ((tmp_path / "no" / "where.png", "there is no directory"), (tmp_path / "dir.png", "be written")):
        assert main(["simulate", str(small), "--chart", str(path)]) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert says in said.err


def test_when_drawing_fails_the_table_is_there(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(chart, "draw", full)
    assert main(["simulate", str(small), "--chart", str(tmp_path / "outcome.png")]) == 1
    said = capsys.readouterr()
    assert "Destinations with the most mail" in said.out
    assert said.err.count("\n") == 1


def test_no_drawing_library_is_imported_unless_a_picture_is_asked_for(small: Path) -> None:
    code = (
        "import sys; from mailcore.cli.main import main; "
        f"assert main(['simulate', {str(small)!r}]) == 0; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


# -- what is wrong


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to simulate"),
        (["--compare"], "--compare needs a changed parameter"),
        (["--chart", "x.jpg"], "--chart must be a file name ending in .png"),
        (["--seed", "-1"], "--seed must be 0 or greater (got -1)"),
        (["--seed", "x"], "invalid int value"),
        (["--until", "0"], "--until must be greater than 0"),
        (["--until", "soon"], "is not a duration"),
        (["--set", "x"], "--set must be SCOPE:PARAMETER=VALUE"),
        (["--set", "smtp:nonsense=1"], "nonsense"),
        (
            ["--set", "smtp:destination_concurrency_limit=0"],
            "destination_concurrency_limit must be between 1 and 10000 deliveries (got 0)",
        ),
        (
            ["--set", "smtp:destination_concurrency_positive_feedback=2/concurrency"],
            "must be x, x/concurrency or x/sqrt_concurrency, with x from 0 to 1 (got '2/concurrency')",
        ),
        (["--set", "global:maximal_backoff_time=1"], "backoff"),
    ],
    ids=str,
)
def test_a_wrong_word_is_one_line(small: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = [small] if words and words != ["--compare"] else []
    err = complaint(capsys, *scenario, *words, *(["--live"] if words == ["--compare"] else []))
    assert says in err
    assert err.count("\n") == 1


FAULTS = [
    ("[next_hop.x]\n", "1: next_hop is not a key here; did you mean 'next_hops'?"),
    ("\n[next_hops.smtp]\nproceses = 2\n", "3: [next_hops.smtp] proceses is not a key here; did you mean 'processes'?"),
    ("[next_hops.smtp]\nprocesses = -1\n", "2: [next_hops.smtp] processes must be between 0 and 1000000 connections (got -1)"),
    (
        "[next_hops.smtp]\nprocesses = 1.5\n",
        "2: [next_hops.smtp] processes must be a whole number between 0 and 1000000 connections (got 1.5)",
    ),
    (
        "[next_hops.smtp]\nprocesses = true\n",
        "2: [next_hops.smtp] processes must be a whole number between 0 and 1000000 connections (got true)",
    ),
    ("[next_hops.smtp]\nshared = 1\n", "2: [next_hops.smtp] shared must be true or false (got 1)"),
    (
        "[next_hops.smtp]\ntransaction_s = 'fast'\n",
        '2: [next_hops.smtp] transaction_s must be a distribution: 1.5, "constant(1.5)",',
    ),
    ("[next_hops.smtp]\nlisten_full = 'x'\n", '2: [next_hops.smtp] listen_full must be "dropped" or "accepted" (got \'x\')'),
    (
        "[next_hops.smtp]\ndead = [[5, 1]]\n",
        "2: [next_hops.smtp] dead must be [[from, to], ...] in seconds, each from before its to (got [[5, 1]])",
    ),
    (
        "[next_hops.smtp]\ndead = 5\n",
        "2: [next_hops.smtp] dead must be [[from, to], ...] in seconds, each from before its to (got 5)",
    ),
    (
        "[next_hops.smtp]\nservers = 1\nservers_bad = 2\n",
        "3: [next_hops.smtp] servers_bad must not exceed servers (got 2 of 1)",
    ),
    ("[next_hops]\nsmtp = 1\n", "2: [next_hops] smtp must be a section (got 1)"),
    ("[mail.x]\nper_s = 1\n", '1: [mail] x must have destinations: {"transport:next hop" = weight, ...}'),
    (
        "[mail.x]\ndestinations = {}\n",
        '2: [mail.x] destinations must be {"transport:next hop" = weight, ...}, with at least one destination (got {})',
    ),
    (
        '[mail.x]\ndestinations = { "nonsense" = 1 }\n',
        '2: [mail.x] destinations must have destinations of the form "transport:next hop" (got \'nonsense\')',
    ),
    ('[mail.x]\ndestinations = { "smtp:a" = -1 }\n', "2: [mail.x] destinations must have weights above 0 (got 'smtp:a' = -1)"),
    (
        '[mail.x]\ndestinations = { "smtp:x{1..9999999}" = 1 }\n',
        "2: [mail.x] destinations must have a range {1..N} with N up to 100000 (got 'smtp:x{1..9999999}')",
    ),
    (
        '[mail.x]\ndestinations = { "smtp:y{1-3}" = 1 }\n',
        "2: [mail.x] destinations must have at most one range, {1..N}, with N up to 100000 (got 'smtp:y{1-3}')",
    ),
    (
        '[mail.x]\ndestinations = { "smtp:z{a..b}" = 1 }\n',
        "2: [mail.x] destinations must have at most one range, {1..N}, with N up to 100000 (got 'smtp:z{a..b}')",
    ),
    (
        '[mail.x]\ndestinations = { "smtp:z{1..2}{1..2}" = 1 }\n',
        "2: [mail.x] destinations must have at most one range, {1..N}, with N up to 100000 (got 'smtp:z{1..2}{1..2}')",
    ),
    (
        '[mail.x]\nrecipients = "quantiles(0:1,1:1e9)"\ndestinations = { "smtp:a" = 1 }\n',
        "2: [mail.x] recipients must not exceed 1000000, the maximum recipients of a message (got 'quantiles(0:1,1:1e9)')",
    ),
    ("[messages.x]\nat_s = 1\n", '1: [messages] x must have recipients: {"transport:next hop" = recipients, ...}'),
    (
        '[messages.x]\nrecipients = { "smtp:a" = 0 }\n',
        "2: [messages.x] recipients must have between 1 and 1000000 recipients for each destination (got 'smtp:a' = 0)",
    ),
    (
        "[simulation]\nuntil_s = 0\n",
        "2: [simulation] until_s must be between 0.001 and 31536000 seconds, which is 365 days (got 0)",
    ),
    (
        "[simulation]\nuntil_s = nan\n",
        "2: [simulation] until_s must be between 0.001 and 31536000 seconds, which is 365 days (got nan)",
    ),
    (
        '[set."smtp"]\nnonsense = 1\n',
        '2: [set.smtp] nonsense is not a parameter of scope "smtp"; its parameters are delivery_slot_cost,',
    ),
    ("[set]\nsmtp = 1\n", "2: [set] smtp must be a section (got 1)"),
    ("[changes.a]\nat_s = 1\n", "1: [changes] a must have a parameter"),
    (
        '[changes.a]\nat_s = 5\nuntil_s = 1\nscope = "global"\nparameter = "message_active_limit"\nvalue = 50\n',
        "3: [changes.a] until_s must be after at_s (got 1.0)",
    ),
    (
        '[changes.a]\nat_s = 5\nscope = "smtp"\nparameter = "process_limit"\nvalue = 0\n',
        "5: [changes.a] value is refused: process_limit must be between 1 and 10000 deliveries (got 0)",
    ),
    ("[set\n", " not valid TOML: Expected ']' at the end of a table declaration (at line 1, column 5)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_of_a_scenario_names_its_line_and_what_is_allowed(
    text: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    err = complaint(capsys, path)
    assert says in err
    assert err.startswith(f"waypost: {path}:")


def test_all_faults_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[next_hops.smtp]\nprocesses = -1\nlisten = -1\n[simulation]\nsed = 1\n")
    assert [line.split(":")[2] for line in complaint(capsys, path).splitlines()] == ["2", "3", "5"]


def test_a_scenario_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read: No such file" in complaint(capsys, tmp_path / "none.toml")


# -- with a configuration, and live


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_parameters_begin_at_the_configuration_and_what_is_tuned(
    running: RunningControl, waypost: Waypost, small: Path
) -> None:
    write(small, SMALL.replace('parameters = "defaults"', ""))
    before = (await waypost("simulate", str(small), "--json")).json
    (running.settings.home / "tuned.toml").write_text('["smtp:a.example"]\ndestination_concurrency_limit = 1\n')
    after = (await waypost("simulate", str(small), "--json")).json
    assert [run["runs"][0]["outcome"]["destinations"][0]["concurrency_max"] > 1 for run in (before, after)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[mail.x]\ndestinations = { "nosuch:x" = 1 }\n', []),
        ('[messages.x]\nrecipients = { "nosuch:x" = 1 }\n', []),
        ("[next_hops.nosuch]\nprocesses = 1\n", []),
        ('[set."nosuch:x"]\ndestination_rate_delay = 1\n', []),
        ("", ["--set", "nosuch:x:destination_rate_delay=1"]),
    ],
)
async def test_a_transport_that_is_not_there_is_refused(
    running: RunningControl, waypost: Waypost, small: Path, text: str, words: list[str]
) -> None:
    write(small, text)
    said = await waypost("simulate", str(small), *words)
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "must begin with a transport; the transports are " in said.err


async def test_a_damaged_tuned_file_is_said_and_left_alone(
    running: RunningControl, waypost: Waypost, small: Path
) -> None:
    write(small, SMALL.replace('parameters = "defaults"', ""))
    tuned = running.settings.home / "tuned.toml"
    tuned.write_text("nonsense")
    said = await waypost("simulate", str(small))
    assert (said.status, said.err.startswith(f"waypost: {tuned}: ")) == (2, True)
    assert tuned.read_text() == "nonsense"


async def test_the_live_queue_is_simulated_without_a_scenario(running: RunningControl, waypost: Waypost) -> None:
    running.manager.answers["size"] = lambda _: {
        "messages": 30, "recipients": 40,
        "lanes": {"incoming.0": {"messages": 20, "recipients": 30}, "retry.300": {"messages": 10, "recipients": 10}},
        "destinations": {"smtp:a.example": 40},
    }  # fmt: skip
    said = await waypost("simulate", "--live", "--json")
    outcome = said.json["runs"][0]["outcome"]
    assert (outcome["messages_in"], outcome["recipients_in"], outcome["delivered"]) == (30, 40, 40)
    assert outcome["drained_s"] == outcome["simulated_s"]
    assert said.err == ""


async def test_mail_of_a_shard_that_does_not_answer_is_named_as_not_simulated(
    running: RunningControl, waypost: Waypost
) -> None:
    """law: silent-is-unknown."""
    running.manager.answers["size"] = lambda _: {
        "messages": 3, "recipients": 3, "lanes": {"incoming.0": {"messages": 3, "recipients": 3}},
        "destinations": {"smtp:a.example": 3}, "unanswered": "shard 2 at b does not answer",
    }  # fmt: skip
    said = await waypost("simulate", "--live")
    assert "incomplete: only mail of the shards that answer is simulated: " in said.err
    assert said.status == 1


async def test_without_the_appliance_there_is_no_live_queue(running: RunningControl, waypost: Waypost) -> None:
    await running.lose_the_manager()
    said = await waypost("simulate", "--live")
    assert said.status in (1, 3)
    assert said.err.count("\n") == 1


# -- the pages


def test_the_page_of_keys_is_made_from_their_definitions() -> None:
    assert read("docs/scenario.md") == reference(), "python -m mailcore.cli.simulate.reference > docs/scenario.md"


def test_the_example_of_the_page_runs_and_its_comparison_shows_what_it_is_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gentle = [f"smtp:destination_concurrency_{sign}_feedback=1/concurrency" for sign in ("positive", "negative")]
    words = [word for each in gentle for word in ("--set", each)]
    before, after = (
        run["outcome"] for run in simulated(capsys, ROOT / "docs/simulate.toml", *words, "--compare")["runs"]
    )
    assert before["end"] == after["end"] == "drained"
    assert after["deferrals"] < before["deferrals"] / 2


def test_every_scenario_section_of_the_page_is_one_of_the_file() -> None:
    for section in ("simulation", "deliverer", "next_hops", "mail", "messages", "set", "changes"):
        assert f"[{section}" in read("docs/scenario.md")
