"""DANE: real handshakes with certificates of a real CA, and a name server on loopback that says what is validated."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dns.flags
import msgspec
import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.frames import NextHop
from mailcore.routing import resolvers
from mailcore.routing import tlsa as tlsa_room
from mailcore.routing.mx import HostFinder
from mailcore.routing.tlsa import is_validated
from mailcore.tls.policy import Policies
from tests.deliverer.authority import DAY, Authority, Issued
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.dns_server import NameServer, answering
from tests.deliverer.scripted_server import Act, ScriptedServer, serving

DELIVERED = [("delivered", "2.0.0")]
OFFERED = ("PIPELINING", "STARTTLS")
HOST = "mx.example.org"


def tlsa(issued: Issued, usage: int = 3, selector: int = 1, matching: int = 1) -> str:
    content = issued.der if selector == 0 else issued.spki
    data = {0: content, 1: hashlib.sha256(content).digest(), 2: hashlib.sha512(content).digest()}[matching]
    return f"{usage} {selector} {matching} {data.hex()}"


class Site:
    """A domain with one MX host; ``tlsa`` are its records for the port that the server happens to have."""

    def __init__(
        self, directory: Path, server: ScriptedServer, names: NameServer, level: str, *others: NameServer
    ) -> None:
        self.server = server
        self.names = names
        finder = HostFinder(
            (names.text, *(each.text for each in others)), addresses_max=5, own_name="", chance=random.Random(1),
            clock=time.monotonic, hosts_file=directory / "no-hosts",
        )  # fmt: skip
        policies = Policies({".org": TlsPolicy(level=level), "strict.test": TlsPolicy(level="dane-only")}, 25)
        self.sender = Sender(directory, server.port, finder, policies=policies)


@contextlib.asynccontextmanager
async def site(
    directory: Path,
    issued: Issued,
    records: list[str],
    *,
    level: str = "dane",
    signed: tuple[str, ...] = ("example.org",),
    bogus: tuple[str, ...] = (),
    host: str = HOST,
    more: dict[str, list[str]] | None = None,
    server: ScriptedServer | None = None,
) -> AsyncIterator[Site]:
    server = server or ScriptedServer(keywords=OFFERED, tls=issued.server(directory))
    async with serving(server):
        place = f"_{server.port}._tcp.{host}"
        given = {"example.org MX": [f"10 {HOST}."], f"{HOST} A": ["127.0.0.1"], **(more or {})}
        if records:
            given[f"{place} TLSA"] = records
        names = NameServer(given, signed=signed, bogus=tuple(each.replace("PLACE", place) for each in bogus))
        async with answering(names):
            yield Site(directory, server, names, level)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("matching", [0, 1, 2])
async def test_mail_goes_to_a_server_whose_own_certificate_matches(
    tmp_path: Path, authority: Authority, selector: int, matching: int
) -> None:
    """Usage 3: who signed it, for which name and until when does not matter (RFC 7672 3.1.1)."""
    issued = authority.issue("other.test", ends=-DAY / 2, self_signed=True)
    async with site(tmp_path, issued, [tlsa(issued, 3, selector, matching)], level="dane-only") as at:
        result = await at.sender.send()
        assert outcomes(result) == DELIVERED
        assert (result.tls_level, result.tls_verified) == (f"dane-only: TLSA 3 {selector} {matching} of {HOST}", True)


@pytest.mark.parametrize("level", ["dane", "dane-only"])
async def test_a_record_that_matches_nothing_defers(tmp_path: Path, authority: Authority, level: str) -> None:
    issued, other = authority.issue(HOST), authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(other), tlsa(other, 2, 0, 1)], level=level) as at:
        result = await at.sender.send()
        assert outcomes(result) == [("deferred", "4.7.5")]
        assert f"no TLSA record of {HOST} matches its certificates" in words(result)
        assert all("MAIL" not in session.verbs for session in at.server.sessions)


async def test_one_of_several_records_is_enough(tmp_path: Path, authority: Authority) -> None:
    """The key that comes and the one that goes both have a record during a change of keys."""
    issued, other = authority.issue(HOST), authority.issue(HOST)
    async with site(tmp_path, issued, ["1 1 1 " + "00" * 32, tlsa(other), tlsa(issued)]) as at:
        assert (await at.sender.send()).tls_level == f"dane: TLSA 3 1 1 of {HOST}"


async def test_a_weaker_digest_does_not_count_beside_a_stronger_one(tmp_path: Path, authority: Authority) -> None:
    issued, other = authority.issue(HOST), authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(issued, 3, 1, 1), tlsa(other, 3, 1, 2)]) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("matching", [0, 1, 2])
async def test_a_ca_of_a_record_signs_for_the_host(
    tmp_path: Path, authority: Authority, selector: int, matching: int
) -> None:
    below = Authority(tmp_path, "Below", authority)
    issued = below.issue(HOST)
    async with site(tmp_path, issued, [tlsa(below, 2, selector, matching)]) as at:
        result = await at.sender.send()
        assert (outcomes(result), result.tls_level) == (DELIVERED, f"dane: TLSA 2 {selector} {matching} of {HOST}")


@pytest.mark.parametrize(
    ("names", "changes"),
    [
        (("other.test",), {}),  # usage 2 checks names
        ((), {"common_name": HOST}),
        ((HOST,), {"ends": -DAY / 2}),  # and times
        ((HOST,), {"self_signed": True}),  # the CA is in the chain, and has not signed this
    ],
)
async def test_a_ca_of_a_record_does_not_make_any_certificate_good(
    tmp_path: Path, authority: Authority, names: tuple[str, ...], changes: dict[str, Any]
) -> None:
    below = Authority(tmp_path, "Below", authority)
    issued = below.issue(*names, **changes)
    issued.chain = (below,)
    async with site(tmp_path, issued, [tlsa(below, 2, 0, 1)]) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        assert not at.server.messages


async def test_a_leaf_with_a_record_of_a_ca_is_not_a_ca(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(issued, 2, 1, 1)]) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]


async def test_a_secure_denial_is_may_and_says_so(tmp_path: Path, authority: Authority) -> None:
    async with site(tmp_path, authority.issue("other.test"), []) as at:
        result = await at.sender.send()
        assert (outcomes(result), result.tls_verified) == (DELIVERED, False)
        assert result.tls_level == f"may: dane, {HOST} has no TLSA records"
    async with site(tmp_path, authority.issue(HOST), [], level="dane-only") as at:
        result = await at.sender.send()
        assert (outcomes(result), at.server.sessions) == ([("deferred", "4.7.5")], [])
        assert f"{HOST} has no TLSA records" in words(result)


@pytest.mark.parametrize("level", ["dane", "dane-only"])
async def test_a_bogus_answer_defers_and_never_lowers_the_level(
    tmp_path: Path, authority: Authority, level: str
) -> None:
    """An attacker who can drop or spoil the TLSA answer could otherwise switch DANE off."""
    issued = authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(issued)], level=level, bogus=("PLACE TLSA",)) as at:
        for _ in range(2):
            result = await at.sender.send()
            assert (outcomes(result), at.server.sessions) == ([("deferred", "4.7.5")], [])
            assert f"TLSA lookup error for {HOST}" in words(result)


FORGED = {"example.org MX": ["10 evil.test."], "evil.test A": ["127.0.0.1"], f"{HOST} A": ["127.0.0.1"]}


@contextlib.asynccontextmanager
async def with_a_second_server(
    directory: Path,
    issued: Issued,
    level: str,
    bogus: str,
    forged: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[Site, NameServer]]:
    """A site whose name is looked up at 127.0.0.1, which finds one answer bogus, or at 127.0.0.2, as if on another host."""
    for room in (resolvers, tlsa_room):
        monkeypatch.setattr(room, "is_local", lambda address: address == "127.0.0.1")
    async with serving(ScriptedServer(keywords=OFFERED, tls=issued.server(directory))) as server:
        place = f"_{server.port}._tcp.{HOST}"
        given = {"example.org MX": [f"10 {HOST}."], f"{HOST} A": ["127.0.0.1"], f"{place} TLSA": [tlsa(issued)]}
        names = NameServer(given, signed=("example.org",), bogus=(bogus.replace("PLACE", place),))
        placed = {name.replace("PLACE", place): texts for name, texts in forged.items()}
        other = NameServer(placed, signed=("example.org", "evil.test"))
        async with answering(names), answering(other, "127.0.0.2"):
            yield Site(directory, server, names, level, other), other


@pytest.mark.parametrize("level", ["dane", "dane-only"])
@pytest.mark.parametrize(
    ("bogus", "forged", "dsn"),
    [
        ("PLACE TLSA", FORGED, "4.7.5"),  # NXDOMAIN
        ("PLACE TLSA", {**FORGED, "PLACE TXT": ["x"]}, "4.7.5"),  # no data
        ("example.org MX", FORGED, "4.4.3"),
        ("example.org MX", {"example.org A": ["127.0.0.1"]}, "4.4.3"),
        (f"{HOST} A", FORGED, "4.4.3"),
    ],
)
async def test_a_name_server_of_another_host_cannot_replace_a_bogus_answer(
    tmp_path: Path,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    bogus: str,
    forged: dict[str, list[str]],
    dsn: str,
) -> None:
    """A resolver takes SERVFAIL, which is what a validating server says then, for a reason to ask its next server."""
    issued = authority.issue(HOST)
    async with with_a_second_server(tmp_path, issued, level, bogus, forged, monkeypatch) as (at, other):
        result = await at.sender.send()
        assert (outcomes(result), at.server.sessions, other.asked) == ([("deferred", dsn)], [], [])


@pytest.mark.parametrize("options", [(), (("REQUIRETLS", ""),)])
async def test_mail_without_dnssec_may_ask_the_next_name_server(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    """Mail that does not depend on DNSSEC leaves though the name server here fails; with REQUIRETLS it does depend on it."""
    issued = authority.issue(HOST)
    async with with_a_second_server(tmp_path, issued, "may", f"{HOST} A", FORGED, monkeypatch) as (at, other):
        result = await at.sender.deliver(msgspec.structs.replace(at.sender.work(), options=options))
        assert outcomes(result) == ([("deferred", "4.4.3")] if options else DELIVERED)
        assert bool(other.asked) == (not options)


async def test_a_denial_counts_only_with_the_ad_bit(tmp_path: Path, authority: Authority) -> None:
    """A name that does not exist, in a zone that is not signed: no server said that there are no TLSA records."""
    async with site(tmp_path, authority.issue(HOST), [], signed=("example.org",)) as at:
        at.names.unsigned = ("_tcp." + HOST,)
        result = await at.sender.send()
        assert result.tls_level == f"may: dane, {HOST}: its DNS records are not signed, or not validated on this host"


async def test_records_that_no_name_server_here_gave_defer(tmp_path: Path, authority: Authority) -> None:
    """The name server on this host was taken out of /etc/resolv.conf after it had said that the way is validated."""
    async with site(tmp_path, authority.issue(HOST), []) as at:
        await at.sender.finder.find(NextHop("example.org", at.server.port, True), validated=True)
        at.sender.finder._resolvers._local = None
        result = await at.sender.send()
        assert (outcomes(result), at.server.sessions) == ([("deferred", "4.7.5")], [])


@pytest.mark.parametrize(
    ("signed", "reason"),
    [((), "not signed, or not validated"), (("mx.example.org",), "not signed, or not validated")],
)
async def test_without_validation_of_the_whole_way_there_is_no_dane(
    tmp_path: Path, authority: Authority, signed: tuple[str, ...], reason: str
) -> None:
    """In the second case the host is signed and the MX record that names it is not: it may be any host (RFC 7672 2.2.1)."""
    issued = authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(authority)], signed=signed) as at:
        result = await at.sender.send()
        assert (outcomes(result), result.tls_verified) == (DELIVERED, False)
        assert result.tls_level.startswith("may: dane, ")
        assert reason in result.tls_level
    async with site(tmp_path, issued, [tlsa(issued)], signed=signed, level="dane-only") as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]


def test_the_ad_bit_of_another_host_is_worth_nothing() -> None:
    def validated(flags: int, nameserver: str | None) -> bool:
        answer: Any = SimpleNamespace(nameserver=nameserver, response=SimpleNamespace(flags=flags))
        return is_validated(answer)

    assert validated(dns.flags.AD, "127.0.0.1")
    assert validated(dns.flags.AD, "::1")
    assert not validated(0, "127.0.0.1")
    assert not any(
        validated(dns.flags.AD, each) for each in ("192.0.2.53", "10.0.0.1", None, "", "https://127.0.0.1/dns")
    )


async def test_records_that_cannot_be_used_demand_encryption(tmp_path: Path, authority: Authority) -> None:
    """RFC 7672 2.2: the domain says that its server has TLS, although in words that no client understands."""
    unusable = ["0 0 1 " + "00" * 32, "1 1 1 " + "00" * 32, "3 7 1 " + "00" * 32, "3 1 9 " + "00" * 32]
    async with site(tmp_path, authority.issue("other.test"), unusable) as at:
        result = await at.sender.send()
        assert (outcomes(result), result.tls_verified) == (DELIVERED, False)
        assert result.tls_level == f"encrypt: dane, {HOST} has only TLSA records that can't be used"
    async with site(tmp_path, authority.issue(HOST), unusable, server=ScriptedServer()) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.4")]
    async with site(tmp_path, authority.issue(HOST), unusable, level="dane-only") as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]


@pytest.mark.parametrize("starttls", [b"454 4.7.0 no\r\n", Act.GARBAGE, b""])
async def test_a_host_with_records_gets_nothing_in_the_clear(
    tmp_path: Path, authority: Authority, starttls: Any
) -> None:
    issued = authority.issue(HOST)
    server = ScriptedServer({"STARTTLS": starttls}, keywords=OFFERED if starttls else ("PIPELINING",))
    async with site(tmp_path, issued, [tlsa(issued)], server=server) as at:
        assert outcomes(await at.sender.send())[0][1] in ("4.7.4", "4.7.5")
        assert all("MAIL" not in session.verbs for session in server.sessions)


async def test_a_host_with_an_alias_may_have_its_records_at_either_name(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("real.example.org")
    more = {f"{HOST} CNAME": ["real.example.org."], "real.example.org A": ["127.0.0.1"]}
    async with site(tmp_path, issued, [tlsa(issued)], host="real.example.org", more=more) as at:
        assert (await at.sender.send()).tls_level == "dane: TLSA 3 1 1 of real.example.org"
    async with site(tmp_path, issued, [tlsa(issued)], host=HOST, more={**more}) as at:
        at.names.records.pop(f"{HOST} A")
        result = await at.sender.send()
        assert outcomes(result) == DELIVERED


async def test_a_connection_to_the_same_host_is_not_used_for_a_domain_with_dane_only(
    tmp_path: Path, authority: Authority
) -> None:
    """The MX record of the one domain is not signed, so that its connection is checked by nothing."""
    issued, other = authority.issue("other.test"), authority.issue(HOST)
    more = {"plain.org MX": [f"10 {HOST}."], "strict.test MX": [f"10 {HOST}."]}
    async with site(tmp_path, issued, [tlsa(other)], signed=("example.org", "strict.test"), more=more) as at:
        assert outcomes(await at.sender.send(host="plain.org")) == DELIVERED
        assert outcomes(await at.sender.send(host="strict.test")) == [("deferred", "4.7.5")]
        assert len(at.server.messages) == 1


async def test_levels_without_dane_ask_for_no_tlsa_records(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue(HOST)
    async with site(tmp_path, issued, [tlsa(authority.issue(HOST))], level="may") as at:
        assert outcomes(await at.sender.send()) == DELIVERED
        assert not [each for each in at.names.asked if each.endswith("TLSA")]
