"""TLSA records of our names beside the certificate in use, asked of a BIND and of a receiver with TLS."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mailcore.doctor import tlsa
from mailcore.doctor.finding import Finding, State
from tests.doctor.sample_host import certificate, sample_host
from tests.doctor.test_certificates import NAME, context
from tests.receiver.server_in_process import serving
from tests.routing.nameserver import name_server

OTHER = "00" * 32


def key_of(pem: Path) -> str:
    key = x509.load_pem_x509_certificate(pem.read_bytes()).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


async def findings(directory: Path, records: list[str], pem: Path, *, purpose: str = "mx") -> list[Finding]:
    """What is found about these records of NAME, with a receiver that has the certificate."""
    zone = "".join(f"_25._tcp.mail IN TLSA {record}\n" for record in records)
    with name_server(directory, {"example.org": f"mail IN A 127.0.0.1\n{zone}"}) as names:
        async with serving(tls=context(pem)) as server:
            text = (
                f'[deliverer]\nnameservers = ["{names.text}"]\nhostname = "{NAME}"\n[receiver]\nhostname = "{NAME}"\n'
                f'tls_certificate = "{pem}"\ntls_key = "{pem}"\n[[listener]]\n'
                f'address = "127.0.0.1:{server.address[1]}"\npurpose = "{purpose}"\ntls = "starttls"\n'
            )
            host = sample_host(directory, text)
            return await asyncio.to_thread(lambda: list(tlsa.look(host)))


@pytest.mark.parametrize(
    ("records", "state", "words"),
    [
        (["3 1 1 KEY"], State.GOOD, "1 of 1 match"),
        (["3 1 1 KEY", f"3 1 1 {OTHER}"], State.GOOD, "1 of 2 match"),
        ([f"3 1 1 {OTHER}"], State.BAD, "senders with DANE send no mail"),
        ([f"1 1 1 {OTHER}"], State.WARN, "none is of a kind that counts for SMTP (1 1 1)"),
        (["3 1 1 KEY", f"3 1 2 {OTHER}{OTHER}"], State.BAD, "none matches"),  # senders believe the stronger digest
        ([f"1 1 1 {OTHER}", f"3 0 1 {OTHER}"], State.BAD, "none matches"),
    ],
)
async def test_the_records_are_compared_with_the_certificate_in_use(
    tmp_path: Path, records: list[str], state: State, words: str
) -> None:
    pem = certificate(tmp_path, NAME, 90)
    (finding,) = await findings(tmp_path, [record.replace("KEY", key_of(pem)) for record in records], pem)
    assert (finding.what, finding.state) == (f"TLSA records of {NAME}", state)
    assert words in finding.found
    assert bool(finding.remedy) is (state is not State.GOOD)


async def test_all_is_well_without_records_or_without_mail_of_other_servers(tmp_path: Path) -> None:
    pem = certificate(tmp_path, NAME, 90)
    (tmp_path / "none").mkdir()
    (tmp_path / "submission").mkdir()
    (none,) = await findings(tmp_path / "none", [], pem)
    assert (none.state, none.found) == (State.GOOD, f"none: senders check no certificate of {NAME} by DANE")
    (other,) = await findings(tmp_path / "submission", [f"3 1 1 {OTHER}"], pem, purpose="submission")
    assert (other.state, other.found) == (State.GOOD, "not needed: no listener is for mail from other servers")


def test_a_lookup_that_fails_says_nothing_of_the_records(tmp_path: Path) -> None:
    (finding,) = tlsa.look(sample_host(tmp_path, '[deliverer]\nnameservers = ["127.0.0.1:1"]\n'))
    assert finding.state is State.NOT_KNOWN
    assert "the lookup failed" in finding.found


async def test_records_without_a_server_with_tls_are_not_judged(tmp_path: Path) -> None:
    pem = certificate(tmp_path, NAME, 90)
    zone = f"mail IN A 127.0.0.1\n_25._tcp.mail IN TLSA 3 1 1 {key_of(pem)}\n"
    with name_server(tmp_path, {"example.org": zone}) as names:
        async with serving() as server:
            host = sample_host(
                tmp_path,
                f'[deliverer]\nnameservers = ["{names.text}"]\n[receiver]\nhostname = "{NAME}"\n'
                f'listen = ["127.0.0.1:{server.address[1]}"]\n',
            )
            (finding,) = await asyncio.to_thread(lambda: list(tlsa.look(host)))
    assert finding.state is State.NOT_KNOWN
    assert "no receiver answers with TLS" in finding.found
