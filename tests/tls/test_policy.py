"""The policy that the settings have for a next hop."""

from __future__ import annotations

from mailcore.config.settings import TlsPolicy
from mailcore.frames import NextHop
from mailcore.tls.policy import Policies, Policy


def test_the_most_specific_pattern_wins() -> None:
    levels = {
        "example.org": "encrypt", ".example.org": "none", ".org": "dane", "[mx.example.org]": "verify",
        "[mx.example.org]:587": "dane-only", "example.org:2525": "may", "[192.0.2.1]": "encrypt",
    }  # fmt: skip
    policies = Policies({pattern: TlsPolicy(level=level) for pattern, level in levels.items()}, 25)

    def level(host: str, port: int = 25, mx: bool = True) -> str:
        return policies.of("smtp", "mta-sts", NextHop(host, port, mx)).level

    assert [level("example.org"), level("example.org", 2525), level("example.org", 26)] == ["encrypt", "may", "encrypt"]
    assert [level("a.example.org"), level("a.b.example.org"), level("other.org")] == ["none", "none", "dane"]
    assert [level("mx.example.org", mx=False), level("mx.example.org", 587, mx=False)] == ["verify", "dane-only"]
    assert [level("mx.example.org"), level("example.test"), level("192.0.2.1", mx=False)] == [
        "none",
        "mta-sts",
        "encrypt",
    ]
    assert level("badexample.org") == "dane"


def test_a_policy_names_what_a_certificate_must_have() -> None:
    policies = Policies({"x.test": TlsPolicy(level="verify", match=("nexthop", ".y.test"), ca_file="/own")}, 25, "/all")
    assert policies.of("smtp", "may", NextHop("x.test", 25, True)) == Policy(
        "verify", "[tls_policy] x.test", ("x.test", ".y.test"), "/own"
    )
    assert policies.of("bulk", "verify", NextHop("z.test", 25, True)) == Policy(
        "verify", "[transports.bulk]", ("z.test", ".z.test"), "/all"
    )
    assert policies.of("smtp", "may", NextHop("z.test", 25, True)) == Policy("may")
    assert policies.of("smtp", "none", NextHop("z.test", 25, True)) == Policy("none", "[transports.smtp]")
    assert policies.of("smtp", "verify", NextHop("/run/lmtp", 0, False)) == Policy("none")
