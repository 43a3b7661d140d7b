"""Hosts of a next hop, found with a real name server."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing import mx, resolvers
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.nameserver import parse_nameserver
from mailcore.routing.resolve import Refused
from mailcore.routing.resolvers import RESOLV_CONF_CHECK_S
from tests.exhausted import no_descriptors
from tests.routing.nameserver import NameServer, name_server

ZONES = {
    "test": """
simple     IN MX 10 mx1.test.
ordered    IN MX 30 mx3.test.
ordered    IN MX 10 mx1.test.
ordered    IN MX 20 mx2.test.
equal      IN MX 10 mx1.test.
equal      IN MX 10 mx2.test.
equal      IN MX 10 mx3.test.
null       IN MX 0 .
nullish    IN MX 0 .
nullish    IN MX 10 mx1.test.
implicit   IN A 127.0.0.9
implicit   IN AAAA ::9
textonly   IN TXT "no host at all"
alias      IN CNAME simple.test.
far        IN CNAME alias.test.
away       IN CNAME simple.elsewhere.
loop1      IN CNAME loop2.test.
loop2      IN CNAME loop1.test.
many       IN MX 10 many-hosts.test.
half       IN MX 10 gone.test.
half       IN MX 20 mx2.test.
nohost     IN MX 10 gone.test.
nohost     IN MX 20 bad.broken.
gonehosts  IN MX 10 gone.test.
byalias    IN MX 10 alias-host.test.
us-first   IN MX 10 us.test.
us-first   IN MX 20 mx2.test.
us-backup  IN MX 10 mx1.test.
us-backup  IN MX 20 us.test.
us-backup  IN MX 30 mx3.test.
brief  1   IN MX 10 mx1.test.
mx1        IN A 127.0.0.1
mx2        IN A 127.0.0.2
mx2        IN AAAA ::2
mx3        IN A 127.0.0.3
us         IN A 127.0.0.4
alias-host IN CNAME mx2.test.
xn--bcher-kva IN MX 10 mx1.test.
"""
    + "".join(f"many-hosts IN A 127.0.1.{n}\nmany-hosts IN AAAA ::1:{n}\n" for n in range(1, 7)),
    "elsewhere": "simple IN MX 10 mx1.elsewhere.\nmx1 IN A 127.0.0.5\n",
    "broken": "this is no record at all\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with name_server(tmp_path_factory.mktemp("named"), ZONES) as running:
        yield running


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Setting:
    """A finder that asks the test's server, its clock, and its files."""

    def __init__(self, directory: Path, *nameservers: str, seed: int = 1, addresses_max: int = 5) -> None:
        self.clock = Clock()
        self.hosts_file = directory / "hosts"
        self.resolv_conf = directory / "resolv.conf"
        self.finder = HostFinder(
            nameservers,
            addresses_max=addresses_max,
            own_name="us.test",
            chance=random.Random(seed),
            clock=self.clock,
            hosts_file=self.hosts_file,
            resolv_conf=self.resolv_conf,
        )

    async def mx(self, domain: str) -> tuple[Address, ...] | Refused:
        return await self.finder.find(NextHop(domain, 25, True))

    async def host(self, name: str) -> tuple[Address, ...] | Refused:
        return await self.finder.find(NextHop(name, 25, False))


@pytest.fixture
def at(server: NameServer, tmp_path: Path) -> Setting:
    return Setting(tmp_path, server.text)


def hosts(found: tuple[Address, ...] | Refused) -> list[str]:
    assert not isinstance(found, Refused)
    return [address.host for address in found]


def refusal(found: tuple[Address, ...] | Refused) -> tuple[Status, str]:
    assert isinstance(found, Refused)
    return found.status, found.dsn


async def test_an_mx_host_is_found_with_its_address(at: Setting) -> None:
    assert await at.mx("simple.test") == (Address("mx1.test", "127.0.0.1"),)


async def test_mx_hosts_come_in_the_order_of_their_preference(at: Setting) -> None:
    found = await at.mx("ordered.test")
    assert list(dict.fromkeys(hosts(found))) == ["mx1.test", "mx2.test", "mx3.test"]


async def test_hosts_of_one_preference_take_turns(server: NameServer, tmp_path: Path) -> None:
    at = Setting(tmp_path, server.text)
    assert {hosts(await at.mx("equal.test"))[0] for _ in range(60)} == {"mx1.test", "mx2.test", "mx3.test"}


async def test_addresses_of_one_host_alternate_between_the_families_and_are_bounded(at: Setting) -> None:
    found = await at.mx("many.test")
    assert not isinstance(found, Refused)
    assert len(found) == 5
    sixes = [":" in address.address for address in found]
    assert all(one != next_ for one, next_ in itertools.pairwise(sixes))


async def test_a_null_mx_takes_no_mail(at: Setting) -> None:
    found = await at.mx("null.test")
    assert found == Refused(Status.BOUNCED, "5.1.10", "Domain null.test does not accept mail (nullMX)")


async def test_a_null_mx_beside_others_is_a_mistake_and_ignored(at: Setting) -> None:
    assert hosts(await at.mx("nullish.test")) == ["mx1.test"]


async def test_without_mx_the_domain_itself_is_the_host(at: Setting) -> None:
    found = await at.mx("implicit.test")
    assert not isinstance(found, Refused)
    assert sorted(found) == [Address("implicit.test", "127.0.0.9"), Address("implicit.test", "::9")]


async def test_a_domain_that_is_not_there_bounces(at: Setting) -> None:
    found = await at.mx("nowhere.test")
    words = "Host or domain name not found. Name service error for name=nowhere.test type=MX: Host not found"
    assert found == Refused(Status.BOUNCED, "5.4.4", words)


async def test_a_domain_without_any_host_bounces(at: Setting) -> None:
    assert refusal(await at.mx("textonly.test")) == (Status.BOUNCED, "5.4.4")


async def test_a_broken_zone_defers(at: Setting) -> None:
    found = await at.mx("domain.broken")
    assert refusal(found) == (Status.DEFERRED, "4.4.3")
    assert isinstance(found, Refused)
    assert found.reply.endswith("type=MX: Host not found, try again")
    assert not found.ours


@pytest.mark.parametrize("alias", ["alias.test", "far.test"])
async def test_aliases_of_the_domain_are_followed(at: Setting, alias: str) -> None:
    assert hosts(await at.mx(alias)) == ["mx1.test"]


async def test_an_alias_into_another_zone_is_followed(at: Setting) -> None:
    assert hosts(await at.mx("away.test")) == ["mx1.elsewhere"]


async def test_an_alias_that_goes_round_defers(at: Setting) -> None:
    assert refusal(await at.mx("loop1.test")) == (Status.DEFERRED, "4.4.3")


async def test_an_mx_host_that_is_an_alias_is_followed(at: Setting) -> None:
    assert set(hosts(await at.mx("byalias.test"))) == {"alias-host.test"}


async def test_an_mx_host_without_address_is_passed_over(at: Setting) -> None:
    assert set(hosts(await at.mx("half.test"))) == {"mx2.test"}


async def test_no_mx_host_with_an_address_bounces_unless_one_may_yet_come(at: Setting) -> None:
    assert refusal(await at.mx("gonehosts.test")) == (Status.BOUNCED, "5.4.4")
    assert refusal(await at.mx("nohost.test")) == (Status.DEFERRED, "4.4.3")


async def test_mail_that_would_loop_to_ourselves_bounces_and_less_preferred_hosts_are_left_out(at: Setting) -> None:
    assert refusal(await at.mx("us-first.test")) == (Status.BOUNCED, "5.4.6")
    assert hosts(await at.mx("us-backup.test")) == ["mx1.test"]


async def test_a_name_that_is_no_name_bounces(at: Setting) -> None:
    assert refusal(await at.mx("a" * 64 + ".test")) == (Status.BOUNCED, "5.4.4")
    assert refusal(await at.mx("a..test")) == (Status.BOUNCED, "5.4.4")


# Hosts taken as they are


@pytest.mark.parametrize("literal", ["192.0.2.1", "2001:db8::1"])
async def test_an_address_needs_no_name_server(tmp_path: Path, literal: str) -> None:
    assert await Setting(tmp_path).host(literal) == (Address(literal, literal),)


async def test_a_host_in_brackets_is_not_looked_up_by_mx(at: Setting) -> None:
    assert refusal(await at.host("simple.test")) == (Status.BOUNCED, "5.4.4")
    assert hosts(await at.host("mx1.test")) == ["mx1.test"]


async def test_localhost_needs_no_name_server_and_no_file(tmp_path: Path) -> None:
    found = await Setting(tmp_path).host("localhost")
    assert not isinstance(found, Refused)
    assert {address.address for address in found} == {"127.0.0.1", "::1"}


async def test_the_hosts_file_comes_before_dns(at: Setting) -> None:
    at.hosts_file.write_text("# mx1.test\nnonsense mx1.test\n192.0.2.7 other MX1.test # here\n", encoding="ascii")
    assert await at.host("mx1.test") == (Address("mx1.test", "192.0.2.7"),)


# Domains that have us among their MX hosts


@pytest.mark.parametrize(
    ("domain", "expected"), [("us-backup.test", True), ("us-first.test", True), ("simple.test", False), ("no.test", False)]
)  # fmt: skip
async def test_a_domain_is_served_by_us_if_we_are_one_of_its_mx_hosts(at: Setting, domain: str, expected: bool) -> None:
    assert not at.finder.is_served_by_us(NextHop(domain, 25, True)), "it was not looked up yet"
    for _ in range(2):
        await at.mx(domain)
        assert at.finder.is_served_by_us(NextHop(domain, 25, True)) is expected
        at.clock.now += 1e6
    await at.host(domain)
    assert not at.finder.is_served_by_us(NextHop(domain, 25, False))


# Servers


async def test_servers_of_resolv_conf_are_used_when_none_are_set_and_changes_are_seen(tmp_path: Path) -> None:
    at = Setting(tmp_path)
    found = await at.mx("simple.test")
    assert refusal(found) == (Status.DEFERRED, "4.3.0")  # there is no file
    assert isinstance(found, Refused)
    assert found.ours
    at.resolv_conf.write_text("nameserver 127.0.0.1\n", encoding="ascii")
    assert at.finder._resolvers.all() is None  # looked at a moment ago
    at.clock.now += RESOLV_CONF_CHECK_S
    resolver = at.finder._resolvers.all()
    assert resolver is not None
    assert [str(server) for server in resolver.nameservers] == ["127.0.0.1"]


async def test_a_server_that_says_nothing_defers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "LIFETIME_S", 0.2)
    with socket.socket(type=socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        at = Setting(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}")
        assert refusal(await at.mx("simple.test")) == (Status.DEFERRED, "4.4.3")


async def test_without_descriptors_it_is_our_own_trouble_and_not_the_domains(at: Setting) -> None:
    with no_descriptors():
        for found in (await at.mx("simple.test"), await at.host("mx1.test")):
            assert refusal(found) == (Status.DEFERRED, "4.3.0")
            assert isinstance(found, Refused)
            assert found.ours
    at.clock.now += mx.FAILURE_TTL_S + 1
    assert hosts(await at.mx("simple.test")) == ["mx1.test"]


async def test_a_dead_server_is_passed_over(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolvers, "TIMEOUT_S", 0.2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        at = Setting(tmp_path, f"127.0.0.1:{closed.getsockname()[1]}", server.text)
        assert hosts(await at.mx("simple.test")) == ["mx1.test"]


# Memory


async def test_an_answer_is_kept_for_its_time_and_no_longer(server: NameServer, at: Setting) -> None:
    before = server.queries("brief.test")
    await at.mx("brief.test")
    await at.mx("brief.test")
    assert server.queries("brief.test") == before + 1
    at.clock.now += 1.5
    await at.mx("brief.test")
    assert server.queries("brief.test") == before + 2


async def test_who_asks_while_a_question_is_out_waits_for_the_same_answer(server: NameServer, at: Setting) -> None:
    before = server.queries("ordered.test")
    found = await asyncio.gather(*(at.mx("ordered.test") for _ in range(50)))
    assert all(hosts(one)[0] == "mx1.test" for one in found)
    assert server.queries("ordered.test") == before + 1


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(at: Setting) -> None:
    first = asyncio.create_task(at.mx("simple.test"))
    second = asyncio.create_task(at.mx("simple.test"))
    await asyncio.sleep(0)
    first.cancel()
    assert hosts(await second) == ["mx1.test"]


async def test_memory_of_answers_is_bounded(at: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "ENTRIES_MAX", 3)
    for domain in ("simple.test", "ordered.test", "equal.test", "null.test", "nowhere.test"):
        await at.mx(domain)
    assert len(at.finder._known) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", ("192.0.2.1", 53)),
        ("192.0.2.1:5353", ("192.0.2.1", 5353)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", ("2001:db8::1", 5353)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
    ],
)
def test_a_name_server_is_an_address_and_perhaps_a_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_nameserver(text) == expected


@pytest.mark.parametrize("text", ["ns.example.org", "192.0.2.1:0", "192.0.2.1:x", "192.0.2.1:70000", ""])
def test_what_is_no_name_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_nameserver(text)
