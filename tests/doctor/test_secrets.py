"""Keys that root can read and the deliverers' user cannot: mail waits, and each look by root said that all is well."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.dkim.key import new_key
from mailcore.doctor import secrets
from mailcore.doctor.as_user import ids_of, unreadable
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from tests.doctor.sample_host import NOBODY, found, of_nobody, open_to_all, sample_host, states

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with the rights of another user")


def host_with_key(directory: Path) -> tuple[Host, Path]:
    key = directory / "key.pem"
    key.write_bytes(new_key("ed25519").pem)
    key.chmod(0o640)
    host = sample_host(directory, f'[[dkim]]\ndomain = "example.org"\nselector = "a"\nkey = "{key}"\n')
    return host, key


def test_a_key_that_only_root_can_read_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_to_all(tmp_path)
    host, key = host_with_key(tmp_path)
    config = ["--config", str(host.config)]
    with of_nobody(host.settings, "deliverer.0"):
        again = Host.of(host.settings, host.config)
        finding = found(secrets.look(again), "deliverers")
        assert finding.state is State.BAD
        assert f"{key}: the user nobody of the deliverers cannot read it (Permission denied)" in finding.found
        assert main(["dkim", "check", "--json", *config]) == 1
        assert '"key_unusable"' in capsys.readouterr().out
        os.chown(key, 0, NOBODY)
        assert states(secrets.look(again)) == {State.GOOD}
        key.parent.chmod(0o700)  # the directories above count, too
        assert found(secrets.look(again), "deliverers").state is State.BAD
    assert states(secrets.look(Host.of(host.settings, host.config))) == {State.NOT_KNOWN}


def test_the_look_leaves_no_trace_in_this_process(tmp_path: Path) -> None:
    mine = ids_of(os.getpid())
    assert mine is not None
    open_to_all(tmp_path)
    file = tmp_path / "x"
    file.write_text("")
    file.chmod(0o600)
    gc.collect()  # what earlier tests left
    descriptors = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        other = mine._replace(user=NOBODY, group=NOBODY, groups=())
        assert unreadable(other, [file]) == {str(file): "Permission denied"}
    assert unreadable(mine, [file, tmp_path / "none"]) == {str(tmp_path / "none"): "No such file or directory"}
    assert (os.geteuid(), sorted(os.listdir("/proc/self/fd"))) == (0, descriptors)
    assert sys.exception() is None


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ("", State.BAD),
        ("without_verification = true\n", State.WARN),
        ('[tls_policy."[mx.test]:587"]\nlevel = "verify"\n', None),
    ],
)
def test_a_login_towards_a_server_that_is_not_checked_is_found(tmp_path: Path, more: str, state: State | None) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text("[mx.test]:587 joe:hunter2\n")
    passwords.chmod(0o600)
    findings = list(secrets.look(sample_host(tmp_path, f'[client_auth]\npassword_file = "{passwords}"\n{more}')))
    about = [each for each in findings if each.what == "login of [mx.test]:587"]
    assert [each.state for each in about] == ([state] if state else [])
    assert all(each.remedy == 'Set level = "verify" in [tls_policy."[mx.test]:587"].' for each in about)
    assert "hunter2" not in str(findings)
