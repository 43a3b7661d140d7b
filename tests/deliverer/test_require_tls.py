"""REQUIRETLS: such a message leaves over TLS with a checked certificate to hosts that offer the same, or it is returned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.frames import Delivered
from mailcore.routing.mx import Address
from mailcore.tls.policy import Policies
from tests.deliverer.authority import Authority, Issued
from tests.deliverer.delivery import BODY, FixedHosts, Sender, outcomes, words
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.deliverer.test_dane import site, tlsa

CLEAR = ("PIPELINING", "STARTTLS")
SECRET = ("PIPELINING", "REQUIRETLS")
WAIVED = b"Subject: x\r\ntls-required: no\r\n\r\nx\r\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_of(issued: Issued, directory: Path, keywords: tuple[str, ...] = SECRET) -> ScriptedServer:
    return ScriptedServer(keywords=CLEAR, keywords_in_tls=keywords, tls=issued.server(directory))


async def required(sender: Sender, body: bytes = BODY) -> Delivered:
    work = msgspec.structs.replace(sender.work(body=body), options=(("REQUIRETLS", ""),))
    return await sender.deliver(work)


def sender_of(
    directory: Path, port: int, ca: Authority, level: str = "may", finder: FixedHosts | None = None
) -> Sender:
    policies = Policies({"example.org": TlsPolicy(level=level)}, 25, str(ca.file))
    return Sender(directory, port, finder or FixedHosts("127.0.0.1"), policies=policies)


@pytest.mark.parametrize("level", ["none", "may", "encrypt", "verify"])
async def test_it_is_passed_on_over_checked_tls(tmp_path: Path, authority: Authority, level: str) -> None:
    async with serving(server_of(authority.issue("mx.example.org"), tmp_path)) as server:
        sender = sender_of(tmp_path, server.port, authority, level)
        result = await required(sender)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    assert result.tls_verified
    assert result.tls_level == ("verify: [tls_policy] example.org" if level == "verify" else "verify: REQUIRETLS")
    assert "MAIL FROM:<from@example.net> REQUIRETLS" in server.sessions[0].lines


@pytest.mark.parametrize("level", ["may", "verify"])
async def test_a_host_that_does_not_offer_it_gets_nothing(tmp_path: Path, authority: Authority, level: str) -> None:
    async with serving(server_of(authority.issue("mx.example.org"), tmp_path, CLEAR)) as server:
        sender = sender_of(tmp_path, server.port, authority, level)
        plain = await sender.send()  # its connection is kept
        result = await required(sender)
        sender.close()
    assert outcomes(plain) == [("delivered", "2.0.0")]
    assert outcomes(result) == [("bounced", "5.7.30")]
    assert words(result) == "REQUIRETLS is required, but was not offered by host mx.example.org[127.0.0.1]"
    assert len(server.messages) == 1


async def test_another_host_that_offers_it_is_tried(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("mx.example.org")
    async with (
        serving(server_of(issued, tmp_path, CLEAR)) as first,
        serving(server_of(issued, tmp_path), "127.0.0.2", first.port) as second,
    ):
        sender = sender_of(tmp_path, first.port, authority, finder=FixedHosts("127.0.0.1", "127.0.0.2"))
        result = await required(sender)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    assert (len(first.messages), len(second.messages)) == (0, 1)


@pytest.mark.parametrize("kind", ["another name", "unknown CA", "no TLS"])
async def test_without_a_checked_certificate_it_is_returned(tmp_path: Path, authority: Authority, kind: str) -> None:
    (tmp_path / "other").mkdir()
    issuer = Authority(tmp_path / "other") if kind == "unknown CA" else authority
    issued = issuer.issue("elsewhere.test" if kind == "another name" else "mx.example.org")
    made = ScriptedServer(keywords=SECRET) if kind == "no TLS" else server_of(issued, tmp_path)
    async with serving(made) as server:
        sender = sender_of(tmp_path, server.port, authority)
        result = await required(sender)
        sender.close()
    assert outcomes(result) == [("bounced", "5.7.10")]
    assert not any(verb == "MAIL" for session in server.sessions for verb in session.verbs)


async def test_a_host_that_cannot_be_reached_is_tried_again(tmp_path: Path, authority: Authority) -> None:
    async with serving(server_of(authority.issue("mx.example.org"), tmp_path)) as server:
        port = server.port
    assert outcomes(await required(sender_of(tmp_path, port, authority))) == [("deferred", "4.4.1")]


@pytest.mark.parametrize("secure", [True, False])
async def test_the_name_of_an_mx_host_counts_if_dnssec_says_it(
    tmp_path: Path, authority: Authority, secure: bool
) -> None:
    finder = FixedHosts("127.0.0.1")
    finder._fixed = (Address("mx.provider.test", "127.0.0.1", secure),)
    async with serving(server_of(authority.issue("mx.provider.test"), tmp_path)) as server:
        sender = sender_of(tmp_path, server.port, authority, finder=finder)
        result = await required(sender)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0") if secure else ("bounced", "5.7.10")]


async def test_tlsa_records_check_the_certificate_too(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue("other.test")
    server = server_of(issued, tmp_path)
    async with site(tmp_path, issued, [tlsa(issued)], level="may", server=server) as found:
        result = await required(found.sender)
        found.sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    assert result.tls_verified


async def test_a_header_lifts_what_the_domain_publishes_and_no_more(tmp_path: Path, authority: Authority) -> None:
    issued, other = authority.issue("mx.example.org"), authority.issue("mx.example.org")
    async with site(tmp_path, issued, [tlsa(other)]) as found:
        assert outcomes(await found.sender.send()) == [("deferred", "4.7.5")]
        waived = await found.sender.send(body=WAIVED)
        assert outcomes(waived) == [("delivered", "2.0.0")]
        assert waived.tls_level == "may: dane, the message says TLS-Required: No"
        assert [verdict[0] for verdict in outcomes(await required(found.sender, WAIVED))] == ["bounced"]
        found.sender.close()
    async with serving(server_of(authority.issue("elsewhere.test"), tmp_path)) as server:
        sender = sender_of(tmp_path, server.port, authority, "verify")
        assert outcomes(await sender.send(body=WAIVED)) == [("deferred", "4.7.5")]
        sender.close()


@pytest.mark.parametrize("keywords", [SECRET, CLEAR], ids=["offered", "not offered"])
async def test_a_report_is_not_lost_for_a_host_that_does_not_offer_it(
    tmp_path: Path, authority: Authority, keywords: tuple[str, ...]
) -> None:
    """RFC 8689 5: it leaves over checked TLS, with REQUIRETLS if it can. Its connection is not kept for other mail."""
    async with serving(server_of(authority.issue("mx.example.org"), tmp_path, keywords)) as server:
        sender = sender_of(tmp_path, server.port, authority)
        work = msgspec.structs.replace(sender.work(), options=(("REQUIRETLS", ""),), sender="")
        result = await sender.deliver(work)
        other = await required(sender)
        sender.close()
    assert outcomes(result) == [("delivered", "2.0.0")]
    assert result.tls_verified
    assert ("MAIL FROM:<> REQUIRETLS" if keywords == SECRET else "MAIL FROM:<>") in server.sessions[0].lines
    assert outcomes(other) == [("delivered", "2.0.0") if keywords == SECRET else ("bounced", "5.7.30")]
    assert len(server.sessions) == (1 if keywords == SECRET else 2)


async def test_a_report_leaves_over_checked_tls_only(tmp_path: Path, authority: Authority) -> None:
    async with serving(server_of(authority.issue("elsewhere.test"), tmp_path, CLEAR)) as server:
        sender = sender_of(tmp_path, server.port, authority)
        work = msgspec.structs.replace(sender.work(), options=(("REQUIRETLS", ""),), sender="")
        result = await sender.deliver(work)
        sender.close()
    assert outcomes(result) == [("bounced", "5.7.10")]
    assert not server.messages
