"""Keys that root can read and the deliverers' user cannot: mail waits, and each look by root said that all is well."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.dkim.key import new_key
from mailcore.doctor import secrets
from mailcore.doctor.as_user import ids_of, unreadable
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from tests.doctor.sample_host import SLEEPER, children, found, sample_host, states

NOBODY = 65_534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with the rights of another user")


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A directory that every user can reach."""
    for each in (tmp_path, *tmp_path.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    return tmp_path


def host_with_key(directory: Path) -> tuple[Host, Path]:
    key = directory / "key.pem"
    key.write_bytes(new_key("ed25519").pem)
    key.chmod(0o640)
    host = sample_host(directory, f'[[dkim]]\ndomain = "example.org"\nselector = "a"\nkey = "{key}"\n')
    return host, key


@contextlib.contextmanager
def deliverer(host: Host) -> Iterator[None]:
    """A process that passes for a deliverer, of another user."""
    command = ["/usr/bin/env", "python3", "-c", SLEEPER, "mailcore.of.a.test"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        children(host.settings, {"deliverer.0": process.pid})
        try:
            yield
        finally:
            process.kill()


def test_a_key_that_only_root_can_read_is_found(open_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host, key = host_with_key(open_path)
    config = ["--config", str(host.config)]
    with deliverer(host):
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


def test_the_look_leaves_no_trace_in_this_process(open_path: Path) -> None:
    mine = ids_of(os.getpid())
    assert mine is not None
    file = open_path / "x"
    file.write_text("")
    file.chmod(0o600)
    descriptors = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        other = mine._replace(user=NOBODY, group=NOBODY, groups=())
        assert unreadable(other, [file]) == {str(file): "Permission denied"}
    assert unreadable(mine, [file, open_path / "none"]) == {str(open_path / "none"): "No such file or directory"}
    assert (os.geteuid(), sorted(os.listdir("/proc/self/fd"))) == (0, descriptors)
    assert sys.exception() is None
