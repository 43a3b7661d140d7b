"""A level of DANE where no name server can validate: the file is valid, and check-config says that it has no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.cli import check_config
from mailcore.cli.main import main
from mailcore.config.dane import dane_warnings
from mailcore.config.load import load_text

DANE = '[transports.smtp]\ntls = "dane"\n[tls_policy."example.org"]\nlevel = "dane-only"\n'


@pytest.mark.parametrize(
    ("servers", "text", "warned"),
    [
        ("nameserver 192.0.2.53\n", DANE, True),
        ("nameserver 192.0.2.53\nnameserver ::1\n", DANE, False),  # only this one is asked for hosts with DANE
        ("nameserver 127.0.0.53\n", DANE, False),
        ("", DANE, True),
        (None, DANE, True),
        ("nameserver 192.0.2.53\n", "", False),
        ("nameserver 192.0.2.53\n", '[deliverer]\nnameservers = ["127.0.0.1"]\n' + DANE, False),
    ],
)
def test_name_servers_of_other_hosts_alone_are_warned_of(
    tmp_path: Path, servers: str | None, text: str, warned: bool
) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    if servers is not None:
        resolv_conf.write_text(servers)
    found = list(dane_warnings(load_text(tmp_path / "waypost.toml", text), resolv_conf))
    assert len(found) == warned
    if warned:
        assert found[0].startswith(f"[transports.smtp] and 1 more: no DANE, because {resolv_conf} names no name server")


def test_check_config_says_so_and_the_file_alone_has_no_such_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n' + DANE)
    monkeypatch.setattr(check_config, "RESOLV_CONF", tmp_path / "resolv.conf")
    assert main(["check-config", "--config", str(config)]) == 0
    assert "no DANE, because" in capsys.readouterr().err
    assert main(["check-config", "--file-only", "--config", str(config)]) == 0
    assert "no DANE" not in capsys.readouterr().err
