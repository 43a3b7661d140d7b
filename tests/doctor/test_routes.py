"""The doctor reads the files of [route_maps], also with the rights of those who route."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.doctor import live_files, routes
from mailcore.doctor.finding import State
from tests.doctor.sample_host import children, found, running, sample_host, states

TEXT = '[route_maps]\nroutes = ["{}"]\n'


def test_a_file_with_a_fault_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "transport"
    host = sample_host(tmp_path, TEXT.format(file))
    assert states(routes.look(host)) == {State.BAD}
    file.write_text("example.org nowhere\n")
    finding = found(routes.look(host), "routes")
    assert f"{file}:1: 'example.org' must name a transport" in finding.found
    assert "after a start, mail waits" in finding.found
    file.write_text("example.org relay\n")
    assert states(routes.look(host)) == {State.GOOD}


def test_without_files_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    assert states(routes.look(sample_host(tmp_path))) == {State.GOOD}


@pytest.mark.parametrize(
    ("name", "more", "state"),
    [
        ("manager", "", State.BAD),
        ("control", "", State.BAD),
        ("receiver.0", "", State.GOOD),
        ("receiver.0", '[recipients]\nknown_by = "next_hop"\n', State.BAD),
    ],
)
def test_a_file_that_a_process_cannot_read_is_bad(
    tmp_path: Path, name: str, more: str, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "transport"
    file.write_text("example.org relay\n")
    monkeypatch.setattr(live_files, "unreadable", lambda ids, paths: {str(file): "Permission denied"})
    text = TEXT.format(file) + more
    with running() as process:
        host = sample_host(tmp_path, text)
        children(host.settings, {name: process.pid})
        assert states(routes.look(sample_host(tmp_path, text))) == {state}
