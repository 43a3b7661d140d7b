"""Certificates: used when they change, chosen by name, and never exchanged for one that is worse."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import socket
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from mailcore.config.certificates import Pair
from mailcore.config.listeners import Listener
from mailcore.receiver.certificates import RETRY_S, Certificates
from mailcore.receiver.receiver import Receiving
from mailcore.supervisor.kept_pairs import KeptPairs, make_kept
from tests.doctor.sample_host import certificate
from tests.eventually import eventually
from tests.receiver.running_receiver import receiving, settings_in
from tests.receiver.server_in_process import any_certificate, serving

NAME = "mail.example.org"


class Logged:
    def __init__(self) -> None:
        self.read: list[str] = []
        self.refused: list[tuple[str, str]] = []

    def certificate_read(self, path: str, until: float) -> None:
        self.read.append(Path(path).name)

    def certificate_refused(self, path: str, why: str, instead: str) -> None:
        self.refused.append((why, instead))


class Files:
    """A certificate and its key in files of a directory, and the clocks."""

    def __init__(self, directory: Path, days_left: float = 90, names: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.chain, self.key = directory / "chain.pem", directory / "key.pem"
        self.log = Logged()
        self.now = time.time()
        self.monotonic = 1000.0
        self.pair = Pair(names, str(self.chain), str(self.key))
        self.write(days_left)

    def write(self, days_left: float, days_old: float = 60) -> bytes:
        pem = certificate(self.directory, NAME, days_left, days_old).read_bytes()
        self.chain.write_bytes(pem)
        self.key.write_bytes(pem)
        return pem

    def read(self, kept: KeptPairs | None = None) -> Certificates:
        return Certificates([self.pair], self.log, kept, lambda: self.now, lambda: self.monotonic)

    def look(self, certificates: Certificates) -> bool:
        """Twice, as a renewal gets a moment."""
        changed = certificates.look()
        return certificates.look() or changed


def test_another_certificate_is_used_when_the_files_change(tmp_path: Path) -> None:
    files = Files(tmp_path)
    certificates = files.read()
    first = certificates.context
    assert first is not None
    assert not files.look(certificates)
    files.write(80)
    assert files.look(certificates)
    assert certificates.context not in (None, first)
    assert files.log.read == ["chain.pem"] * 2
    assert files.log.refused == []


@pytest.mark.parametrize("fault", ["cut off", "another key", "missing", "expired", "not yet valid"])
def test_a_bad_certificate_keeps_the_one_before(tmp_path: Path, fault: str) -> None:
    files = Files(tmp_path)
    certificates = files.read()
    first = certificates.context
    if fault == "cut off":
        files.chain.write_bytes(files.chain.read_bytes()[:-200])
    elif fault == "another key":
        files.key.write_bytes(certificate(tmp_path, "other.example.org", 90).read_bytes())
    elif fault == "missing":
        files.key.unlink()
    else:
        files.write(-1) if fault == "expired" else files.write(90, -1)
    assert not files.look(certificates)
    assert certificates.context is first
    ((why, instead),) = files.log.refused
    assert instead.startswith("the one before stays in use, valid until ")
    assert why
    files.monotonic += 2 * RETRY_S
    assert not files.look(certificates)
    assert len(files.log.refused) == 1, "it is said once"
    files.write(80)
    assert files.look(certificates)
    assert certificates.context is not first


def test_a_renewal_that_is_half_written_is_not_a_fault(tmp_path: Path) -> None:
    files = Files(tmp_path)
    certificates = files.read()
    other = certificate(tmp_path, "other.example.org", 90).read_bytes()
    files.chain.write_bytes(other)
    assert not certificates.look()
    files.key.write_bytes(other)
    assert certificates.look()
    assert not certificates.look()
    assert files.log.refused == []


def test_a_certificate_becomes_valid(tmp_path: Path) -> None:
    files = Files(tmp_path)
    certificates = files.read()
    first = certificates.context
    files.write(90, -1)
    assert not files.look(certificates)
    files.now += 2 * 86_400
    files.monotonic += 2 * RETRY_S
    assert certificates.look()
    assert certificates.context is not first


def test_an_expired_one_is_better_than_none_and_worse_than_any_other(tmp_path: Path) -> None:
    """Other servers encrypt without a check, as with Postfix; a user's client refuses it."""
    files = Files(tmp_path, -5)
    certificates = files.read()
    first = certificates.context
    assert first is not None
    assert "in use all the same" in files.log.refused[0][1]
    files.write(-9)
    assert not files.look(certificates)
    files.write(-1)
    assert files.look(certificates)
    second = certificates.context
    files.monotonic += 2 * RETRY_S
    assert not certificates.look()
    files.write(9)
    assert files.look(certificates)
    assert len({first, second, certificates.context}) == 3


def test_none_at_the_start_is_looked_for(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.key.unlink()
    certificates = files.read()
    assert certificates.context is None
    assert files.log.refused[0][1] == "it is not in use"
    files.write(90)
    assert certificates.look()
    assert certificates.context is not None


@pytest.mark.parametrize("renewed", [False, True])
def test_a_receiver_that_is_restarted_has_what_the_others_have(tmp_path: Path, renewed: bool) -> None:
    files, kept = Files(tmp_path), KeptPairs(make_kept())
    certificates = files.read(kept)
    if renewed:
        files.write(80)
        assert files.look(certificates)
    good = x509.load_pem_x509_certificate(files.chain.read_bytes())
    files.chain.write_bytes(b"")
    again = files.read(kept)
    assert again.context is not None
    assert served_by(again.context) == good
    ((_, instead),) = files.log.refused
    assert instead.startswith("the one before stays in use, valid until ")
    files.write(70)
    assert files.look(again)


def served_by(context: ssl.SSLContext) -> x509.Certificate:
    """The certificate of a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = any_certificate().wrap_bio(to_client, to_server)
    for end in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True) or b"")


def test_what_was_kept_by_half_is_not_used(tmp_path: Path) -> None:
    """A receiver was killed while it wrote: the content before counts."""
    files, descriptors = Files(tmp_path), make_kept()
    kept = KeptPairs(descriptors)
    first = files.chain.read_bytes()
    assert kept.keep(*files.pair[1:])
    files.write(80)
    assert kept.keep(*files.pair[1:])
    newest = max(descriptors, key=lambda each: KeptPairs([each])._newest()[1].number)
    os.ftruncate(newest, os.fstat(newest).st_size - 1)
    assert kept.find(*files.pair[1:]) == (first, first)
    assert kept.keep(*files.pair[1:])
    assert kept.find(*files.pair[1:]) != (first, first)


def test_one_that_ends_without_a_renewal_is_said_once(tmp_path: Path) -> None:
    files = Files(tmp_path, 1)
    certificates = files.read()
    files.now += 2 * 86_400
    for _ in range(3):
        assert not files.look(certificates)
        files.monotonic += 2 * RETRY_S
    ((why, instead),) = files.log.refused
    assert why.startswith("expired on ")
    assert instead == "it is in use all the same, because there is no better one"
    files.write(5)
    assert files.look(certificates)


def test_one_that_ends_behind_a_bad_one_is_said_as_well(tmp_path: Path) -> None:
    files = Files(tmp_path, 1)
    certificates = files.read()
    files.chain.write_bytes(b"")
    files.look(certificates)
    files.monotonic += 2 * RETRY_S
    files.look(certificates)
    files.now += 2 * 86_400
    files.look(certificates)
    assert [instead[:49] for _, instead in files.log.refused] == [
        "the one before stays in use, valid until " + str(datetime.date.today() + datetime.timedelta(days=1))[:8],
        "the one before stays in use, though it expired on",
    ]


async def _served(address: tuple[str, int], name: str | None) -> str:
    _, writer = await asyncio.open_connection(*address, ssl=any_certificate(), server_hostname=name or "")
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    served = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
    writer.close()
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return str(names.get_values_for_type(x509.DNSName)[0])


async def test_a_name_has_its_certificate(tmp_path: Path) -> None:
    pairs = []
    for file, names in ((NAME, ()), ("one.example.net", ("one.example.net",)), ("*.example.com", ("*.example.com",))):
        pem = str(certificate(tmp_path, file, 90))
        pairs.append(Pair(names, pem, pem))
    made = Certificates(pairs, Logged())
    async with serving(tls=made.context, rule=Listener(tls="implicit")) as server:
        for asked, served in (
            ("one.example.net", "one.example.net"),
            ("ONE.example.net", "one.example.net"),
            ("a.example.com", "*.example.com"),
            ("a.b.example.com", NAME),
            ("other.example.net", NAME),
            (None, NAME),
        ):
            assert await _served(server.address, asked) == served


async def test_a_receiver_uses_a_renewed_certificate_without_a_restart(tmp_path: Path) -> None:
    files = Files(tmp_path)
    async with receiving(tmp_path / "home", tls_certificate=str(files.chain), tls_key=str(files.key)) as running:
        kept = await running.ready()
        before = running.receiving.server.context.tls_context
        files.chain.write_bytes(b"")
        await eventually(lambda: "the one before stays in use" in running.mail_log)
        assert running.receiving.server.context.tls_context is before
        files.write(80)
        await eventually(lambda: running.receiving.server.context.tls_context is not before)
        assert (await kept.ask(b"NOOP")).startswith(b"250")
        day = datetime.date.today() + datetime.timedelta(days=80)
        assert f"certificate {files.chain}: in use, valid until {day}" in running.mail_log


async def test_a_receiver_starts_without_a_good_certificate_and_finds_one_later(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.chain.write_bytes(b"")
    async with receiving(tmp_path / "home", tls_certificate=str(files.chain), tls_key=str(files.key)) as running:
        client = await running.client()
        await client.reply()
        assert b"STARTTLS" not in await client.ask(b"EHLO c")
        assert "it is not in use" in running.mail_log
        files.write(90)
        await eventually(lambda: running.receiving.server.context.tls_context)
        assert b"STARTTLS" in await client.ask(b"EHLO c")


async def test_a_socket_that_no_listener_names_is_not_served_by_other_rules(tmp_path: Path) -> None:
    """It may be the one for users: as a listener for other servers it would take mail without TLS."""
    files = Files(tmp_path)
    made = settings_in(tmp_path / "home", tls_certificate=str(files.chain), tls_key=str(files.key), listen=())
    listener = Listener(address="127.0.0.1:1", purpose="submission", tls="required", auth="required")
    running = Receiving(dataclasses.replace(made, listener=(listener,)), 0, asyncio.get_running_loop())
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="has the address 127"):
        running.start([other])
    running.close()
