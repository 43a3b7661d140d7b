"""Permissions: what everybody may read or change, what somebody else owns; and a closed home hides all below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.doctor import permissions
from mailcore.doctor.finding import State
from mailcore.doctor.host import Patient
from tests.doctor.sample_host import certificate, children, found, patient, running, states

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 54_321  # nobody on this host


def modes(examined: Patient, home: int, **others: int) -> None:
    for name, mode in others.items():
        (examined.settings.home / name).chmod(mode)
    examined.settings.home.chmod(home)


def test_as_the_core_makes_them(place: Path) -> None:
    examined = patient(place)
    modes(examined, 0o750)
    assert states(permissions.look(examined)) == {State.GOOD}


@pytest.mark.parametrize("name", ["queue", "spool"])
def test_everybody_may_read_mail(place: Path, name: str) -> None:
    examined = patient(place)
    modes(examined, 0o751, **{name: 0o755})
    finding = found(permissions.look(examined), name)
    assert finding.state is State.BAD
    assert "everybody on this host may read mail" in finding.found
    assert f"chmod o-rwx {examined.settings.home / name}" in finding.remedy


def test_a_closed_home_hides_what_is_open_in_it(place: Path) -> None:
    examined = patient(place)
    modes(examined, 0o750, queue=0o755, log=0o755)
    assert states(permissions.look(examined)) == {State.GOOD}


def test_everybody_may_read_who_writes_to_whom(place: Path) -> None:
    examined = patient(place)
    modes(examined, 0o751, log=0o755)
    assert found(permissions.look(examined), "log").state is State.WARN


@pytest.mark.parametrize("name", ["run", "log"])
def test_everybody_may_change_it(place: Path, name: str) -> None:
    examined = patient(place)
    modes(examined, 0o751, **{name: 0o777})
    finding = found(permissions.look(examined), name)
    assert finding.state is State.BAD
    assert "may change it" in finding.found


@as_root
def test_a_directory_is_somebody_elses(place: Path) -> None:
    examined = patient(place)
    for each in (examined.settings.home, examined.settings.queue_directory, examined.settings.log_directory):
        os.chown(each, STRANGER, STRANGER)
    os.chown(examined.settings.run_directory, STRANGER, STRANGER)
    modes(examined, 0o750)
    finding = found(permissions.look(examined), "spool")
    assert finding.state is State.BAD
    assert f"it is not {STRANGER}'s" in finding.found
    assert found(permissions.look(examined), "queue").state is State.GOOD


@as_root
def test_somebody_once_started_it_as_root(place: Path) -> None:
    examined = patient(place)
    settings = examined.settings
    lane = settings.queue_directory / "incoming.0"
    lane.mkdir()
    (lane / "0.seg").touch()
    for each in (settings.home, *settings.home.iterdir(), lane):
        os.chown(each, STRANGER, STRANGER)
    finding = found(permissions.look(examined), "queue")
    assert finding.state is State.BAD
    assert f"root owns 1 of its files, such as {lane / '0.seg'}" in finding.found
    assert f"chown -R --from=root {STRANGER} {settings.queue_directory}" in finding.remedy


@pytest.mark.parametrize(("home", "state"), [(0o751, State.BAD), (0o750, State.WARN)])
def test_everybody_may_change_what_is_tuned_or_a_lane(place: Path, home: int, state: State) -> None:
    """A directory above that is closed is not what it ought to hang on."""
    examined = patient(place)
    queue, tuned = examined.settings.queue_directory, examined.settings.home / "tuned.toml"
    for name in ("hold", "active"):
        (queue / name).mkdir(mode=0o755)
        (queue / name / "000.seg").touch(0o644)
    tuned.touch(0o640)
    modes(examined, home, queue=0o751)
    assert {each.what: each.state for each in permissions.look(examined) if each.what in ("lanes", "tuned values")} == {
        "lanes": State.GOOD, "tuned values": State.GOOD
    }  # fmt: skip
    (queue / "hold" / "111.seg").touch()
    (queue / "hold" / "111.seg").chmod(0o666)
    tuned.chmod(0o666)
    told = list(permissions.look(examined))
    assert found(told, "lanes").state is state
    assert str(queue / "hold" / "111.seg") in found(told, "lanes").found
    assert found(told, "lanes").remedy == f"Run: chmod -R o-w {queue}"
    assert found(told, "tuned values").state is state
    assert f"chmod o-w {tuned}" in found(told, "tuned values").remedy


@as_root
def test_a_lane_or_what_is_tuned_is_somebody_elses(place: Path) -> None:
    """A lane of arrivals may be a receiver's, and no other's; the exporter writes as Waypost's user."""
    examined = patient(place)
    settings = examined.settings
    lanes = [settings.queue_directory / name for name in ("hold", "incoming.0")]
    paths = [*lanes, settings.home / "tuned.toml", settings.events_directory]
    for path in (*lanes, settings.events_directory):
        path.mkdir(mode=0o750)
    paths[2].touch(0o640)
    for path in (settings.home, *settings.home.iterdir(), *lanes):
        os.chown(path, STRANGER, STRANGER)
    modes(examined, 0o750)
    assert states(permissions.look(examined)) == {State.GOOD}
    for path in paths:
        os.chown(path, STRANGER + 1, STRANGER)
    told = list(permissions.look(examined))
    assert {each.what for each in told if each.state is State.BAD} == {"lanes", "tuned values", "events"}
    assert found(told, "lanes").figures["files"] == [str(lanes[0])], "no receiver runs: the other may be one's"
    assert f"chown -R --from={STRANGER + 1} {STRANGER} {settings.queue_directory}" in found(told, "lanes").remedy
    assert f"chown {STRANGER} {paths[2]}" in found(told, "tuned values").remedy
    with running() as receiver:
        children(settings, {"receiver.0": receiver.pid})
        told = list(permissions.look(Patient.of(settings, examined.config)))
    assert found(told, "lanes").figures["files"] == [str(each) for each in lanes], "the receiver is root"


@pytest.mark.parametrize(("mode", "state"), [(0o600, State.GOOD), (0o640, State.GOOD), (0o644, State.BAD)])
def test_the_tls_key(place: Path, mode: int, state: State) -> None:
    pem = certificate(place, "mail.example.org", 90)
    pem.chmod(mode)
    examined = patient(place, f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"\n')
    finding = found(permissions.look(examined), "TLS key")
    assert finding.state is state
    assert finding.figures["mode"] == f"{mode:o}"


def test_the_portals_key(place: Path) -> None:
    examined = patient(place)
    portal = examined.settings.home / "portal"
    portal.mkdir(mode=0o755)
    (portal / "secret.key").write_text("secret")
    modes(examined, 0o751, **{"portal/secret.key": 0o644})
    assert found(permissions.look(examined), "portal's key").state is State.BAD
    portal.chmod(0o700)
    assert found(permissions.look(examined), "portal's key").state is State.GOOD


@pytest.mark.parametrize(
    ("url", "looked_at"), [("postgresql://waypost:secret@db/waypost", True), ("postgresql://waypost@db/waypost", False)]
)
def test_a_password_in_the_configuration(place: Path, url: str, looked_at: bool) -> None:
    examined = patient(place, f'[portal]\ndatabase_url = "{url}"\n')
    examined.config.chmod(0o644)
    told = [each for each in permissions.look(examined) if each.what == "configuration"]
    assert [each.state for each in told] == ([State.BAD] if looked_at else [])
    assert "secret" not in str(told)
