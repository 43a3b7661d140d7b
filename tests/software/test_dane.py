"""DANE to Debian's Postfix and Exim, by a zone that BIND has signed and a BIND that validates it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.software.core import core_with, smtp_session, tls_files
from tests.software.exim import Exim, exim
from tests.software.postfix import Postfix, postfix
from tests.software.programs import open_directory
from tests.software.signed_zone import validating_server
from tests.software.test_postfix import MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def tlsa(pem: Path) -> str:
    """The record "3 1 1": the key of the certificate itself."""
    text = pem.read_bytes()
    certificate = x509.load_pem_x509_certificate(text[text.index(b"-----BEGIN CERTIFICATE") :])
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"3 1 1 {hashlib.sha256(key).hexdigest()}"


@contextlib.asynccontextmanager
async def next_hop(kind: str, directory: Path, pem: Path, behind: int) -> AsyncIterator[Postfix | Exim]:
    if kind == "exim":
        async with exim(directory, behind, pem) as hop:
            yield hop
        return
    settings = {
        "default_transport": f"smtp:[127.0.0.1]:{behind}",
        "smtpd_tls_chain_files": pem,
        "smtpd_tls_security_level": "may",
    }
    async with postfix(directory, settings) as made:
        yield made


@pytest.mark.parametrize("record", ["right", "wrong", "none"])
@pytest.mark.parametrize("kind", ["postfix", "exim"])
async def test_dane_to_another_server(tmp_path: Path, kind: str, record: str) -> None:
    """The right record: delivered, verified by it. A wrong one: nothing is sent. None, validated: as ``may``."""
    with open_directory() as directory:
        authority = Authority(directory)
        pem = tls_files(directory, authority, "postfix.example.test")
        async with serving(ScriptedServer()) as behind, next_hop(kind, directory, pem, behind.port) as hop:
            records = "@ IN MX 10 mx\nmx IN A 127.0.0.1\n"
            found = {"right": tlsa(pem), "wrong": f"3 1 1 {'0' * 64}", "none": ""}[record]
            if found:
                records += f"_{hop.port}._tcp.mx IN TLSA {found}\n"
            zone = tmp_path / "zone"
            zone.mkdir()
            async with validating_server(zone, {"signed.test": records}) as nameserver:
                sections: dict[str, dict[str, object]] = {
                    "deliverer": {"nameservers": [nameserver]},
                    'tls_policy."signed.test"': {"level": "dane"},
                }
                routes = {"signed.test": f"smtp:signed.test:{hop.port}"}
                async with core_with(tmp_path, free_port(), authority, sections, routes) as core:
                    await in_thread(smtp_session, core.port, "a@example.test", ["b@signed.test"], MESSAGE, [], [])

                    def deliveries() -> list[dict[str, Any]]:
                        return [line for line in core.log() if line["event"] == "delivery"]

                    await eventually(deliveries, lambda: hop.log)
                    first = deliveries()[0]
                    came = ("from=<a@example.test>", "<= a@example.test")[kind == "exim"]
                    assert (came in hop.log) is (record != "wrong")
    if record == "wrong":
        assert (first["status"], first["dsn"]) == ("deferred", "4.7.5")
        assert "no TLSA record of mx.signed.test matches" in first["reply"]
        assert not behind.messages
        return
    assert first["status"] == "sent", first
    expected = (
        "dane: TLSA 3 1 1 of mx.signed.test" if record == "right" else "may: dane, mx.signed.test has no TLSA records"
    )
    assert first["tls_level"] == expected
