"""What is wrong with a certificate, its key or its chain is said at the field where it is."""

from __future__ import annotations

import time

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from mailcore.control import kept_content as content
from tests.made_certificates import Authority, pem_key

CA, OTHER = Authority(), Authority("Other CA")
GOOD = CA.issue("mx.example.org", "*.example.org")
WEAK = rsa.generate_private_key(65537, 1024)


def facts(text: str) -> object:
    return content.certificate_facts(content.chain_of(text), time.time())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be certificates in PEM form"),
        ("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n", "must be certificates in PEM form"),
        (GOOD.certificate + GOOD.key, "has a private key in it"),
        (CA.pem + GOOD.certificate, "begins with the certificate of an authority"),
        (GOOD.certificate + OTHER.pem, "certificate 1 (mx.example.org) was not issued by certificate 2 (Other CA)"),
        (CA.issue("mx.example.org", ends_d=-0.5).certificate, "has expired on"),
        (CA.issue("mx.example.org", begins_d=2).certificate, "is not valid before"),
        (CA.issue().certificate, "has no name in subjectAltName"),
        (GOOD.certificate * 21, "at most 20"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(content.ContentFault) as raised:
        facts(text)
    assert raised.value.argument == "text"
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "must be a private key in PEM form"),
        (
            ec.generate_private_key(ec.SECP256R1())
            .private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"x"),
            )
            .decode(),
            "is encrypted",
        ),
        (
            WEAK.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ).decode(),
            "needs 2048",
        ),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(content.ContentFault, match=words) as raised:
        content.key_of(text)
    assert raised.value.argument == "key"


def test_a_good_one_is_told_with_all_that_one_asks_for() -> None:
    chain = content.chain_of(GOOD.certificate + CA.pem)
    found = content.certificate_facts(chain, time.time())
    assert (found.names, found.issuer, found.chain, found.warnings) == (
        ["mx.example.org", "*.example.org"], "Test CA", ["Test CA"], [],
    )  # fmt: skip
    assert found.key_type == "ECDSA P-256"
    assert len(found.fingerprint) == 64
    assert found.not_before < time.time() < found.not_after
    key = content.key_of(GOOD.key)
    assert content.public_of(key) == content.public_of(chain[0])
    alone = content.certificate_facts(chain[:1], time.time())
    assert "no intermediate certificate" in alone.warnings[0]


def test_what_is_kept_of_a_text_is_the_certificates_alone() -> None:
    text = f"bag attributes\n{GOOD.certificate}\n# comment\n{CA.pem}"
    assert content.pem_of(content.chain_of(text)).decode() == GOOD.certificate + CA.pem


def test_a_record_is_split_where_the_dns_demands_it() -> None:
    for algorithm in ("rsa", "ed25519"):
        found = content.dkim_facts(content.new_dkim(algorithm), "example.org", "2026a")
        assert "".join(found.strings) == found.record
        assert max(map(len, found.strings)) <= 255
        assert found.zone_line.startswith('2026a._domainkey.example.org. IN TXT ( "v=DKIM1; k=')
    assert pem_key(ec.generate_private_key(ec.SECP256R1())).startswith("-----BEGIN PRIVATE KEY")
