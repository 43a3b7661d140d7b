"""The suite of benchmarks: its page says what was reached, missed and not measured, and a part that fails ends no other."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bench.__main__ import main, read_part, run_part
from bench.mta import Postfix
from bench.suite import PARTS, WANTED, Part, Scale, Wanted
from bench.suite_page import Done, page
from bench.suite_rows import Row, relay_rows

ABOUT = [("cores", "2")]
BY_NAME = {part.name: part for part in PARTS}


def done(name: str, *rows: Row, error: str = "") -> Done:
    return Done(BY_NAME[name], Scale.BRIEF, "python -m bench.relay", 0.0, 1.0, rows, error)


def line_of(text: str, begins: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {begins} |")]
    return line


def wanted(what: str) -> Wanted:
    (found,) = [each for each in WANTED if each.what == what]
    return found


def relayed(ours: float, peer: float, syncs: float | None = None, cpu_ratio: float | None = None) -> Row:
    return Row("persistent", "messages a second", ours, peer, syncs=syncs, cpu_ratio=cpu_ratio)


def test_a_figure_that_is_missed_says_by_how_much() -> None:
    text = page([done("relay-4k", relayed(2800.0, 500.0, 0.25, 0.3))], WANTED, ABOUT)
    assert line_of(text, "4 kB, persistent") == (
        "| 4 kB, persistent | ≥ 7 x Postfix's rate | 5.60 x Postfix's rate | **20%** |"
    )
    assert line_of(text, "CPU a message, 4 kB, persistent").endswith("| 0.30 x Postfix's | **50%** |")


def test_a_figure_that_is_reached_says_so() -> None:
    text = page([done("relay-4k", relayed(3500.0, 500.0, 0.25, 0.2))], WANTED, ABOUT)
    assert line_of(text, "4 kB, persistent").endswith("| 7.00 x Postfix's rate | reached |")
    assert line_of(text, "syncs, 4 kB, persistent").endswith("| 0.25 a message | reached |")
    assert line_of(text, "CPU a message, 4 kB, persistent").endswith("| reached |")


def test_one_of_two_goals_is_enough() -> None:
    copied = Row("persistent, as a share of a plain copy", "of its rate", 0.7)
    text = page([done("relay-1m", relayed(120.0, 100.0), copied)], WANTED, ABOUT)
    assert line_of(text, "1 MB, persistent").endswith("| reached |")
    text = page([done("relay-1m", relayed(120.0, 100.0), dataclasses.replace(copied, ours=0.3))], WANTED, ABOUT)
    assert line_of(text, "1 MB, persistent").endswith("| **40%** |")


def test_what_source_and_sink_do_without_a_relay_is_no_plain_copy() -> None:
    runs = [
        {"relay": relay, "mode": mode, "messages": 100, "seconds": seconds, "cpu_ms": 1.0, "foreign": 0.0}
        for relay, mode, seconds in (
            ("waypost", "persistent", 1.0), ("postfix", "persistent", 2.0), ("direct", "persistent", 0.5), ("copy", "", 0.1),
        )
    ]  # fmt: skip
    rows = relay_rows({"runs": runs, "syncs": {}})
    alone = next(row for row in rows if "without a relay" in row.what)
    assert (alone.ours, alone.peer) == (0.5, 0.25)
    text = page([Done(BY_NAME["relay-1m"], Scale.BRIEF, "", 0.0, 1.0, tuple(rows), "")], WANTED, ABOUT)
    assert "0.10 of a plain copy's rate" in line_of(text, "1 MB, persistent")


def test_a_figure_of_a_part_that_did_not_run_or_failed_is_not_measured() -> None:
    text = page([done("storm", error="it ended with 1: no disk")], WANTED, ABOUT)
    assert line_of(text, "all mail deferred") == "| all mail deferred | ≥ 5 x Postfix's rate | not measured |  |"
    assert line_of(text, "1 kB, persistent").endswith("| not measured |  |")
    assert "**This part has no result**: it ended with 1: no disk" in text


def test_a_shorter_time_is_better() -> None:
    p99 = Row("p99, half its own, at 1 000 and 300 a second", "ms", 5.0, 20.0, more_is_better=False)
    assert p99.ratio == 4.0
    (goal,) = wanted("p99 from MAIL to the next hop, each at half of its own rate").goals
    assert goal.value({"half-load": [p99]}) == 4.0


def test_a_part_that_fails_says_why_and_keeps_it(tmp_path: Path) -> None:
    part = dataclasses.replace(BY_NAME["restart"], arguments=dict.fromkeys(Scale, "--no-such-option"))
    result = run_part(part, Scale.SHORT, tmp_path, tmp_path)
    assert "it ended with 2" in result.error
    assert "--no-such-option" in result.error
    assert read_part(part, tmp_path) == result


def test_results_that_a_part_itself_calls_wrong_are_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "bench"
    package.mkdir()
    (package / "wrong.py").write_text(
        "import sys\nopen(sys.argv[sys.argv.index('--json') + 1], 'w').write('{}')\nprint('WRONG ours: 1, made 2')\n"
    )
    monkeypatch.setattr("bench.__main__.ROOT", tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    part = dataclasses.replace(BY_NAME["restart"], module="wrong", rows=lambda results: [])
    assert "wrong: WRONG ours: 1, made 2" in run_part(part, Scale.SHORT, tmp_path, tmp_path).error


def processes_naming(text: str) -> list[str]:
    """Command lines of processes that name something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        found += [words] if text in words else []
    return found


def test_a_part_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    part: Part = dataclasses.replace(BY_NAME["restart"], limits_s=dict.fromkeys(Scale, 6.0))
    result = run_part(part, Scale.SHORT, tmp_path, tmp_path)
    assert "longer than 6 s" in result.error
    assert processes_naming(f"{tmp_path}/bench-restart-") == []


def test_the_page_says_how_fast_the_processor_was() -> None:
    parts = [
        dataclasses.replace(done(name), loops_s=loops) for name, loops in (("storm", (0.06, 0.09)), ("drain", (0.07,)))
    ]
    assert line_of(page(parts, WANTED, ABOUT), "a fixed loop of the processor").endswith(
        "| 70 ms (60 to 90) before and after the parts |"
    )


def test_results_that_lack_something_are_no_result(tmp_path: Path) -> None:
    kept = {"scale": "short", "command": "", "began_at": 0.0, "seconds": 1.0, "error": ""}
    (tmp_path / "storm.json").write_text(json.dumps(kept | {"results": {"runs": []}}))
    result = read_part(BY_NAME["storm"], tmp_path)
    assert result is not None
    assert "lack something" in result.error


def test_no_part_begins_when_the_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    assert main(["--short", "--minutes", "0.1", "--page", str(path), "--results", str(tmp_path)]) == 1
    assert list(tmp_path.glob("*.json")) == []
    assert line_of(path.read_text(), "all mail deferred").endswith("| not measured |  |")


def test_a_part_gets_the_time_that_is_left_at_most(tmp_path: Path) -> None:
    assert "longer than 1 s" in run_part(BY_NAME["restart"], Scale.SHORT, tmp_path, tmp_path, left_s=1.0).error


def test_a_part_runs_and_stands_on_the_page(tmp_path: Path) -> None:
    if missing := Postfix.missing():
        pytest.skip(missing)
    path = tmp_path / "page.md"
    assert main(["--short", "--only", "drain", "--page", str(path)]) == 0
    text = path.read_text()
    assert "no figure here is a result" in text
    assert "| Postfix | 3." in text
    assert "## Deferred mail leaves after a flush" in text
    assert "| deferred mail (messages a second) |" in text
    assert "not measured" not in line_of(text, "drain after a flush")
    assert "not measured" in line_of(text, "all mail deferred")
