"""Settings that come into force while a process of the portal runs: read again then, and not from a file with a fault."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from appliance.common.current_settings import LOOK_S, CurrentSettings
from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Settings
from mailcore.supervisor.child import SETTINGS_NAME, store_settings


class Stage:
    """Settings of a file, and a supervisor that stores those that come into force."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "waypost.toml"
        self.write("first.example")
        self.first = load(self.path)
        self.first.run_directory.mkdir(parents=True)
        self.at = 0.0
        self.reads = 0
        self.current = CurrentSettings(lambda: self.first, self.read, lambda: self.at)

    def write(self, domain: str) -> None:
        self.path.write_text(f'home = "home"\n[alerts]\nrecipients = ["a@{domain}"]\n')

    def read(self) -> Settings:
        self.reads += 1
        return load(self.path)

    def comes_into_force(self) -> None:
        store_settings(load(self.path), self.first.run_directory / SETTINGS_NAME)

    def recipients(self) -> tuple[str, ...]:
        self.at += LOOK_S
        return self.current().alerts.recipients


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_settings_that_come_into_force_are_read_again_and_only_then(stage: Stage) -> None:
    assert stage.recipients() == ("a@first.example",)
    stage.write("second.example")
    assert stage.recipients() == ("a@first.example",), "the file was edited, and is not in force"
    assert stage.reads == 0
    stage.comes_into_force()
    assert [stage.recipients() for _ in range(3)] == [("a@second.example",)] * 3
    assert stage.reads == 1
    stage.write("third.example")
    stage.comes_into_force()
    assert stage.recipients() == ("a@third.example",)


def test_what_came_into_force_between_the_start_and_the_first_look_is_seen(stage: Stage) -> None:
    stage.write("second.example")
    stage.comes_into_force()
    assert stage.recipients() == ("a@second.example",)


def test_it_looks_no_more_often_than_it_says(stage: Stage) -> None:
    stage.recipients()
    stage.write("second.example")
    stage.comes_into_force()
    assert stage.current().alerts.recipients == ("a@first.example",)
    assert stage.recipients() == ("a@second.example",)


def test_files_with_a_fault_leave_what_was_before(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.write("second.example")
    stage.comes_into_force()
    stage.recipients()

    def refused() -> Settings:
        raise ConfigError("no")

    monkeypatch.setattr(stage.current, "_read", refused)
    third = dataclasses.replace(load(stage.path), run_directory=stage.first.run_directory / "other")
    store_settings(third, stage.first.run_directory / SETTINGS_NAME)
    assert stage.recipients() == ("a@second.example",)
