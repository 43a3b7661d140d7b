"""Permissions: what everybody may read or change, what somebody else owns; and a closed home hides all below it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mailcore.doctor import permissions
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from tests.doctor.sample_host import certificate, children, found, running, sample_host, states

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
STRANGER = 54_321  # nobody on this host


def modes(host: Host, home: int, **others: int) -> None:
    for name, mode in others.items():
        (host.settings.home / name).chmod(mode)
    host.settings.home.chmod(home)


def test_as_the_core_makes_them(place: Path) -> None:
    host = sample_host(place)
    modes(host, 0o750)
    assert states(permissions.look(host)) == {State.GOOD}


@pytest.mark.parametrize("name", ["queue", "spool"])
def test_everybody_may_read_mail(place: Path, name: str) -> None:
    host = sample_host(place)
    modes(host, 0o751, **{name: 0o755})
    finding = found(permissions.look(host), name)
    assert finding.state is State.BAD
    assert "every local user can read mail" in finding.found
    assert f"chmod o-rwx {host.settings.home / name}" in finding.remedy


def test_a_closed_home_hides_what_is_open_in_it(place: Path) -> None:
    host = sample_host(place)
    modes(host, 0o750, queue=0o755, log=0o755)
    assert states(permissions.look(host)) == {State.GOOD}


def test_everybody_may_read_who_writes_to_whom(place: Path) -> None:
    host = sample_host(place)
    modes(host, 0o751, log=0o755)
    assert found(permissions.look(host), "log").state is State.WARN


@pytest.mark.parametrize("name", ["run", "log"])
def test_everybody_may_change_it(place: Path, name: str) -> None:
    host = sample_host(place)
    modes(host, 0o751, **{name: 0o777})
    finding = found(permissions.look(host), name)
    assert finding.state is State.BAD
    assert "every local user can change it" in finding.found


@as_root
def test_a_directory_is_somebody_elses(place: Path) -> None:
    host = sample_host(place)
    for each in (host.settings.home, host.settings.queue_directory, host.settings.log_directory):
        os.chown(each, STRANGER, STRANGER)
    os.chown(host.settings.run_directory, STRANGER, STRANGER)
    modes(host, 0o750)
    finding = found(permissions.look(host), "spool")
    assert finding.state is State.BAD
    assert f"wrong owner, Waypost runs as {STRANGER}" in finding.found
    assert found(permissions.look(host), "queue").state is State.GOOD


@as_root
def test_somebody_once_started_it_as_root(place: Path) -> None:
    host = sample_host(place)
    settings = host.settings
    lane = settings.queue_directory / "incoming.0"
    lane.mkdir()
    (lane / "0.seg").touch()
    for each in (settings.home, *settings.home.iterdir(), lane):
        os.chown(each, STRANGER, STRANGER)
    finding = found(permissions.look(host), "queue")
    assert finding.state is State.BAD
    assert f"root owns 1 file in it, such as {lane / '0.seg'}" in finding.found
    assert f"chown -R --from=root {STRANGER} {settings.queue_directory}" in finding.remedy


@pytest.mark.parametrize(("home", "state"), [(0o751, State.BAD), (0o750, State.WARN)])
def test_everybody_may_change_what_is_tuned_or_a_lane(place: Path, home: int, state: State) -> None:
    """A directory above that is closed is not what it ought to hang on."""
    host = sample_host(place)
    queue, tuned = host.settings.queue_directory, host.settings.home / "tuned.toml"
    for name in ("hold", "active"):
        (queue / name).mkdir(mode=0o755)
        (queue / name / "000.seg").touch(0o644)
    tuned.touch(0o640)
    modes(host, home, queue=0o751)
    assert {each.what: each.state for each in permissions.look(host) if each.what in ("lanes", "tuned values")} == {
        "lanes": State.GOOD, "tuned values": State.GOOD
    }  # fmt: skip
    (queue / "hold" / "111.seg").touch()
    (queue / "hold" / "111.seg").chmod(0o666)
    tuned.chmod(0o666)
    told = list(permissions.look(host))
    assert found(told, "lanes").state is state
    assert str(queue / "hold" / "111.seg") in found(told, "lanes").found
    assert found(told, "lanes").remedy == f"Run: chmod -R o-w {queue}"
    assert found(told, "tuned values").state is state
    assert f"chmod o-w {tuned}" in found(told, "tuned values").remedy


@as_root
def test_a_lane_or_what_is_tuned_is_somebody_elses(place: Path) -> None:
    """A lane of arrivals may be a receiver's, and no other's; the exporter writes as Waypost's user."""
    host = sample_host(place)
    settings = host.settings
    lanes = [settings.queue_directory / name for name in ("hold", "incoming.0")]
    paths = [*lanes, settings.home / "tuned.toml", settings.events_directory]
    for path in (*lanes, settings.events_directory):
        path.mkdir(mode=0o750)
    paths[2].touch(0o640)
    for path in (settings.home, *settings.home.iterdir(), *lanes):
        os.chown(path, STRANGER, STRANGER)
    modes(host, 0o750)
    assert states(permissions.look(host)) == {State.GOOD}
    for path in paths:
        os.chown(path, STRANGER + 1, STRANGER)
    told = list(permissions.look(host))
    assert {each.what for each in told if each.state is State.BAD} == {"lanes", "tuned values", "events"}
    assert found(told, "lanes").figures["files"] == [str(lanes[0])], "no receiver runs: the other may be one's"
    assert f"chown -R --from={STRANGER + 1} {STRANGER} {settings.queue_directory}" in found(told, "lanes").remedy
    assert f"chown {STRANGER} {paths[2]}" in found(told, "tuned values").remedy
    with running() as receiver:
        children(settings, {"receiver.0": receiver.pid})
        told = list(permissions.look(Host.of(settings, host.config)))
    assert found(told, "lanes").figures["files"] == [str(each) for each in lanes], "the receiver is root"


@pytest.mark.parametrize(("mode", "state"), [(0o600, State.GOOD), (0o640, State.GOOD), (0o644, State.BAD)])
def test_the_tls_key(place: Path, mode: int, state: State) -> None:
    pem = certificate(place, "mail.example.org", 90)
    pem.chmod(mode)
    host = sample_host(place, f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"\n')
    finding = found(permissions.look(host), "TLS key")
    assert finding.state is state
    assert finding.figures["mode"] == f"{mode:o}"


def test_the_portals_key(place: Path) -> None:
    host = sample_host(place)
    portal = host.settings.home / "portal"
    portal.mkdir(mode=0o755)
    (portal / "secret.key").write_text("secret")
    modes(host, 0o751, **{"portal/secret.key": 0o644})
    assert found(permissions.look(host), "portal's key").state is State.BAD
    portal.chmod(0o700)
    assert found(permissions.look(host), "portal's key").state is State.GOOD


@pytest.mark.parametrize(
    ("url", "looked_at"), [("postgresql://waypost:secret@db/waypost", True), ("postgresql://waypost@db/waypost", False)]
)
def test_a_password_in_the_configuration(place: Path, url: str, looked_at: bool) -> None:
    host = sample_host(place, f'[portal]\ndatabase_url = "{url}"\n')
    host.config.chmod(0o644)
    told = [each for each in permissions.look(host) if each.what == "configuration"]
    assert [each.state for each in told] == ([State.BAD] if looked_at else [])
    assert "secret" not in str(told)
