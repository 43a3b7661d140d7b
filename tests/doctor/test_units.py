"""Where the doctor looks for the services of an installation: those of the playbook, and those of the Debian package."""

from __future__ import annotations

from pathlib import Path

from tests.doctor.sample_host import sample_host


def test_units_of_the_package_are_found_and_those_of_the_playbook_come_first(tmp_path: Path) -> None:
    own, packaged = tmp_path / "own", tmp_path / "packaged"
    own.mkdir()
    packaged.mkdir()
    host = sample_host(tmp_path, units=own, packaged_units=packaged)
    assert not host.has_unit("waypost-portal")
    (packaged / "waypost-portal.service").touch()
    assert host.unit("waypost-portal") == packaged / "waypost-portal.service"
    assert host.has_unit("waypost-portal")
    (own / "waypost-portal.service").touch()
    assert host.unit("waypost-portal") == own / "waypost-portal.service"
