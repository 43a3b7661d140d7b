"""The level of encryption that was demanded is the level that mail leaves with. Everything over real sockets and a real CA."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.tls.policy import Policies
from tests.deliverer.authority import DAY, Authority, Issued
from tests.deliverer.delivery import FixedHosts, Sender, outcomes, words
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

OFFERED = ("PIPELINING", "STARTTLS")
DELIVERED = [("delivered", "2.0.0")]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def sender_with(directory: Path, port: int, policies: dict[str, TlsPolicy], ca: Authority | None = None) -> Sender:
    found = Policies(policies, 25, str(ca.file) if ca is not None else "")
    return Sender(directory, port, FixedHosts("127.0.0.1"), policies=found)


async def refused(directory: Path, issued: Issued, ca: Authority | None, policy: TlsPolicy) -> str:
    """The words with which mail to example.org is deferred; nothing of it was sent."""
    async with serving(ScriptedServer(keywords=OFFERED, tls=issued.server(directory))) as server:
        result = await sender_with(directory, server.port, {"example.org": policy}, ca).send()
        assert outcomes(result) == [("deferred", "4.7.5")]
        assert (result.tls, result.tls_level, result.tls_verified) == ("", "verify: [tls_policy] example.org", False)
        assert not server.messages
        assert all("MAIL" not in session.verbs for session in server.sessions)
    return words(result)


async def test_verify_sends_to_a_server_with_a_certificate_for_the_next_hop(
    tmp_path: Path, authority: Authority
) -> None:
    tls = authority.issue("mx.example.net", "example.org").server(tmp_path)
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        sender = sender_with(tmp_path, server.port, {"example.org": TlsPolicy(level="verify")}, authority)
        result = await sender.send()
        assert outcomes(result) == DELIVERED
        assert result.tls.startswith("TLSv1.3 TLS_")
        assert (result.tls_level, result.tls_verified) == ("verify: [tls_policy] example.org", True)
        again = await sender.send()
        assert (again.tls_level, again.tls_verified, len(server.sessions)) == (result.tls_level, True, 1)


async def test_the_name_of_the_mx_host_is_not_enough(tmp_path: Path, authority: Authority) -> None:
    """Who answers our MX query in the place of the name server names a host of their own, with a good certificate."""
    found = await refused(
        tmp_path, authority.issue("mx.example.org.attacker.test"), authority, TlsPolicy(level="verify")
    )
    assert "for mx.example.org.attacker.test, but must be for example.org or .example.org" in found


@pytest.mark.parametrize(
    ("names", "changes", "reason"),
    [
        (("example.org",), {"begins": -3 * DAY, "ends": -DAY}, "certificate has expired"),
        (("example.org",), {"begins": DAY}, "certificate is not yet valid"),
        (("example.org",), {"self_signed": True}, "self-signed certificate"),
        ((), {"common_name": "example.org"}, "is for no name in subjectAltName"),
        (("other.test",), {"common_name": "example.org"}, "is for other.test, but must be for example.org"),
        (("*.org",), {}, "is for *.org"),
        (("192.0.2.1",), {}, "is for 192.0.2.1"),
    ],
)
async def test_verify_defers_for_any_other_certificate(
    tmp_path: Path, authority: Authority, names: tuple[str, ...], changes: dict[str, object], reason: str
) -> None:
    issued = authority.issue(*names, **changes)  # type: ignore[arg-type]
    assert reason in await refused(tmp_path, issued, authority, TlsPolicy(level="verify", match=("nexthop",)))


async def test_a_ca_that_is_not_in_the_file_is_not_trusted(tmp_path: Path, authority: Authority) -> None:
    other = Authority(tmp_path, "Other CA").issue("example.org")
    assert "not trusted" in await refused(tmp_path, other, authority, TlsPolicy(level="verify"))
    assert "not trusted" in await refused(tmp_path, authority.issue("example.org"), None, TlsPolicy(level="verify"))


async def test_a_ca_file_that_is_gone_defers_and_is_not_the_sites_fault(tmp_path: Path, authority: Authority) -> None:
    tls = authority.issue("example.org").server(tmp_path)
    authority.file.unlink()
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        result = await sender_with(tmp_path, server.port, {"example.org": TlsPolicy(level="verify")}, authority).send()
        assert (outcomes(result), result.site_failure) == ([("deferred", "4.3.5")], False)
        assert not result.transport_failure  # mail to all other next hops goes on
        assert "cannot read the certificates of CAs" in words(result)


async def test_a_ca_file_that_changes_is_read_again(tmp_path: Path, authority: Authority) -> None:
    """A bad new one keeps the old one in use, and is said once; CAs that are taken out of the file are not trusted any more."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "Other CA")
    said: list[tuple[str, str]] = []
    tls = authority.issue("example.org").server(tmp_path)
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        policies = Policies({"example.org": TlsPolicy(level="verify")}, 25, str(authority.file))
        sender = Sender(
            tmp_path,
            server.port,
            policies=policies,
            complain=lambda *each: said.append(each),
            connection_uses_max=1,
        )
        assert outcomes(await sender.send()) == DELIVERED
        pem = authority.file.read_bytes()
        authority.file.write_bytes(b"not a certificate")
        for _ in range(2):
            assert outcomes(await sender.send()) == DELIVERED
        assert [path for path, _ in said] == [str(authority.file)]
        authority.file.write_bytes(other.file.read_bytes())
        assert "not trusted" in words(await sender.send())
        authority.file.write_bytes(pem)
        assert outcomes(await sender.send()) == DELIVERED
        assert len(said) == 1


@pytest.mark.parametrize("level", ["encrypt", "verify"])
@pytest.mark.parametrize(
    ("keywords", "starttls", "dsn", "reason"),
    [
        (("PIPELINING",), b"", "4.7.4", "TLS is required, but was not offered"),
        (OFFERED, b"454 4.7.0 TLS not available\r\n", "4.7.4", "refused to start TLS: 454 4.7.0"),
        (OFFERED, Act.GARBAGE, "4.7.5", "Cannot start TLS with"),
        (OFFERED, Act.HANG_UP, "4.7.5", "Cannot start TLS with"),
    ],
)
async def test_without_tls_nothing_is_sent(
    tmp_path: Path, level: str, keywords: tuple[str, ...], starttls: Answer, dsn: str, reason: str
) -> None:
    """A peer in between that strips STARTTLS, refuses it or breaks the handshake gets no mail."""
    async with serving(ScriptedServer({"STARTTLS": starttls}, keywords=keywords)) as server:
        sender = sender_with(tmp_path, server.port, {".org": TlsPolicy(level=level)})
        for _ in range(2):
            result = await sender.send()
            assert outcomes(result) == [("deferred", dsn)]
            assert reason in words(result)
            assert (result.tls, result.tls_level) == ("", f"{level}: [tls_policy] .org")
        assert all("MAIL" not in session.verbs for session in server.sessions)


async def test_a_connection_under_may_is_not_used_for_verify(tmp_path: Path, authority: Authority) -> None:
    """Same transport, same next hop, same address: only the policy differs."""
    tls = authority.issue("other.test").server(tmp_path)
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        policies = {"strict.example.org": TlsPolicy(level="verify")}
        sender = sender_with(tmp_path, server.port, policies, authority)
        assert outcomes(await sender.send(host="example.org")) == DELIVERED
        assert outcomes(await sender.send(host="strict.example.org")) == [("deferred", "4.7.5")]
        assert len(server.messages) == 1


async def test_a_connection_verified_for_one_name_is_not_used_for_another(tmp_path: Path, authority: Authority) -> None:
    """Two domains on one host: the certificate of the first says nothing of the second."""
    tls = authority.issue("one.test").server(tmp_path)
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        policies = {"one.test": TlsPolicy(level="verify"), "two.test": TlsPolicy(level="verify")}
        sender = sender_with(tmp_path, server.port, policies, authority)
        assert outcomes(await sender.send(host="one.test")) == DELIVERED
        assert outcomes(await sender.send(host="two.test")) == [("deferred", "4.7.5")]
        assert len(server.messages) == 1


async def test_a_connection_in_the_clear_after_a_broken_handshake_is_not_used_for_encrypt(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"STARTTLS": Act.GARBAGE}, keywords=OFFERED)) as server:
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send(tls="may")) == DELIVERED
        assert outcomes(await sender.send(tls="encrypt")) == [("deferred", "4.7.5")]


@pytest.mark.parametrize(
    ("starttls", "reason"),
    [(Act.GARBAGE, "handshake failure"), (b"454 4.7.0 not now\r\n", "refused to start TLS: 454 4.7.0 not now")],
)
async def test_mail_in_the_clear_instead_of_tls_says_so_each_time(
    tmp_path: Path, starttls: Answer, reason: str
) -> None:
    async with serving(ScriptedServer({"STARTTLS": starttls}, keywords=OFFERED)) as server:
        sender = Sender(tmp_path, server.port, connection_uses_max=1)
        for _ in range(2):  # the second connection says no STARTTLS any more after a broken handshake
            result = await sender.send(tls="may")
            assert (outcomes(result), result.tls, result.tls_verified) == (DELIVERED, "", False)
            assert result.tls_level.startswith("may: sent in the clear: ")
            assert reason in result.tls_level


async def test_the_level_and_its_reason_are_recorded(tmp_path: Path, authority: Authority) -> None:
    """Also of mail in the clear under "none". Only "may" of a transport, which is the default, has no reason."""
    tls = authority.issue("example.org").server(tmp_path)
    async with serving(ScriptedServer(keywords=("PIPELINING",))) as server:
        result = await Sender(tmp_path, server.port).send(tls="may")
        assert (outcomes(result), result.tls_level) == (DELIVERED, "may: sent in the clear: TLS not offered")
        assert (await Sender(tmp_path, server.port).send(tls="none")).tls_level == "none: [transports.smtp]"
        for level, more in (("none", ""), ("may", "; sent in the clear: TLS not offered")):
            sender = sender_with(tmp_path, server.port, {".org": TlsPolicy(level=level)})
            assert (await sender.send()).tls_level == f"{level}: [tls_policy] .org{more}"
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls)) as server:
        sender = Sender(tmp_path, server.port)
        found = [(await sender.send(tls=level)).tls_level for level in ("none", "may", "encrypt")]
        assert found == ["none: [transports.smtp]", "may", "encrypt: [transports.smtp]"]
        policy = sender_with(tmp_path, server.port, {"example.org": TlsPolicy(level="may")})
        assert (await policy.send()).tls_level == "may: [tls_policy] example.org"


async def test_a_host_that_was_not_talked_to_has_no_level(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"GREETING": b"554 5.7.1 go away\r\n"})) as server:
        assert (await Sender(tmp_path, server.port).send(tls="encrypt")).tls_level == ""
    assert (await Sender(tmp_path, server.port).send(tls="encrypt")).tls_level == ""


async def test_what_is_injected_behind_the_220_never_speaks_for_the_server(
    tmp_path: Path, authority: Authority
) -> None:
    injected = b"220 go\r\n250-evil\r\n250 AUTH PLAIN\r\n250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 go\r\n250 2.0.0 taken\r\n"
    answers: dict[str, Answer | list[Answer]] = {"STARTTLS": injected}
    tls = authority.issue("example.org").server(tmp_path)
    async with serving(ScriptedServer(answers, keywords=OFFERED, tls=tls)) as server:
        sender = sender_with(tmp_path, server.port, {"example.org": TlsPolicy(level="verify")}, authority)
        result = await sender.send()
        if server.messages:
            assert words(result) == "250 2.0.0 Ok: queued as 4F"
        else:
            assert outcomes(result)[0][0] == "deferred"
