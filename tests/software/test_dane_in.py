"""Debian's Postfix and Exim send to us by DANE: they check our certificate by a TLSA record of a zone that BIND has signed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.deliverer.authority import Authority, Issued
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.running.running_core import RunningCore
from tests.software.core import core_with, exact, smtp_session, tls_files, with_key
from tests.software.exim import PACKAGES, Exim, exim
from tests.software.own_network import ADDRESS, in_own_network
from tests.software.postfix import Postfix, postfix
from tests.software.programs import open_directory, run
from tests.software.signed_zone import validating_server
from tests.software.test_postfix import MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

DOMAIN = "signed.test"
HOST = f"mx.{DOMAIN}"
RECIPIENT = f"b@{DOMAIN}"
PAGE = Path(__file__).parents[2] / "docs" / "submission.md"
WRONG = f"3 1 1 {'0' * 64}"


class Site:
    """A client, our core that its mail goes to, and the next hop behind that."""

    def __init__(self, client: Postfix | Exim, core: RunningCore, behind: ScriptedServer) -> None:
        self.client = client
        self.core = core
        self.behind = behind

    async def send(self, sender: str) -> None:
        """Hands a message in at the client."""
        if isinstance(self.client, Exim):
            await in_thread(smtp_session, self.client.port, sender, [RECIPIENT], MESSAGE, [], [])
        else:
            await self.client.sendmail("-f", sender, RECIPIENT, message=MESSAGE.replace(b"\r\n", b"\n"))

    async def arrives(self, sender: str, common_name: str) -> None:
        """Waits for the message of this sender at the next hop, and checks that it came by DANE with this certificate."""

        def found() -> list[bytes]:
            return [each.data for each in self.behind.messages if each.sender.startswith(f"<{sender}>")]

        await eventually(found, lambda: self.client.log)
        await eventually(lambda: self._sent(sender), lambda: self.client.log)
        if isinstance(self.client, Exim):
            assert re.search(rf' CV=dane DN="CN={common_name}" ', self._sent(sender)), self.client.log
        else:
            seen, how = (
                rf" {HOST}\[{ADDRESS}\]:25: subject_CN={common_name}, ",
                " Verified TLS connection established to ",
            )
            assert re.search(rf"{seen}.*\n.*{how}{HOST}\[", self.client.log), self.client.log
        (data,) = found()
        assert re.match(rb"Received: from .*\r\n\tby mx\.waypost\.test \(Waypost\) with ESMTPS id ", data)
        assert exact(data, MESSAGE)
        (accepted,) = [line for line in self.events("accepted") if line["sender"] == sender]
        assert accepted["tls"].startswith("TLSv1.3")

    def _sent(self, sender: str) -> str:
        """Returns the client's log line of the delivery; "" while there is none."""
        if isinstance(self.client, Exim):
            pattern = rf"^.* => {re.escape(RECIPIENT)} F=<{sender}> .*$"
        else:
            pattern = rf"^.* to=<{re.escape(RECIPIENT)}>, relay={HOST}\[{ADDRESS}\]:25, .* status=sent .*$"
        found = re.search(pattern, self.client.log, re.MULTILINE)
        return found[0] if found is not None else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.core.log() if line["event"] == name]


@contextlib.asynccontextmanager
async def client_of(kind: str, directory: Path, authority: Authority) -> AsyncIterator[Postfix | Exim]:
    """A client that sends by DANE or not at all, and logs whose certificate it saw."""
    if kind == "exim":
        pem = tls_files(directory, authority, "exim.example.test")
        async with exim(directory, 25, pem, "  hosts_require_dane = *\n", "driver = dnslookup") as sender:
            yield sender
        return
    settings = {
        "smtp_tls_security_level": "dane-only",
        "smtp_dns_support_level": "dnssec",
        "smtp_tls_loglevel": "2",
    }
    async with postfix(directory, settings) as made:
        yield made


@contextlib.asynccontextmanager
async def site(
    kind: str, tmp_path: Path, pem: Path, tlsa: Sequence[str], certificates: Sequence[Mapping[str, object]] = ()
) -> AsyncIterator[Site]:
    """``tlsa`` are the records of port 25 of our receiver, whose certificate is ``pem``."""
    zone = tmp_path / "zone"
    zone.mkdir()
    records = f"@ IN MX 10 mx\nmx IN A {ADDRESS}\n" + "".join(f"_25._tcp.mx IN TLSA {each}\n" for each in tlsa)
    sections: dict[str, dict[str, object]] = {
        "receiver": {"tls_certificate": str(pem), "tls_key": str(pem)},
        "relay": {"domains": [DOMAIN]},
    }
    listeners = [{"address": f"{ADDRESS}:25"}]
    with open_directory() as directory:
        authority = Authority(directory)
        async with (
            validating_server(zone, {DOMAIN: records}, 53),
            serving(ScriptedServer()) as behind,
            core_with(tmp_path, behind.port, authority, sections, {}, listeners, certificates) as core,
            client_of(kind, directory, authority) as client,
        ):
            yield Site(client, core, behind)


def written(file: Path, issued: Issued) -> Path:
    """Puts a certificate in the place of the one before, as a program does that renews it."""
    new = file.with_suffix(".new")
    new.write_bytes(with_key(issued))
    return new.rename(file)


async def documented(begin: str, *replaced: tuple[str, str]) -> str:
    """Runs the command of docs/submission.md that begins so, with other values; returns what it prints."""
    found = re.search(rf"^    ({begin} .+)$", PAGE.read_text(), re.MULTILINE)
    assert found is not None
    command = found[1]
    for old, new in replaced:
        assert old in command
        command = command.replace(old, new)
    return await run("sh", "-c", command)


async def to_publish(pem: Path) -> str:
    """Returns the TLSA record of a certificate."""
    output = await documented("openssl x509", ("/etc/waypost/tls/certificate.pem", str(pem)))
    return f"3 1 1 {output.split()[-1]}"


async def tried(record: str) -> str:
    """Returns the output of the command by which operators test a record after a change."""
    return await documented("openssl s_client -starttls", ("mail.example.org", HOST), ("3 1 1 HASH", record))


@pytest.mark.parametrize("chosen", ["the-only-one", "by-name"])
@pytest.mark.parametrize("kind", ["postfix", "exim"])
@in_own_network(*PACKAGES)
async def test_a_client_verifies_our_certificate(tmp_path: Path, kind: str, chosen: str) -> None:
    """A self-signed one with another name, and one of several: a client with DANE asks for the name of the MX host."""
    authority = Authority(tmp_path)
    issued = authority.issue("another.name.test", common_name="published", self_signed=True)
    published = written(tmp_path / "published.pem", issued)
    first, further = published, []
    if chosen == "by-name":
        first = written(tmp_path / "other.pem", authority.issue("mx.other.test", common_name="other"))
        further = [{"names": [HOST], "certificate": str(published), "key": str(published)}]
    async with site(kind, tmp_path, first, [await to_publish(published)], further) as ours:
        await ours.send("a@example.test")
        await ours.arrives("a@example.test", "published")
        assert "Verification: OK" in await tried(await to_publish(published))


@pytest.mark.parametrize("kind", ["postfix", "exim"])
@in_own_network(*PACKAGES)
async def test_by_a_record_that_does_not_match_nothing_comes(tmp_path: Path, kind: str) -> None:
    pem = written(tmp_path / "certificate.pem", Authority(tmp_path).issue(HOST))
    async with site(kind, tmp_path, pem, [WRONG]) as ours:
        await ours.send("a@example.test")
        deferred = {
            "postfix": rf" to=<{RECIPIENT}>, relay={HOST}\[.* dsn=4\.7\.5, status=deferred \(Server certificate not verified\)",
            "exim": rf" == {RECIPIENT} .* H={HOST} .* TLS session: \(certificate verification failed\)",
        }[kind]
        await eventually(lambda: re.search(deferred, ours.client.log), lambda: ours.client.log)
        assert not ours.events("accepted")
        assert (await ours.core.size())["messages"] == 0
        assert not ours.behind.messages
        assert "Verification error: no matching DANE TLSA records" in await tried(WRONG)


@pytest.mark.parametrize("key", ["the-same", "announced-before"])
@pytest.mark.parametrize("kind", ["postfix", "exim"])
@in_own_network(*PACKAGES)
async def test_a_renewed_certificate_is_verified(tmp_path: Path, kind: str, key: str) -> None:
    """Without a restart: with the same key by the same record, with another key by its record beside the one before."""
    authority = Authority(tmp_path)
    before = authority.issue(HOST, common_name="before")
    after = authority.issue(HOST, common_name="after", key=before.key if key == "the-same" else None)
    pem = written(tmp_path / "certificate.pem", before)
    records = {await to_publish(each) for each in (pem, written(tmp_path / "next.pem", after))}
    assert len(records) == (1 if key == "the-same" else 2)
    async with site(kind, tmp_path, pem, sorted(records)) as ours:
        await ours.send("a@example.test")
        await ours.arrives("a@example.test", "before")
        reads = len(ours.events("certificate_read"))  # each receiver has read it at its start
        written(pem, after)
        await eventually(lambda: len(ours.events("certificate_read")) == 2 * reads, "the new certificate")
        await ours.send("c@example.test")
        await ours.arrives("c@example.test", "after")
