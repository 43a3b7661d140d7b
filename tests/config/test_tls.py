"""[tls], [tls_policy] and ``tls`` of a transport, checked at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.load import ConfigError, load, load_text
from mailcore.config.settings import Settings, TlsPolicy
from tests.deliverer.authority import Authority

FAULTS = [
    ("[transports.smtp]\ntls = 'must'", "2: [transports.smtp] tls must be \"none\", \"may\", \"encrypt\", "),
    ("[tls]\nca_fle = 'x'", "2: [tls] ca_fle is not a setting here; did you mean 'ca_file'?"),
    ("tls_policy = 3", "1: tls_policy must be a section, [tls_policy] (got 3)"),
    ("[tls_policy]\n'example.org' = 'verify'", "must be a section, [tls_policy.example.org] (got 'verify')"),
    ("[tls_policy.'example.org']\nmatch = ['x.test']", "1: [tls_policy.example.org] level is missing; allowed: none, may, "),
    ("[tls_policy.'example.org']\nlevel = 'secure'", "2: [tls_policy.example.org] level must be \"none\", \"may\", "),
    ("[tls_policy.'user@example.org']\nlevel = 'may'", "1: [tls_policy] user@example.org must be a next hop such as"),
    ("[tls_policy.'*']\nlevel = 'may'", "1: [tls_policy] * must be a next hop such as"),
    (
        "[tls_policy.'Example.org:25']\nlevel = 'may'\n[tls_policy.'example.org']\nlevel = 'may'",
        "must not be there twice; it is the same as 'example.org'",
    ),
    (
        "[tls_policy.'example.org']\nlevel = 'encrypt'\nmatch = ['x.test']",
        "3: [tls_policy.example.org] match is only for level = \"verify\" (got level = 'encrypt')",
    ),
    (
        "[tls_policy.'example.org']\nlevel = 'verify'\nmatch = ['hostname']",
        "3: [tls_policy.example.org] match must be \"nexthop\", \"dot-nexthop\", a name such as",
    ),
    ("[tls_policy.'example.org']\nlevel = 'verify'\nmatch = []", "3: [tls_policy.example.org] match must have at least one"),
    ("[tls_policy.'example.org']\nlevel = 'verify'\nmatch = ['*.x.test']", "match must be \"nexthop\""),
    (
        "[tls_policy.'[mx.test]']\nlevel = 'mta-sts'",
        "2: [tls_policy.[mx.test]] level must not be mta-sts for a host in brackets: a policy belongs to a domain (RFC 8461)",
    ),
    (
        "[deliverer]\nnameservers = ['127.0.0.1', '192.0.2.53']\n[transports.smtp]\ntls = 'dane'",
        "2: [deliverer] nameservers must be name servers on this host, such as 127.0.0.1, because a next hop has level dane "
        "(got '192.0.2.53')",
    ),
    (
        "[deliverer]\nnameservers = ['192.0.2.53']\n[tls_policy.'x.test']\nlevel = 'dane-only'",
        "2: [deliverer] nameservers must be name servers on this host",
    ),
]  # fmt: skip


def settings_of(text: str) -> Settings:
    return load_text(Path("/etc/waypost/waypost.toml"), text)


@pytest.mark.parametrize(("text", "what"), FAULTS, ids=[text[:50].replace("\n", " ") for text, _ in FAULTS])
def test_a_fault_of_tls_names_its_line(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(text)
    assert what in str(error.value)


def test_policies_are_named_as_destinations_are() -> None:
    text = "[tls_policy.'Example.ORG:25']\nlevel = 'verify'\nmatch = ['nexthop', '.MX.test']\n"
    settings = settings_of(
        text + "[tls_policy.'[mx.test]:587']\nlevel = 'encrypt'\n[tls_policy.'.test']\nlevel = 'none'"
    )
    assert settings.tls_policy == {
        "example.org": TlsPolicy(level="verify", match=("nexthop", ".mx.test")),
        "[mx.test]:587": TlsPolicy(level="encrypt"),
        ".test": TlsPolicy(level="none"),
    }


def test_a_ca_file_is_found_beside_the_file_and_must_have_certificates(tmp_path: Path) -> None:
    file = tmp_path / "waypost.toml"
    authority = Authority(tmp_path, "ca")
    assert authority.file == tmp_path / "ca.pem"
    file.write_text("[tls]\nca_file = 'ca.pem'\n[tls_policy.'x.test']\nlevel = 'verify'\nca_file = 'ca.pem'\n")
    settings = load(file)
    assert settings.tls.ca_file == settings.tls_policy["x.test"].ca_file == str(authority.file)
    authority.file.write_text("nothing")
    with pytest.raises(ConfigError) as error:
        load(file)
    assert [line.split(": ")[1].partition(" must be a PEM file")[0] for line in str(error.value).splitlines()] == [
        "[tls] ca_file",
        "[tls_policy.x.test] ca_file",
    ]
    authority.file.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        load(file)
