"""Fallback next hops of a destination: the most specific scope decides, and a scope holds no more than it shows."""

from __future__ import annotations

import pytest

from mailcore.frames import NextHop
from mailcore.routing import fallbacks
from mailcore.routing.fallbacks import Fallbacks

BY_SCOPE = {
    "smtp": ("[all.test]",),
    "smtp:.test": ("[below.test]",),
    "smtp:.b.test": ("[below-b.test]",),
    "smtp:a.b.test": ("[any-port.test]",),
    "smtp:a.b.test:587": ("[port.test]",),
    "smtp:p.b.test:25": ("[default-port.test]",),
    "smtp:[192.0.2.1]": ("[address.test]",),
    "smtp:[in.b.test]:2525": ("[host.test]",),
    "smtp:quiet.test": (),
    "store:unix:/run/lmtp": ("[socket.test]",),
}


@pytest.mark.parametrize(
    ("destination", "scope", "host"),
    [
        ("smtp:org", "smtp", "all.test"),
        ("smtp:test", "smtp", "all.test"),
        ("smtp:c.test", "smtp:.test", "below.test"),
        ("smtp:b.test", "smtp:.test", "below.test"),
        ("smtp:c.b.test:587", "smtp:.b.test", "below-b.test"),
        ("smtp:a.b.test", "smtp:a.b.test", "any-port.test"),
        ("smtp:a.b.test:2525", "smtp:a.b.test", "any-port.test"),
        ("smtp:a.b.test:587", "smtp:a.b.test:587", "port.test"),
        ("smtp:p.b.test", "smtp:p.b.test:25", "default-port.test"),
        ("smtp:p.b.test:587", "smtp:.b.test", "below-b.test"),
        ("smtp:x.a.b.test", "smtp:.b.test", "below-b.test"),
        ("smtp:xa.b.test", "smtp:.b.test", "below-b.test"),
        ("smtp:xtest", "smtp", "all.test"),
        ("smtp:[192.0.2.1]:2525", "smtp:[192.0.2.1]", "address.test"),
        ("smtp:[192.0.2.10]", "smtp", "all.test"),
        ("smtp:[in.b.test]:2525", "smtp:[in.b.test]:2525", "host.test"),
        ("smtp:[in.b.test]", "smtp", "all.test"),
        ("smtp:[a.b.test]", "smtp", "all.test"),
        ("smtp:quiet.test", "smtp:quiet.test", ""),
        ("smtp2:a.b.test", "", ""),
        ("relay:a.b.test", "", ""),
        ("store:unix:/run/lmtp", "store:unix:/run/lmtp", "socket.test"),
        ("store:unix:/run/lmtp2", "", ""),
    ],
)
def test_the_most_specific_scope_decides(destination: str, scope: str, host: str) -> None:
    found = Fallbacks(BY_SCOPE)
    for _ in range(2):  # also when it is remembered
        assert found.of(destination) == ((NextHop(host, 25, False),) if host else ())
    assert found.deciding(destination) == scope


def test_next_hops_are_read_as_those_of_routes_of_the_transport() -> None:
    by_scope = {"smtp": ("a.test", "[b.test]:587", "c.test:587"), "store": ("a.test", "[b.test]:2525")}
    found = Fallbacks(by_scope, 2600, ["store"])
    assert found.of("smtp:x.test") == (
        NextHop("a.test", 2600, True),
        NextHop("b.test", 587, False),
        NextHop("c.test", 587, True),
    )
    assert found.of("store:[x.test]:24") == (NextHop("a.test", 24, False), NextHop("b.test", 2525, False))


@pytest.mark.parametrize("destination", ["smtp:b.test:587", "smtp:[c.test]", "smtp:d.test"])
def test_a_fallback_has_none_itself(destination: str) -> None:
    found = Fallbacks({"smtp": ("b.test:587", "[c.test]:25", "d.test")})
    assert found.of(destination) == ()
    assert len(found.of("smtp:b.test")) == len(found.of("smtp:c.test")) == len(found.of("smtp:[d.test]")) == 3


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallbacks, "DESTINATIONS_REMEMBERED", 3)
    found = Fallbacks(BY_SCOPE)
    for number in range(10):
        found.of(f"smtp:d{number}.test")
        assert len(found._known) <= 3
    assert Fallbacks({}).of("smtp:a.test") == ()
