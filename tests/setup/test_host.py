"""What setup finds out about a host, and the settings that it writes from it."""

from __future__ import annotations

import argparse
import os
import pwd
import socket
from pathlib import Path

import pytest

from mailcore.config.load import load
from mailcore.setup.command import Setup, SetupError
from mailcore.setup.first_settings import Answers, first_settings, host_addresses, url_of
from mailcore.setup.ports import holders
from mailcore.setup.units import CORE, PORTAL, Systemd, socket_addresses


def test_who_listens_on_a_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"0.0.0.0:{taken.getsockname()[1]}"
        (holder,) = holders([endpoint, endpoint])
        assert holder.pid == os.getpid()
        assert f"(process {os.getpid()}) listens on port {taken.getsockname()[1]}" in str(holder)
    assert holders([endpoint]) == []


def test_addresses_by_which_others_reach_this_host(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 192.0.2.0\n        /24 link UNICAST\n"
        "        |-- 192.0.2.5\n           /32 host LOCAL\nLocal:\n        |-- 192.0.2.5\n           /32 host LOCAL\n"
    )
    (tmp_path / "net/if_inet6").write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fe800000000000000000000000000001 02 40 20 80     eth0\n"
        "20010db8000000000000000000000005 02 40 00 80     eth0\n"
    )
    assert host_addresses(tmp_path) == ["192.0.2.5", "2001:db8::5"]
    assert host_addresses(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("https", "url"), [("0.0.0.0:443", "https://mail.example.org"), ("[::]:8443", "https://mail.example.org:8443")]
)
def test_the_first_settings_are_right_and_say_what_they_should(tmp_path: Path, https: str, url: str) -> None:
    answers = Answers("mail.example.org", url_of("mail.example.org", https), ("0.0.0.0:25",), "0.0.0.0:587", https)
    path = tmp_path / "waypost.toml"
    path.write_text(first_settings(answers, tmp_path / "home", tmp_path / "run", tmp_path / "log", tmp_path))
    path.write_text(
        path.read_text().replace('group = "waypost-control"', 'group = ""')
    )  # a group of a host with the package
    settings = load(path, look_at_certificate=False)
    assert settings.receiver.hostname == "mail.example.org"
    assert settings.portal.public_url == url
    assert settings.relay.domains == ()
    submission = settings.listener[0]
    assert (submission.purpose, submission.tls, submission.auth) == ("submission", "required", "required")
    assert socket_addresses(settings) == {CORE: ["0.0.0.0:25", "0.0.0.0:587"], PORTAL: [https]}


def test_sockets_are_written_once(tmp_path: Path) -> None:
    systemd = Systemd(tmp_path / "shipped", tmp_path / "own")
    assert systemd.set_addresses(CORE, ["0.0.0.0:25", "[::]:25"])
    path = tmp_path / "own" / "waypost-core.socket.d" / "waypost-setup.conf"
    lines = path.read_text().splitlines()  # the empty one takes back the shipped ones
    assert lines[-3:] == [
        "ListenStream=",
        "ListenStream=0.0.0.0:25",
        "ListenStream=[::]:25",
    ]
    assert not systemd.set_addresses(CORE, ["0.0.0.0:25", "[::]:25"])
    assert systemd.set_addresses(CORE, ["0.0.0.0:2525"])


def test_a_host_of_ansible_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "waypost-core.service").touch()
    setup = Setup(tmp_path / "waypost.toml", argparse.Namespace(), Systemd(tmp_path / "shipped", own))
    with pytest.raises(SetupError, match="Ansible has set up this host"):
        setup.run()
    assert not (tmp_path / "waypost.toml").exists()


def test_a_host_without_the_package_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> object:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", unknown)
    setup = Setup(tmp_path / "waypost.toml", argparse.Namespace(), Systemd(tmp_path / "shipped", tmp_path / "own"))
    with pytest.raises(SetupError, match="no user waypost-portal: install the package"):
        setup.run()
    assert list(tmp_path.iterdir()) == []


def test_only_installed_units_are_started(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    for name in ("waypost-core.socket", "waypost-core.service", "waypost-watch.service"):
        (shipped / name).touch()
    assert Systemd(shipped, tmp_path / "own").units() == [
        "waypost-core.socket", "waypost-core.service", "waypost-watch.service",
    ]  # fmt: skip
