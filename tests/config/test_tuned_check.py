"""Every program that reads tuned.toml reports the keys that are not in force, and none of them stops mail."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.config.tuned_check import ignored
from mailcore.doctor import balance
from mailcore.doctor.finding import State
from tests.doctor.sample_host import sample_host
from tests.manager.manager_in_process import Home

GOOD = """\
[""]
minimal_backoff_time = 20
[smtp]
process_limit = 7
["smtp:example.org"]
destination_rate_delay = { lasting = 1, value = 2, until = 1795000000.0 }
suspended_until = inf
"""
# The text, the line at fault, and a name that the sentence must have.
FAULTS = [
    ('["smtp:example.org"]\ndestination_concurency_limit = 3', 2, "'destination_concurrency_limit'"),
    ("[smtp]\nprocess_limt = 3", 2, "'process_limit'"),
    ('[""]\nminimal_backof_time = 3', 2, "'minimal_backoff_time'"),
    ('[""]\nzzz = { value = 3, until = 1 }', 2, "minimal_backoff_time"),
    ('["smtp:example.org"]\nprocess_limit = 3', 2, "process_limit"),
    ('["smpt:example.org"]\ndestination_rate_delay = 3', 1, "'smtp'"),
    ("[lmtp]\nprocess_limit = 3", 1, "lmtp"),
    ('["smtp:EXAMPLE.org"]\ndestination_rate_delay = 3', 1, "'smtp:example.org'"),
    ('["smtp:*"]\ndestination_rate_delay = 3', 1, "smtp:*"),
    ("[smtp]\n\nprocess_limit = -3", 3, "process_limit"),
    ('[smtp]\nprocess_limit = { lasting = 7, value = "many", until = 1 }', 2, "process_limit"),
]


def settings_of(directory: Path, text: str) -> Settings:
    config = directory / "waypost.toml"
    config.write_text('home = "home"\n')
    (directory / "home").mkdir(exist_ok=True)
    (directory / "home" / "tuned.toml").write_text(text)
    return load(config)


def test_what_is_in_force_is_no_fault(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, GOOD)
    assert ignored(settings.home / "tuned.toml", settings) == []
    assert ignored(settings.home / "absent.toml", settings) == []


@pytest.mark.parametrize(("text", "line", "name"), FAULTS)
def test_what_is_not_in_force_is_told_with_its_line_and_the_nearest_name(
    tmp_path: Path, text: str, line: int, name: str
) -> None:
    settings = settings_of(tmp_path, text)
    (fault,) = ignored(settings.home / "tuned.toml", settings)
    assert fault.line == line
    assert name in str(fault)


def test_check_config_tells_and_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path, f"{GOOD}destination_rate_dely = 3\n")
    config = str(tmp_path / "waypost.toml")
    place = f"{settings.home}/tuned.toml:8: "
    assert main(["check-config", "--config", config]) == 0
    output = capsys.readouterr()
    assert place in output.err
    assert "'destination_rate_delay'" in output.err
    assert "process_limit = 100" in output.out  # the settings, as without it
    assert main(["check-config", "--config", config, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"]
    (told,) = answer["tuned_faults"]
    assert told.startswith(place)


def test_check_config_tells_of_a_damaged_file_and_leaves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(tmp_path, "[smtp")
    assert main(["check-config", "--config", str(tmp_path / "waypost.toml")]) == 0
    assert str(settings.home / "tuned.toml") in capsys.readouterr().err
    assert (settings.home / "tuned.toml").read_text() == "[smtp"


def test_the_doctor_tells(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    path = host.settings.home / "tuned.toml"
    path.write_text(GOOD)
    assert [each for each in balance.look(host) if "tuned" in each.what] == []
    for text in (f"{GOOD}destination_rate_dely = 3\n", "[smtp"):
        path.write_text(text)
        (finding,) = [each for each in balance.look(host) if "tuned" in each.what]
        assert finding.state is State.WARN
        assert str(path) in finding.found
        assert finding.remedy


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    home = Home(tmp_path)
    yield home
    home.kill()


async def test_the_start_tells_and_puts_the_others_in_force(home: Home) -> None:
    path = home.path / "tuned.toml"
    path.write_text("[smtp]\nprocess_limit = 7\nprocess_limt = 8\nminimum_delivery_slots = -1\n")
    manager = home.start()
    assert manager.context.scheduler.get("smtp", "process_limit") == 7
    manager.log.flush()
    lines = [json.loads(line) for line in (home.path / "log" / "mail.jsonl").read_text().splitlines()]
    told = {line["place"]: line["what"] for line in lines if line["event"] == "tuned_ignored"}
    assert sorted(told) == [f"{path}:3", f"{path}:4"]
    assert "'process_limit'" in told[f"{path}:3"]
    assert not [line for line in lines if line["event"] == "failed"]
    manager.overrides.tuned.save()
    assert "process_limt = 8" in path.read_text()  # left alone
