"""The TLS policies and the CA file of Postfix's client: never a lower level in silence."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.settings import TlsPolicy
from mailcore.import_postfix.draft import Fate
from tests.deliverer.authority import Authority
from tests.import_postfix.translating import said_of, told_of

POLICIES = """
example.org         secure match=mx.example.net:.example.net:nexthop
.example.org        dane
[mail.example.com]:submission  verify
[mail.example.com]  verify match=hostname:nexthop ciphers=high
old.example         fingerprint match=3D:95:34:51
plain.example       none
half.example        dane-only protocols=TLSv1.3
Example.ORG:25      may
odd.example         trustme
bad..example        may
"""


def test_policies_of_next_hops_are_taken_over(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, "smtp_tls_policy_maps = hash:DIR/tls\n", tls=POLICIES)
    assert settings.tls_policy == {
        "example.org": TlsPolicy(level="verify", match=("mx.example.net", ".example.net", "nexthop")),
        ".example.org": TlsPolicy(level="dane"),
        "[mail.example.com]:587": TlsPolicy(level="verify"),
        "[mail.example.com]": TlsPolicy(level="verify", match=("nexthop",)),
        "old.example": TlsPolicy(level="encrypt"),
        "plain.example": TlsPolicy(level="none"),
        "half.example": TlsPolicy(level="dane-only"),
    }
    found = {each.what.split()[0]: (each.fate, each.said) for each in draft.findings if each.where.startswith("tls:")}
    assert len(found) == 10
    assert {name for name, (fate, _) in found.items() if fate is Fate.TAKEN} == {
        "example.org", ".example.org", "plain.example",
    }  # fmt: skip
    assert "Postfix takes the name of the MX host from DNS" in found["[mail.example.com]:submission"][1]
    assert "left out of match: hostname; without ciphers" in found["[mail.example.com]"][1]
    assert "knows no fingerprints" in found["old.example"][1]
    assert "without protocols" in found["half.example"][1]
    left = {name: said for name, (fate, said) in found.items() if fate is Fate.LEFT}
    assert sorted(left) == ["bad..example", "example.org:25", "odd.example"]
    assert "an earlier line has example.org" in left["example.org:25"]
    assert "'trustme' is not a level" in left["odd.example"]


def test_a_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, "smtp_tls_policy_maps = pcre:DIR/rules, hash:DIR/none\n", rules="/x/ may\n")
    assert settings.tls_policy == {}
    assert [each.fate for each in said_of(draft, "smtp_tls_policy_maps")] == [Fate.LEFT, Fate.LEFT]


def test_the_file_of_cas_is_taken_over_if_it_has_some(tmp_path: Path) -> None:
    pem = Authority(tmp_path).pem.decode()
    _, settings = told_of(tmp_path, "smtp_tls_CAfile = DIR/ca.pem\n", **{"ca.pem": pem})
    assert settings.tls.ca_file == str(tmp_path / "etc/ca.pem")
    (tmp_path / "b").mkdir()
    draft, settings = told_of(tmp_path / "b", "smtp_tls_CAfile = DIR/ca.pem\n", **{"ca.pem": "nothing"})
    assert settings.tls.ca_file == ""
    assert "the CAs of the system are used" in said_of(draft, "smtp_tls_CAfile")[0].said
