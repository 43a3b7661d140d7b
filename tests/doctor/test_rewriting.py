"""The doctor reads the files of [rewriting], also with the rights of those who take mail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.doctor import as_user, live_files, rewriting
from mailcore.doctor.finding import State
from tests.doctor.sample_host import children, found, running, sample_host, states

TEXT = '[rewriting]\nvirtual_alias_maps = ["{}"]\n'


def test_a_file_with_a_fault_is_bad(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    host = sample_host(tmp_path, TEXT.format(aliases))
    assert states(rewriting.look(host)) == {State.BAD}
    aliases.write_text("team@example.org\n")
    finding = found(rewriting.look(host), "rewriting")
    assert finding.state is State.BAD
    assert f"{aliases}:1: " in finding.found
    assert "451 after a restart" in finding.found
    aliases.write_text("team@example.org kim@example.org\n")
    assert states(rewriting.look(host)) == {State.GOOD}


def test_without_files_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert states(rewriting.look(sample_host(tmp_path))) == {State.GOOD}


@pytest.mark.parametrize("name", ["receiver.0", "control"])
def test_a_file_that_a_process_cannot_read_is_bad(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("team@example.org kim@example.org\n")
    monkeypatch.setattr(live_files, "unreadable", lambda ids, paths: {str(aliases): "Permission denied"})
    text = TEXT.format(aliases)
    with running() as process:
        host = sample_host(tmp_path, text)
        children(host.settings, {name: process.pid})
        host = sample_host(tmp_path, text)
        assert as_user.ids_of(process.pid) is not None
        finding = found(rewriting.look(host), "rewriting")
        assert finding.state is State.BAD
        assert f"{aliases}: the user" in finding.found
        assert os.access(aliases, os.R_OK)
