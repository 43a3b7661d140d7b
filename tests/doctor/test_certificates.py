"""Certificates: expired, soon over, for another, not yet valid; and what is served is not what lies on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.config.certificates import Pair
from mailcore.config.listeners import Listener
from mailcore.doctor import certificates
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host
from mailcore.receiver.certificates import Certificates
from tests.doctor.sample_host import NOBODY, certificate, found, of_nobody, open_to_all, sample_host
from tests.end_to_end.appliance import free_port
from tests.receiver.server_in_process import serving

NAME = "mail.example.org"


def with_pem(directory: Path, pem: Path, port: int | None = None) -> Host:
    listen = f"127.0.0.1:{port or free_port()}"
    return sample_host(
        directory,
        f'[receiver]\nlisten = ["{listen}"]\nhostname = "{NAME}"\ntls_certificate = "{pem}"\ntls_key = "{pem}"\n',
    )


@pytest.mark.parametrize(
    ("days_left", "days_old", "name", "state", "words"),
    [
        (90, 60, NAME, State.GOOD, "90 days left"),
        (90, 60, "*.example.org", State.GOOD, "for *.example.org"),
        (20, 60, NAME, State.GOOD, "20 days left"),
        (13, 60, NAME, State.WARN, "13 days left"),
        (-2, 60, NAME, State.BAD, "expired on"),
        (90, -3, NAME, State.BAD, "not valid before"),
        (90, 60, "other.example.org", State.WARN, f"does not cover {NAME}"),
        (90, 60, "*.sub.example.org", State.WARN, f"does not cover {NAME}"),
    ],
)
def test_the_receivers_certificate(
    tmp_path: Path, days_left: float, days_old: float, name: str, state: State, words: str
) -> None:
    pem = certificate(tmp_path, name, days_left + 0.5, days_old)
    finding = next(iter(certificates.look(with_pem(tmp_path, pem))))
    assert finding.state is state
    assert words in finding.found
    assert bool(finding.remedy) is (state is not State.GOOD)


def test_without_one_that_is_said(tmp_path: Path) -> None:
    findings = list(certificates.look(sample_host(tmp_path)))
    assert [each.state for each in findings] == [State.GOOD, State.GOOD]


class NoLog:
    def certificate_read(self, path: str, until: float) -> None:
        pass

    def certificate_refused(self, path: str, why: str, instead: str) -> None:
        pass


def context(pem: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pem)
    return made


async def test_what_is_served_is_what_is_in_the_file(tmp_path: Path) -> None:
    pem = certificate(tmp_path, NAME, 90)
    async with serving(tls=context(pem)) as server:
        host = with_pem(tmp_path, pem, server.address[1])
        findings = await asyncio.to_thread(lambda: list(certificates.look(host)))
    assert {each.state for each in findings} == {State.GOOD}
    assert "the certificate in use is the one in the file" in [each.found for each in findings]


async def test_it_was_renewed_and_is_not_served_yet(tmp_path: Path) -> None:
    async with serving(tls=context(certificate(tmp_path, NAME, 3))) as server:
        host = with_pem(tmp_path, certificate(tmp_path, NAME, 90), server.address[1])
        finding: Finding = await asyncio.to_thread(lambda: found(certificates.look(host), "receivers"))
    assert finding.state is State.WARN
    assert "contains another one" in finding.found
    assert "mail.log says why" in finding.remedy


async def test_a_certificate_by_name_is_checked_with_that_name(tmp_path: Path) -> None:
    first, other = certificate(tmp_path, NAME, 90), certificate(tmp_path, "*.example.net", 90)
    made = Certificates([Pair((), str(first), str(first)), Pair(("*.example.net",), str(other), str(other))], NoLog())
    rule = Listener(tls="implicit")
    async with serving(tls=made.context, rule=rule) as server:
        text = (
            f'[receiver]\nhostname = "{NAME}"\ntls_certificate = "{first}"\ntls_key = "{first}"\n'
            f'[[listener]]\naddress = "127.0.0.1:{server.address[1]}"\ntls = "implicit"\n'
            f'[[certificate]]\nnames = ["*.example.net"]\ncertificate = "{other}"\nkey = "{other}"\n'
        )
        host = sample_host(tmp_path, text)
        findings = await asyncio.to_thread(lambda: list(certificates.look(host)))
        assert {each.state for each in findings} == {State.GOOD}, findings
        certificate(tmp_path, "*.example.net", 80)
        findings = await asyncio.to_thread(lambda: list(certificates.look(host)))
        assert found(findings, "receivers, *.example.net").state is State.WARN


def test_a_bad_certificate_says_which_listeners_refuse_mail(tmp_path: Path) -> None:
    pem = certificate(tmp_path, NAME, 90)
    text = (
        f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"\n[[listener]]\naddress = "127.0.0.1:1465"\n'
        'tls = "implicit"\n[[listener]]\naddress = "127.0.0.1:1025"\n'
    )
    host = sample_host(tmp_path, text)
    pem.write_bytes(b"")
    finding = found(certificates.look(host), "receivers")
    assert finding.state is State.BAD
    assert "the one before stays in use" in finding.found
    assert finding.found.endswith("and 127.0.0.1:1465 refuse all mail")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with the rights of another user")
def test_a_key_that_only_root_can_read_is_found(tmp_path: Path) -> None:
    """As after a renewal by a program that root runs: receivers use the one before, until they have none."""
    open_to_all(tmp_path)
    pem = certificate(tmp_path, NAME, 90)
    pem.chmod(0o600)
    host = with_pem(tmp_path, pem)
    with of_nobody(host.settings, "receiver.0"):
        again = Host.of(host.settings, host.config)
        finding = found(certificates.look(again), "receivers")
        assert finding.state is State.BAD
        assert f"{pem}: the user nobody of the receivers cannot read it (Permission denied)" in finding.found
        os.chown(pem, 0, NOBODY)
        pem.chmod(0o640)
        assert found(certificates.look(again), "receivers").state is State.NOT_KNOWN, "nothing listens"


def test_nobody_serves(tmp_path: Path) -> None:
    host = with_pem(tmp_path, certificate(tmp_path, NAME, 90))
    assert found(certificates.look(host), "receivers").state is State.NOT_KNOWN


@contextlib.contextmanager
def proxy(pem: Path) -> Iterator[int]:
    """In front of a portal."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        context(pem).wrap_socket(server, server_side=True) as secured,
    ):

        def answer() -> None:
            with contextlib.suppress(OSError):
                secured.accept()[0].close()

        threading.Thread(target=answer, daemon=True).start()
        yield int(secured.getsockname()[1])  # it has taken the other's descriptor


@pytest.mark.parametrize(("days_left", "state"), [(90, State.GOOD), (5, State.WARN), (-5, State.BAD)])
def test_the_portals_certificate(tmp_path: Path, days_left: float, state: State) -> None:
    with proxy(certificate(tmp_path, "localhost", days_left)) as port:
        host = sample_host(tmp_path, f'[portal]\npublic_url = "https://localhost:{port}"\n')
        assert found(certificates.look(host), "portal").state is state


def test_the_portal_is_not_there(tmp_path: Path) -> None:
    host = sample_host(tmp_path, f'[portal]\npublic_url = "https://localhost:{free_port()}"\n')
    finding = found(certificates.look(host), "portal")
    assert finding.state is State.WARN
    assert "no TLS connection" in finding.found
