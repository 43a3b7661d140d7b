"""Who may send where; never an open relay."""

from __future__ import annotations

import pytest

from mailcore.receiver.path import parse_path
from mailcore.receiver.policy import RelayPolicy

POLICY = RelayPolicy(["192.0.2.0/24", "2001:db8::/32"], ["example.org", ".wide.example"])


def accepts(address: str, *, trusted: bool = False, policy: RelayPolicy = POLICY) -> bool:
    found = parse_path(f"<{address}>")
    assert found is not None
    return policy.accepts(found[0], trusted)


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("192.0.2.1", True),
        ("192.0.3.1", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("::ffff:192.0.2.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_a_client_is_trusted_by_its_network(address: str, trusted: bool) -> None:
    assert POLICY.trusts(address) is trusted
    assert POLICY.trusts(address) is trusted  # the second answer comes from memory


def test_a_trusted_client_sends_to_anywhere() -> None:
    assert accepts("joe@elsewhere.example", trusted=True)
    assert accepts("joe%x@elsewhere.example", trusted=True)


@pytest.mark.parametrize(
    "address", ["joe@example.org", "joe@EXAMPLE.Org", "joe@a.wide.example", "joe@b.a.wide.example"]
)
def test_everybody_sends_to_the_relay_domains(address: str) -> None:
    assert accepts(address)


@pytest.mark.parametrize(
    "address",
    [
        "joe@elsewhere.example",
        "joe@sub.example.org",
        "joe@notexample.org",
        "joe@wide.example",  # the pattern is what is below it
        "joe@notwide.example",
        "joe@org",
        "joe%elsewhere.example@example.org",
        "elsewhere.example!joe@example.org",
        '"joe@elsewhere.example"@example.org',
        '"joe\\@elsewhere.example"@example.org',
        "@example.org:joe@elsewhere.example",
        "joe@[127.0.0.1]",
        "joe@[192.0.2.1]",
        "joe@[IPv6:2001:db8::1]",
    ],
)
def test_a_stranger_sends_to_nowhere_else(address: str) -> None:
    assert not accepts(address)


def test_without_domains_a_stranger_sends_nowhere() -> None:
    assert not accepts("joe@example.org", policy=RelayPolicy([], []))


def test_a_domain_in_its_own_script_is_the_same_domain() -> None:
    policy = RelayPolicy([], ["xn--bcher-kva.example"])
    assert accepts("joe@bücher.example", policy=policy)
    assert not accepts("joe@buecher.example", policy=policy)
    assert not accepts("joe@straße.example", policy=RelayPolicy([], ["strasse.example"]))
    assert accepts("joe@straße.example", policy=RelayPolicy([], ["xn--strae-oqa.example"]))
