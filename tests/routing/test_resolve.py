"""From an address to transport, next hop and destination."""

from __future__ import annotations

import pytest

from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing import resolve
from mailcore.routing.next_hop import next_hop_named
from mailcore.routing.resolve import Refused, Resolved, Routing
from mailcore.routing.route import RouteError

TRANSPORTS = ("smtp", "relay", "bulk")
ROUTES = {
    "example.org": "relay:[mail.example.org]:2525",
    ".example.org": "relay:below.example.net",
    ".deep.example.org": "bulk:deep.example.net",
    "VIP@Example.org": "smtp:[192.0.2.5]",
    "exact.example.com": "bulk",
    "*": "smtp",
}


@pytest.fixture
def routing() -> Routing:
    return Routing(ROUTES, TRANSPORTS)


def resolved(routing: Routing, address: str, override: str = "") -> Resolved:
    found = routing.resolve(address, override)
    assert isinstance(found, Resolved)
    return found


@pytest.mark.parametrize(
    ("address", "destination"),
    [
        ("a@example.org", "relay:[mail.example.org]:2525"),
        ("a@EXAMPLE.Org", "relay:[mail.example.org]:2525"),
        ("a@x.example.org", "relay:below.example.net"),
        ("a@y.x.example.org", "relay:below.example.net"),
        ("a@y.deep.example.org", "bulk:deep.example.net"),
        ("a@deep.example.org", "relay:below.example.net"),
        ("vip@example.org", "smtp:[192.0.2.5]"),
        ("vip@x.example.org", "relay:below.example.net"),
        ("a@exact.example.com", "bulk:exact.example.com"),
        ("a@notexample.org", "smtp:notexample.org"),
        ("a@other.test", "smtp:other.test"),
        ("a@other.test.", "smtp:other.test"),
    ],
)
def test_the_most_specific_pattern_wins(routing: Routing, address: str, destination: str) -> None:
    assert resolved(routing, address).destination == destination


def test_the_default_next_hop_is_the_recipients_domain_by_mx(routing: Routing) -> None:
    assert resolved(routing, "a@Other.Test") == Resolved("smtp", "smtp:other.test", NextHop("other.test", 25, True))


def test_brackets_are_a_host_taken_as_it_is(routing: Routing) -> None:
    found = resolved(routing, "a@example.org")
    assert found.next_hop == NextHop("mail.example.org", 2525, False)


def test_without_a_default_route_it_is_the_transport_smtp() -> None:
    assert resolved(Routing({}, TRANSPORTS), "a@b.test").destination == "smtp:b.test"


def test_the_port_of_the_settings_is_used_and_not_written() -> None:
    routing = Routing({"a.test": "smtp:a.test:2600", "b.test": "smtp:[b.test]:25"}, TRANSPORTS, port=2600)
    assert resolved(routing, "x@a.test") == Resolved("smtp", "smtp:a.test", NextHop("a.test", 2600, True))
    assert resolved(routing, "x@b.test").destination == "smtp:[b.test]:25"


@pytest.mark.parametrize(
    ("address", "host"),
    [("a@[192.0.2.1]", "192.0.2.1"), ("a@[IPv6:2001:DB8:0::1]", "2001:db8::1"), ("a@[ipv6:::1]", "::1")],
)
def test_an_address_literal_goes_straight_there(routing: Routing, address: str, host: str) -> None:
    found = resolved(routing, address)
    assert found == Resolved("smtp", f"smtp:[{host}]", NextHop(host, 25, False))


def test_a_domain_beyond_ascii_is_looked_up_as_dns_has_it() -> None:
    routing = Routing({"xn--bcher-kva.test": "bulk"}, TRANSPORTS)
    assert resolved(routing, "a@Bücher.test").destination == "bulk:xn--bcher-kva.test"


def test_letters_that_only_look_or_sound_alike_are_other_addresses() -> None:
    """IDNA 2003 has "strasse" for "straße": another domain, of somebody else."""
    routing = Routing({"strasse.test": "bulk", "kim@b.test": "bulk"}, TRANSPORTS)
    assert resolved(routing, "a@straße.test").destination == "smtp:xn--strae-oqa.test"
    assert resolved(routing, "a@STRAẞE.test").destination == "smtp:xn--strae-oqa.test"
    assert resolved(routing, "\u212aim@b.test").destination == "smtp:b.test"
    assert routing.matched("\u212aim@b.test") == ""
    assert resolved(routing, "KIM@B.test").destination == "bulk:b.test"


def test_a_route_of_one_address_holds_in_both_forms_of_its_domain() -> None:
    routing = Routing({"kim@xn--bcher-kva.test": "bulk"}, TRANSPORTS)
    assert resolved(routing, "Kim@Bücher.test").destination == "bulk:xn--bcher-kva.test"
    assert routing.matched("kim@bücher.test") == "kim@xn--bcher-kva.test"


@pytest.mark.parametrize("address", ["", "nobody", "a@", "@b.test", "a b@c.test", "a@b.test>", "a\r\n@b.test"])
def test_a_bad_address_bounces(routing: Routing, address: str) -> None:
    found = routing.resolve(address)
    assert isinstance(found, Refused)
    assert (found.status, found.dsn) == (Status.BOUNCED, "5.1.3")
    assert found.reply.isprintable()


@pytest.mark.parametrize(
    "address",
    ["a@[192.0.2.256]", "a@[x]", "a@[IPv6:192.0.2.1]", "a@b..test", "a@-b.test", "a@" + "b" * 64 + ".test", "a@.test"],
)
def test_a_bad_domain_bounces(routing: Routing, address: str) -> None:
    found = routing.resolve(address)
    assert isinstance(found, Refused)
    assert (found.status, found.dsn) == (Status.BOUNCED, "5.1.2")


def test_a_bad_domain_may_still_be_routed_elsewhere() -> None:
    assert resolved(Routing({"*": "relay:[192.0.2.9]"}, TRANSPORTS), "a@b..test").destination == "relay:[192.0.2.9]"


def test_an_operators_reroute_goes_above_all(routing: Routing) -> None:
    assert resolved(routing, "vip@example.org", "bulk:[192.0.2.7]:26").destination == "bulk:[192.0.2.7]:26"
    assert resolved(routing, "vip@example.org", "bulk").destination == "bulk:example.org"
    assert resolved(routing, "vip@example.com", "bulk").destination == "bulk:example.com"


@pytest.mark.parametrize("override", ["Nonsense here", "absent:[192.0.2.7]", ":", "smtp:[192.0.2.7"])
def test_a_reroute_to_nowhere_waits_for_the_operator(routing: Routing, override: str) -> None:
    found = routing.resolve("a@example.org", override)
    assert isinstance(found, Refused)
    assert (found.status, found.dsn) == (Status.DEFERRED, "4.3.5")


def test_a_route_to_an_absent_transport_waits_for_the_operator() -> None:
    found = Routing({"*": "gone"}, TRANSPORTS).resolve("a@b.test")
    assert found == Refused(Status.DEFERRED, "4.3.5", "there is no transport gone")


@pytest.mark.parametrize(
    ("route", "destination", "hop"),
    [
        ("lmtp", "lmtp:[b.test]:24", NextHop("b.test", 24, False)),
        ("lmtp:[store.test]", "lmtp:[store.test]:24", NextHop("store.test", 24, False)),
        ("lmtp:store.test:2424", "lmtp:[store.test]:2424", NextHop("store.test", 2424, False)),
        ("lmtp:unix:/run/lmtp", "lmtp:unix:/run/lmtp", NextHop("/run/lmtp", 0, False)),
    ],
)
def test_lmtp_looks_up_no_mx_and_has_a_port_of_its_own(route: str, destination: str, hop: NextHop) -> None:
    found = Routing({"*": route}, ["smtp", "lmtp"], lmtp=["lmtp"]).resolve("a@b.test")
    assert found == Resolved("lmtp", destination, hop)


@pytest.mark.parametrize("port", [25, 24, 2525])
@pytest.mark.parametrize(
    "route",
    ["smtp", "smtp:other.test", "smtp:other.test:25", "smtp:other.test:2525", "smtp:[mx.test]", "smtp:[192.0.2.1]:26",
     "smtp:[2001:db8::1]", "smtp:[2001:db8::1]:587", "lmtp", "lmtp:store.test", "lmtp:[store.test]:2424",
     "lmtp:unix:/run/lmtp"],
)  # fmt: skip
def test_the_name_of_a_destination_says_the_next_hop(route: str, port: int) -> None:
    routing = Routing({"*": route}, ["smtp", "lmtp"], port, lmtp=["lmtp"])
    for address in ("a@b.test", "a@1.2.3.4", "a@[192.0.2.9]", "a@[IPv6:2001:db8::9]", "a@\u00e4.test"):
        found = resolved(routing, address)
        assert next_hop_named(found.destination, port) == found.next_hop


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("discard", Refused(Status.DELIVERED, "2.0.0", "discarded")),
        ("discard:a trap", Refused(Status.DELIVERED, "2.0.0", "discarded: a trap")),
        ("error:5.1.1 Unknown", Refused(Status.BOUNCED, "5.1.1", "Unknown")),
        ("error:Unknown", Refused(Status.BOUNCED, "5.0.0", "Unknown")),
        ("error:5.1.1", Refused(Status.BOUNCED, "5.1.1", "mail for this recipient is refused")),
        ("retry:4.2.1 Later", Refused(Status.DEFERRED, "4.2.1", "Later")),
    ],
)
def test_a_built_in_route_is_a_verdict(route: str, expected: Refused) -> None:
    assert Routing({"b.test": route}, TRANSPORTS).resolve("a@b.test") == expected
    assert Routing({"a@b.test": route}, TRANSPORTS).resolve("a@b.test") == expected


@pytest.mark.parametrize(
    ("routes", "released"),
    [
        ({"b.test": "hold"}, "smtp"),
        ({"b.test": "hold", "*": "relay:[192.0.2.1]"}, "relay:[192.0.2.1]"),
        ({"a@b.test": "hold", "b.test": "bulk"}, "bulk"),
        ({"b.test": "hold", ".test": "discard", "*": "bulk"}, "bulk"),
        ({"*": "hold"}, "smtp"),
        ({"b.test": "hold:bulk:c.test", "*": "relay"}, "bulk:c.test"),
    ],
)
def test_what_is_held_goes_by_the_next_route_that_delivers(routes: dict[str, str], released: str) -> None:
    routing = Routing(routes, TRANSPORTS)
    found = routing.resolve("a@b.test")
    assert isinstance(found, Refused)
    assert found.released == released
    assert isinstance(routing.resolve("a@b.test", found.released), Resolved)


SENDERS = {
    "boss@b.test": "relay:[192.0.2.1]",
    "b.test": "relay:[192.0.2.2]",
    ".b.test": "bulk",
    "<>": "bulk:[192.0.2.3]",
}


@pytest.mark.parametrize(
    ("sender", "login", "address", "destination"),
    [
        ("Boss@B.test", "", "a@x.test", "relay:[192.0.2.1]"),
        ("kim@b.test", "", "a@x.test", "relay:[192.0.2.2]"),
        ("kim@deep.b.test", "", "a@x.test", "bulk:x.test"),
        ("kim@c.test", "", "a@x.test", "smtp:[192.0.2.9]"),
        ("", "", "a@x.test", "bulk:[192.0.2.3]"),
        ("kim", "", "a@x.test", "smtp:[192.0.2.9]"),
        ("boss@b.test", "app", "a@x.test", "relay:[192.0.2.4]"),  # a login goes before the sender
        ("boss@b.test", "app", "a@own.test", "smtp:[192.0.2.8]"),  # and a pattern of recipients before both
        ("boss@b.test", "", "kim@x.test", "smtp:[192.0.2.7]"),
    ],
)
def test_a_sender_or_login_takes_the_place_of_the_route_of_all_others(
    sender: str, login: str, address: str, destination: str
) -> None:
    routes = {"*": "smtp:[192.0.2.9]", "own.test": "smtp:[192.0.2.8]", "kim@x.test": "smtp:[192.0.2.7]"}
    routing = Routing(routes, TRANSPORTS, sender_routes=SENDERS, login_routes={"app": "relay:[192.0.2.4]"})
    found = routing.of_message(sender, login)(address, "")
    assert isinstance(found, Resolved)
    assert found.destination == destination
    rerouted = routing.of_message(sender, login)(address, "bulk:[192.0.2.6]")
    assert isinstance(rerouted, Resolved)
    assert rerouted.destination == "bulk:[192.0.2.6]"  # an operator's reroute goes before all


def test_a_bad_address_bounces_also_with_a_route_of_its_sender() -> None:
    found = Routing({}, TRANSPORTS, sender_routes={"b.test": "bulk:[192.0.2.1]"}).of_message("a@b.test", "")(
        "a b@x", ""
    )
    assert isinstance(found, Refused)
    assert found.status is Status.BOUNCED


def test_a_unix_socket_is_for_lmtp_alone() -> None:
    found = Routing({}, TRANSPORTS).resolve("a@b.test", "smtp:unix:/run/lmtp")
    assert isinstance(found, Refused)
    assert (found.status, found.dsn) == (Status.DEFERRED, "4.3.5")


def test_a_route_that_cannot_be_read_stops_the_start() -> None:
    with pytest.raises(RouteError):
        Routing({"*": "no route"}, TRANSPORTS)


def test_what_is_remembered_is_bounded(routing: Routing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "DOMAINS_REMEMBERED", 10)
    for number in range(100):
        routing.resolve(f"a@d{number}.test")
        routing.resolve(f"a@d{number}.test", f"smtp:h{number}.test")
    assert len(routing._known) <= 10
    assert len(routing._overrides) <= 10


def test_the_same_domain_is_worked_out_once(routing: Routing) -> None:
    assert routing.resolve("a@other.test") is routing.resolve("b@other.test")


def test_an_extension_finds_the_route_of_its_user_after_its_own() -> None:
    routes = {"kim@b.test": "bulk:[192.0.2.1]", "kim+list@b.test": "bulk:[192.0.2.2]", "b.test": "bulk:[192.0.2.3]"}
    senders = {"app@c.test": "relay:[192.0.2.4]"}
    routing = Routing(routes, TRANSPORTS, sender_routes=senders, delimiter="+-")
    found = {
        "Kim+List@b.test": "192.0.2.2", "kim+x@b.test": "192.0.2.1", "kim-x+y@b.test": "192.0.2.1",
        "kimono+x@b.test": "192.0.2.3", "+kim@b.test": "192.0.2.3", "owner-kim@b.test": "192.0.2.3",
    }  # fmt: skip
    for address, host in found.items():
        assert resolved(routing, address).destination == f"bulk:[{host}]", address
        assert routing.matched(address) in routes
    by_sender = routing.of_message("app+7@c.test", "")("x@d.test", "")
    assert isinstance(by_sender, Resolved)
    assert by_sender.destination == "relay:[192.0.2.4]"
    assert resolved(Routing(routes, TRANSPORTS), "kim+x@b.test").destination == "bulk:[192.0.2.3]"


@pytest.mark.parametrize(
    ("address", "sender", "login", "decides"),
    [
        ("a@example.org", "kim@sender.test", "anna", ("routes", "example.org")),
        ("a@example.org", "", "", ("routes", "example.org")),
        ("VIP@example.org", "kim@sender.test", "", ("routes", "vip@example.org")),
        ("a@b.test", "Kim@sender.test", "anna", ("login_routes", "anna")),
        ("a@b.test", "Kim@sender.test", "other", ("sender_routes", "kim@sender.test")),
        ("a@b.test", "kim@x.sender.test", "", ("sender_routes", ".sender.test")),
        ("a@b.test", "", "", ("sender_routes", "<>")),
        ("a@b.test", "kim@other.test", "", ("routes", "*")),
        ("nonsense", "kim@sender.test", "anna", ("", "")),
    ],
)
def test_the_pattern_that_decides_has_a_name(address: str, sender: str, login: str, decides: tuple[str, str]) -> None:
    senders = {"kim@sender.test": "bulk:[192.0.2.11]", ".sender.test": "bulk:[192.0.2.12]", "<>": "bulk:[192.0.2.13]"}
    routing = Routing(ROUTES, TRANSPORTS, 25, (), senders, {"anna": "bulk:[192.0.2.14]"})
    assert routing.deciding(address, sender, login) == decides
    table, pattern = decides
    told = {"routes": {each.lower(): route for each, route in ROUTES.items()}, "sender_routes": senders}
    if pattern in told.get(table, {}):
        assert resolved(routing, address, told[table][pattern]) == routing.of_message(sender, login)(address, "")
