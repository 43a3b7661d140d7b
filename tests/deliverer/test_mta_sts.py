"""MTA-STS: a real web server with a certificate of a real CA, a name server on loopback, and the disk between two lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.deliverer.mta_sts import RETRY_S, StsPolicies
from mailcore.deliverer.sts_fetch import POLICY_BYTES_MAX, PolicyFetcher
from mailcore.deliverer.sts_policy import PolicyError, allows, parse_policy, record_id
from mailcore.routing.mx import FAILURE_TTL_S, HostFinder
from mailcore.tls.policy import Policies
from tests.deliverer.authority import DAY, Authority
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.dns_server import NameServer, answering
from tests.deliverer.scripted_server import ScriptedServer, serving

DELIVERED = [("delivered", "2.0.0")]
OFFERED = ("PIPELINING", "STARTTLS")
HOST = "mx.example.org"
ENFORCE = f"version: STSv1\r\nmode: enforce\r\nmx: {HOST}\r\nmx: *.other.test\r\nmax_age: 86400\r\n"


def page(
    body: str | bytes = ENFORCE, *, status: str = "200 OK", kind: str = "text/plain; charset=utf-8", more: str = ""
) -> bytes:
    content = body if isinstance(body, bytes) else body.encode()
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    return f"HTTP/1.1 {status}\r\n{typed}Content-Length: {len(content)}\r\n{more}\r\n".encode() + content


class Web:
    """Answers every request with ``answer``; remembers paths and names asked for."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head.split("\r\n")[0] + " " + head.split("Host: ")[1].split("\r\n")[0])
            writer.write(self.answer)
            await writer.drain()
        writer.close()


class Site:
    """A domain with an MX host, a TXT record, a web server, and our client; ``restart`` forgets all but the disk."""

    def __init__(
        self, directory: Path, authority: Authority, server: ScriptedServer, names: NameServer, web: Web
    ) -> None:
        self.directory, self.authority, self.server, self.names, self.web = directory, authority, server, names, web
        self.kept = directory / "mta-sts"
        self.now = 0.0  # of both clocks
        self.kept_max = 100
        self.not_kept: list[str] = []
        self.restart()

    def restart(self) -> None:
        finder = HostFinder(
            (self.names.text,), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: self.now,
            hosts_file=self.directory / "no-hosts",
        )  # fmt: skip
        ca = str(self.authority.file)
        fetcher = PolicyFetcher(finder, ca, 5.0, self.web.port)
        begun = time.time()
        self.policies = StsPolicies(
            self.kept, finder, fetcher, self.kept_max, lambda: begun + self.now, lambda: self.now, self.not_kept.append
        )
        policies = Policies({".org": TlsPolicy(level="mta-sts"), ".test": TlsPolicy(level="mta-sts")}, 25, ca)
        self.sender = Sender(self.directory, self.server.port, finder, policies=policies, sts=self.policies)

    def record(self, identifier: str | None, domain: str = "example.org") -> None:
        self.names.records.pop(f"_mta-sts.{domain} TXT", None)
        if identifier is not None:
            self.names.records[f"_mta-sts.{domain} TXT"] = [f'"v=STSv1; id={identifier};"']


@contextlib.asynccontextmanager
async def site(
    directory: Path,
    answer: bytes = b"",
    *,
    names: tuple[str, ...] = (HOST,),
    web_names: tuple[str, ...] = ("mta-sts.example.org",),
    keywords: tuple[str, ...] = OFFERED,
    changes: dict[str, Any] | None = None,
) -> AsyncIterator[Site]:
    authority = Authority(directory)
    server = ScriptedServer(keywords=keywords, tls=authority.issue(*names, **(changes or {})).server(directory))
    web = Web(answer or page())
    context: ssl.SSLContext = authority.issue(*web_names).server(directory)
    listening = await asyncio.start_server(web.serve, "127.0.0.1", 0, ssl=context)
    web.port = listening.sockets[0].getsockname()[1]
    records = {"example.org MX": [f"10 {HOST}."], f"{HOST} A": ["127.0.0.1"], "mta-sts.example.org A": ["127.0.0.1"]}
    try:
        async with serving(server), answering(NameServer(records)) as dns:
            at = Site(directory, authority, server, dns, web)
            at.record("a1")
            yield at
    finally:
        listening.close()


async def test_an_enforced_policy_checks_the_name_of_the_mx_host(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        result = await at.sender.send()
        assert outcomes(result) == DELIVERED
        assert (result.tls_level, result.tls_verified) == ("mta-sts: policy of example.org", True)
        assert outcomes(await at.sender.send()) == DELIVERED
        assert at.web.requests == ["GET /.well-known/mta-sts.txt HTTP/1.1 mta-sts.example.org"]
        assert len(at.server.sessions) == 1


@pytest.mark.parametrize(
    ("names", "changes", "keywords"),
    [
        (("example.org",), {}, OFFERED),  # the domain's name is not enough here: the policy names hosts
        ((HOST,), {"ends": -DAY / 2}, OFFERED),
        ((HOST,), {"self_signed": True}, OFFERED),
        ((), {"common_name": HOST}, OFFERED),
        ((HOST,), {}, ("PIPELINING",)),
    ],
)
async def test_a_host_that_does_not_fulfil_the_policy_gets_nothing(
    tmp_path: Path, names: tuple[str, ...], changes: dict[str, Any], keywords: tuple[str, ...]
) -> None:
    async with site(tmp_path, names=names, changes=changes, keywords=keywords) as at:
        result = await at.sender.send()
        assert outcomes(result)[0] in (("deferred", "4.7.4"), ("deferred", "4.7.5"))
        assert all("MAIL" not in session.verbs for session in at.server.sessions)


async def test_an_mx_host_that_the_policy_does_not_name_is_not_even_called(tmp_path: Path) -> None:
    async with site(tmp_path, page(ENFORCE.replace(HOST, "mx2.example.org")), names=(HOST,)) as at:
        result = await at.sender.send()
        assert (outcomes(result), at.server.sessions) == ([("deferred", "4.7.5")], [])
        assert f"host {HOST} is not in the MTA-STS policy of example.org" in words(result)


async def test_a_policy_outlives_a_restart_and_an_attacker_who_hides_it(tmp_path: Path) -> None:
    """TXT record and web server are suppressed, and the MX host has another certificate: mail must wait."""
    async with site(tmp_path, names=("attacker.test",)) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        at.record(None)
        at.web.answer = page(status="404 Not Found")
        at.restart()
        for _ in range(2):
            assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
            at.names.bogus.add("_mta-sts.example.org TXT")
            at.restart()
        at.now = 86_401.0  # max_age is over
        result = await at.sender.send()
        why = "example.org has no policy (its TXT record could not be looked up)"
        assert (outcomes(result), result.tls_level) == (DELIVERED, f"may: mta-sts, {why}")


HOSTILE = {
    "redirect": page(b"", status="301 Moved", more="Location: https://mta-sts.example.org/other\r\n"),
    "not found": page(status="404 Not Found"),
    "html": page(kind="text/html"),
    "without a type": page(kind=""),
    "too big": page(ENFORCE + "x: " + "y" * POLICY_BYTES_MAX),
    "endless header": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 60_000,
    "cut off": page()[:-10],
    "compressed": page(more="Content-Encoding: gzip\r\n"),
    "not HTTP": b"220 hello\r\n",
    "nothing": b"",
    "not UTF-8": page(b"\xff\xfe"),
    "another version": page(ENFORCE.replace("STSv1", "STSv2")),
    "no hosts": page("version: STSv1\nmode: enforce\nmax_age: 86400\n"),
    "no age": page(ENFORCE.replace("max_age", "age")),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_policy_that_cannot_be_used_does_not_replace_the_one_that_is_kept(tmp_path: Path, kind: str) -> None:
    async with site(tmp_path, names=("attacker.test",)) as at:
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        at.web.answer = HOSTILE[kind]
        at.record("b2")
        at.now = 3_601.0  # the TXT record is asked for again
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        assert len(at.web.requests) == 2
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        assert len(at.web.requests) == 2  # not for every message
        at.now += RETRY_S
        at.web.answer = page(ENFORCE.replace("enforce", "none"))
        assert outcomes(await at.sender.send()) == DELIVERED
        assert len(at.web.requests) == 3


async def test_without_a_policy_that_is_kept_the_reason_is_recorded(tmp_path: Path) -> None:
    async with site(tmp_path, page(status="302 Found")) as at:
        result = await at.sender.send()
        assert outcomes(result) == DELIVERED
        assert result.tls_level == "may: mta-sts, example.org has no policy (the web server answered 302)"


async def test_a_txt_record_that_cannot_be_looked_up_is_asked_for_again_soon(tmp_path: Path) -> None:
    """The domain may publish a policy; mail goes as under "may" only as long as the name server fails."""
    async with site(tmp_path) as at:
        at.names.bogus.add("_mta-sts.example.org TXT")
        for _ in range(2):
            result = await at.sender.send()
            assert result.tls_level == "may: mta-sts, example.org has no policy (its TXT record could not be looked up)"
        at.names.bogus.clear()
        at.now += FAILURE_TTL_S + 0.1
        assert (await at.sender.send()).tls_level == "mta-sts: policy of example.org"


async def test_the_web_server_must_have_a_certificate_for_its_name(tmp_path: Path) -> None:
    async with site(tmp_path, web_names=("example.org",)) as at:
        result = await at.sender.send()
        assert "the certificate of https://mta-sts.example.org is not valid" in result.tls_level
        assert at.web.requests == []


@pytest.mark.parametrize(("mode", "why"), [("testing", "is in testing mode"), ("none", "has no policy")])
async def test_other_modes_are_may_and_say_so(tmp_path: Path, mode: str, why: str) -> None:
    async with site(tmp_path, page(ENFORCE.replace("enforce", mode)), names=("other.test",)) as at:
        result = await at.sender.send()
        assert (outcomes(result), result.tls_verified) == (DELIVERED, False)
        assert result.tls_level.startswith("may: mta-sts, ")
        assert why in result.tls_level


async def test_a_connection_under_testing_is_not_used_when_the_policy_is_enforced(tmp_path: Path) -> None:
    async with site(tmp_path, page(ENFORCE.replace("enforce", "testing")), names=("other.test",)) as at:
        assert outcomes(await at.sender.send()) == DELIVERED
        at.record("b2")
        at.web.answer = page()
        at.now = 3_601.0
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        assert len(at.server.messages) == 1


async def test_a_policy_is_fetched_again_at_half_its_time(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        for now, count in ((0.0, 1), (43_000.0, 1), (43_300.0, 2), (80_000.0, 2), (86_500.0, 3)):
            at.now = now
            await at.sender.send()
            assert len(at.web.requests) == count


async def test_the_disk_holds_a_bounded_number_of_policies(tmp_path: Path) -> None:
    async with site(tmp_path) as at:
        at.kept_max = 2
        at.restart()
        for number, name in enumerate(("a", "b", "c")):
            domain = f"{name}.sts.test"
            at.policies._keep(parse_policy(ENFORCE, domain, "x1", time.time()))
            os.utime(at.kept / f"{domain}.json", (number, number))
        assert sorted(path.name for path in at.kept.iterdir()) == ["b.sts.test.json", "c.sts.test.json"]


async def test_a_file_that_cannot_be_believed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(tmp_path) as at:
        await at.sender.send()
        file = at.kept / "example.org.json"
        whole = file.read_bytes()
        (at.kept / "other.test.json").write_bytes(whole)  # a file copied under another name
        assert at.policies._kept("other.test") is None
        for damage in (b"", whole[:20], whole.replace(b"86400", b"x"), b"\xff" * 100):
            file.write_bytes(damage)
            at.restart()
            assert at.policies._kept("example.org") is None
        file.write_bytes(whole)
        assert at.policies._kept("example.org") is not None
        at.restart()
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert at.policies._kept("example.org") is None


async def test_a_disk_that_cannot_be_written_is_reported_and_the_policy_holds(tmp_path: Path) -> None:
    async with site(tmp_path, names=("attacker.test",)) as at:
        at.kept.write_text("not a directory")
        assert outcomes(await at.sender.send()) == [("deferred", "4.7.5")]
        assert at.not_kept == [f"example.org: {at.kept}: File exists"]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["v=STSv1; id=20160831085700Z;"], "20160831085700Z"),
        (["v=spf1 -all", "v=STSv1;id=1"], "1"),
        (["v=STSv1; id=1;", "v=STSv1; id=2;"], ""),
        (["v=STSv1; id=a b;"], ""),
        (["v=STSv1;"], ""),
        (["v=STSv10; id=1"], ""),
        (["id=1; v=STSv1"], ""),
        ([f"v=STSv1; id={'1' * 33};"], ""),
        ([], ""),
    ],
)
def test_a_txt_record_has_an_id_or_not(texts: list[str], found: str) -> None:
    assert record_id(texts) == found


def test_a_policy_is_read_as_the_rfc_says() -> None:
    found = parse_policy(
        "version: STSv1\nmode: enforce\nmx: MX1.Example.org\nmx: *.b.test\nmax_age: 604800\n", "d", "1", 5.0
    )
    assert (found.mode, found.hosts, found.max_age_s) == ("enforce", ("mx1.example.org", "*.b.test"), 604_800)
    assert not found.holds(5.0 + 604_800)
    assert found.holds(5.0 + 604_799)
    assert parse_policy(ENFORCE.replace("86400", "9999999999"), "d", "1", 0.0).max_age_s == 31_557_600
    assert parse_policy(ENFORCE + "mode: none\nfuture: x\n", "d", "1", 0.0).mode == "enforce"
    for wrong in ("mx: *", "mx: a.*.org", "mx: ", "a line", "mx: 1 2"):
        with pytest.raises(PolicyError):
            parse_policy(ENFORCE + wrong + "\n", "d", "1", 0.0)
    for age in ("x", "-1", "1e9", "99999999999"):
        with pytest.raises(PolicyError):
            parse_policy(ENFORCE.replace("86400", age), "d", "1", 0.0)


def test_a_wildcard_stands_for_one_label() -> None:
    patterns = ("mx.a.test", "*.b.test")
    assert [allows(patterns, host) for host in ("mx.a.test", "MX.A.test.", "x.b.test")] == [True] * 3
    assert not any(allows(patterns, host) for host in ("b.test", "y.x.b.test", "a.test", "xb.test", ""))
