"""Which directories carry the identity of this Waypost: none yet, all, one not any more while it runs."""

from __future__ import annotations

import os
from pathlib import Path

from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from mailcore.doctor.identity import look_at_identity
from mailcore.log.disk import Disk
from mailcore.queue.identity import NAME, establish
from tests.doctor.sample_host import children, found, running, sample_host, states


def started(host: Host) -> None:
    settings = host.settings
    directories = {name: str(path) for name, path in settings.identified_directories.items()}
    log, reports = str(settings.log_directory), str(settings.reports_directory)
    held = establish(Disk(), directories, log, reports, 1_795_000_000.0, lambda: os.urandom(16).hex())
    for lock in held.locks:
        os.close(lock)


def test_before_the_first_start_there_is_none(tmp_path: Path) -> None:
    (finding,) = look_at_identity(sample_host(tmp_path))
    assert (finding.what, finding.state) == ("home", State.GOOD)


def test_a_core_without_identities_is_to_be_started_again(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    with running() as process:
        children(host.settings, {"supervisor": process.pid})
        (finding,) = look_at_identity(sample_host(tmp_path))
    assert finding.state is State.WARN


def test_each_directory_is_named_with_its_identity(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    started(host)
    findings = list(look_at_identity(host))
    assert [each.what for each in findings] == ["home", "queue", "spool", "events"]
    assert states(findings) == {State.GOOD}
    assert len({each.figures["identity"] for each in findings}) == 1


def test_a_wrong_disk_is_found_also_while_waypost_runs(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    started(host)
    host.settings.spool_directory.rename(tmp_path / "away")
    host.settings.spool_directory.mkdir()
    finding = found(look_at_identity(host), "spool")
    assert finding.state is State.BAD
    assert "is empty" in finding.found
    assert finding.remedy.startswith("Mount the right disk")
    with running() as process:
        children(host.settings, {"supervisor": process.pid})
        finding = found(look_at_identity(sample_host(tmp_path)), "spool")
    assert finding.remedy.startswith("Do not restart Waypost")


def test_a_damaged_identity_is_a_finding_and_the_others_are_shown(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    started(host)
    for directory in host.settings.identified_directories.values():
        (directory / NAME).write_bytes(b"")
    assert states(look_at_identity(host)) == {State.BAD}
