"""Logins: a file of users with a fault, one that others can read, and listeners where no user can log in."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.doctor import logins
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from tests.doctor.sample_host import certificate, found, sample_host, states
from tests.receiver.logins import user, write_users


@pytest.fixture
def host(tmp_path: Path) -> Host:
    pem = certificate(tmp_path, "mail.example.org", 90)
    listener = '[[listener]]\naddress = "127.0.0.1:1465"\npurpose = "submission"\ntls = "implicit"\n'
    return sample_host(tmp_path, f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"\n{listener}')


def test_a_host_without_logins(tmp_path: Path) -> None:
    assert states(logins.look(sample_host(tmp_path))) == {State.GOOD}


def test_users_who_can_log_in(host: Host) -> None:
    (host.settings.queue_directory / "incoming.0").mkdir()
    write_users(host.settings.users_file, [user(), user("bob", enabled=False)])
    findings = list(logins.look(host))
    assert states(findings) == {State.GOOD}
    assert findings[0].found == "2, of which 1 enabled; offered: PLAIN LOGIN"


def test_no_user_can_log_in(host: Host) -> None:
    assert states(logins.look(host)) == {State.WARN}
    write_users(host.settings.users_file, [user(enabled=False)])
    assert "no user can log in on 127.0.0.1:1465" in found(logins.look(host), "users").found


def test_a_fault_names_its_line(host: Host) -> None:
    write_users(host.settings.users_file, [user()])
    with host.settings.users_file.open("a") as file:
        file.write("{}\n")
    finding = found(logins.look(host), "users")
    assert finding.state is State.BAD
    assert "users.jsonl:3: " in finding.found


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666])
def test_others_can_read_or_change_it(host: Host, mode: int) -> None:
    write_users(host.settings.users_file, [user()])
    host.settings.users_file.chmod(mode)
    assert found(logins.look(host), "users").state is State.BAD
