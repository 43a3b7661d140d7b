"""The encryption of probes: the same as of mail, because a man in the middle could refuse every recipient for good."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.frames import NextHop
from mailcore.receiver.probe import Answer, Outcome, Prober, Question
from mailcore.routing.mx import HostFinder
from mailcore.tls.policy import Policies
from tests.deliverer.authority import Authority, Issued
from tests.deliverer.dns_server import NameServer, answering
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.deliverer.test_dane import HOST, tlsa
from tests.receiver.configured_receiver import configured

TLS = ("PIPELINING", "STARTTLS")
NO = {"no@example.org": b"550 5.1.1 no such user\r\n"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Site:
    """example.org with one MX host, as a prober sees it."""

    def __init__(self, names: NameServer, server: ScriptedServer, level: str, ca_file: str) -> None:
        finder = HostFinder(
            (names.text,), addresses_max=5, own_name="", chance=random.Random(1), clock=time.monotonic,
        )  # fmt: skip
        self.names = names
        self.server = server
        self._prober = Prober(finder)
        self._hop = NextHop("example.org", server.port, True)
        self._policy = Policies({"example.org": TlsPolicy(level=level)}, 25, ca_file).of("smtp", "may", self._hop)

    async def ask(self, recipient: str) -> Answer:
        addresses = await self._prober.find(self._policy, self._hop)
        assert isinstance(addresses, tuple)
        question = Question(recipient, "", "us.example.net", self._policy)
        return await self._prober.ask(question, addresses, self._hop)


@contextlib.asynccontextmanager
async def site(
    directory: Path,
    level: str,
    authority: Authority,
    issued: Issued | None,
    *records: str,
    signed: tuple[str, ...] = ("example.org",),
    bogus: bool = False,
) -> AsyncIterator[Site]:
    """``issued`` is the server's certificate; None: it offers no STARTTLS."""
    server = ScriptedServer(refuse=NO)
    if issued is not None:
        server = ScriptedServer(refuse=NO, keywords=TLS, tls=issued.server(directory))
    async with serving(server):
        place = f"_{server.port}._tcp.{HOST} TLSA"
        given = {"example.org MX": [f"10 {HOST}."], f"{HOST} A": ["127.0.0.1"]} | (
            {place: list(records)} if records else {}
        )
        names = NameServer(given, signed=signed, bogus=(place,) if bogus else ())
        async with answering(names):
            yield Site(names, server, level, str(authority.file))


async def outcomes(at: Site) -> list[str]:
    return [(await at.ask(each)).outcome.value for each in ("kim@example.org", "no@example.org")]


@pytest.mark.parametrize("level", ["verify", "dane", "dane-only"])
async def test_a_server_with_the_right_certificate_decides(tmp_path: Path, authority: Authority, level: str) -> None:
    issued = authority.issue("example.org")
    async with site(tmp_path, level, authority, issued, tlsa(issued)) as at:
        assert await outcomes(at) == ["valid", "unknown"]
        assert all(session.tls for session in at.server.sessions)


@pytest.mark.parametrize("level", ["verify", "dane", "dane-only"])
async def test_a_man_in_the_middle_decides_nothing(tmp_path: Path, authority: Authority, level: str) -> None:
    """A refusal of his would return mail for good, and an acceptance would let mail in that must be returned later."""
    issued = authority.issue("example.org")
    impostor = authority.issue("mx.evil.test") if level == "verify" else authority.issue("example.org")
    async with site(tmp_path, level, authority, impostor, tlsa(issued)) as at:
        assert await outcomes(at) == ["undecided", "undecided"]
        assert "RCPT" not in [verb for session in at.server.sessions for verb in session.verbs]
    async with site(tmp_path, level, authority, impostor, tlsa(issued)) as at:
        assert (await at.ask("kim@example.org")).text.startswith(f"certificate of {HOST}[127.0.0.1]")


@pytest.mark.parametrize("level", ["encrypt", "verify", "dane-only"])
async def test_a_server_without_starttls_decides_nothing_where_it_gets_no_mail(
    tmp_path: Path, authority: Authority, level: str
) -> None:
    async with site(tmp_path, level, authority, None) as at:
        assert await outcomes(at) == ["undecided", "undecided"]


@pytest.mark.parametrize(("level", "signed"), [("dane", ("example.org",)), ("dane", ()), ("mta-sts", ()), ("may", ())])
async def test_a_server_without_starttls_decides_where_mail_would_go_in_the_clear(
    tmp_path: Path, authority: Authority, level: str, signed: tuple[str, ...]
) -> None:
    async with site(tmp_path, level, authority, None, signed=signed) as at:
        assert await outcomes(at) == ["valid", "unknown"]
        answer = await at.ask("kim@example.org")
        assert answer.logged == f"{answer.text}; asked in the clear: TLS not offered"
        assert answer.outcome is Outcome.VALID


@pytest.mark.parametrize("level", ["dane", "dane-only"])
async def test_a_bogus_answer_about_tlsa_records_decides_nothing(
    tmp_path: Path, authority: Authority, level: str
) -> None:
    issued = authority.issue("example.org")
    async with site(tmp_path, level, authority, issued, tlsa(issued), bogus=True) as at:
        assert await outcomes(at) == ["undecided", "undecided"]
        assert at.server.sessions == []


async def test_the_log_says_that_a_probe_went_in_the_clear(tmp_path: Path) -> None:
    """The client and the memory are given the answer of the server, and not how it was asked."""
    server = ScriptedServer({"STARTTLS": b"454 4.7.0 not today\r\n"}, keywords=TLS, refuse=NO)
    async with serving(server):
        text = f'[recipients]\nknown_by = "next_hop"\n[routes]\n"example.org" = "smtp:[127.0.0.1]:{server.port}"\n'
        async with configured(tmp_path, text) as at:
            (reply,) = await at.replies("no@example.org")
            assert reply.endswith("said: 550 5.1.1 no such user")
            place = f"127.0.0.1[127.0.0.1]:{server.port}"
            assert f"asked in the clear: host {place} refuses TLS: 454 4.7.0 not today)" in at.mail_log


async def test_a_ca_file_that_cannot_be_read_decides_nothing(tmp_path: Path, authority: Authority) -> None:
    async with site(tmp_path, "verify", authority, authority.issue("example.org")) as at:
        authority.file.unlink()
        assert (await at.ask("no@example.org")).text.startswith("cannot read the certificates of CAs in ")
        assert await outcomes(at) == ["undecided", "undecided"]
