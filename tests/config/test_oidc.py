"""[oidc]: which addresses are safe, and what lacks another setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.document import ConfigError
from mailcore.config.load import load
from mailcore.config.oidc import is_safe_url

GOOD = 'issuer = "https://login.example.org/realm"\nclient_id = "waypost"\n'


def loaded(tmp_path: Path, text: str) -> object:
    config = tmp_path / "waypost.toml"
    config.write_text(f"[oidc]\n{text}")
    return load(config).oidc


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://login.example.org", True), ("https://login.example.org:8443/a/b", True), ("http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080/", True), ("http://localhost/", True), ("http://login.example.org/", False),
        ("http://127.0.0.1.example.org/", False), ("http://localhost.example.org/", False), ("https://", False),
        ("https://user@login.example.org/", False), ("https://login.example.org/#x", False), ("ftp://127.0.0.1/", False),
        ("https://login.example.org:99999/", False), ("https://login.example.org/\n", False), ("http://0.0.0.0/", False),
        ("file:///etc/passwd", False), ("", False), ("https://[::1", False),
    ],
)  # fmt: skip
def test_addresses_with_tls_or_of_this_host_are_safe(url: str, is_safe: bool) -> None:
    assert is_safe_url(url) is is_safe


def test_the_secret_lies_beside_the_file(tmp_path: Path) -> None:
    oidc = loaded(tmp_path, f'{GOOD}client_secret_file = "secret"\noperator_groups = ["ops"]\n')
    assert oidc.client_secret_file == str(tmp_path / "secret")  # type: ignore[attr-defined]
    assert oidc.maps_groups  # type: ignore[attr-defined]
    assert not loaded(tmp_path, GOOD).maps_groups  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('issuer = "https://login.example.org"\n', "[oidc] issuer needs client_id"),
        ('issuer = "http://login.example.org"\nclient_id = "a"\n', "[oidc] issuer must be an address"),
        ('issuer = "https://login.example.org/?a=b"\nclient_id = "a"\n', "[oidc] issuer must be an address"),
        (f"{GOOD}make_users = true\n", "[oidc] make_users needs groups"),
        ("passwords = false\n", "[oidc] passwords needs issuer"),
        (f'{GOOD}client_id = "a b"\n'.replace('client_id = "waypost"\n', ""), "[oidc] client_id must be of ASCII"),
        (f"{GOOD}session_s = 10\n", "[oidc] session_s must be between 300 and"),
        (f'{GOOD}scopes = ["openid", "openid"]\n', "[oidc] scopes must not have a value twice"),
    ],
)
def test_a_fault_names_its_setting(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text)
    assert fault in str(error.value)
