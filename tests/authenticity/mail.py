"""Keys, and messages signed by dkimpy, for the tests of evaluations."""

from __future__ import annotations

import base64
import functools
import logging

import dkim
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

MESSAGE = (
    b"From: Ann <ann@shop.example>\r\nTo: b@example.org\r\nSubject: lunch\r\nDate: Mon, 23 Nov 2026 10:00:00 +0000\r\n"
    b"Message-ID: <1@shop.example>\r\n\r\nAt noon?\r\n. a dot\r\n.\r\n\r\n  spaces \t here  \r\n\r\n"
)
logging.getLogger("dkimpy").setLevel(logging.CRITICAL)


def rsa_key(bits: int = 1024) -> tuple[bytes, str]:
    """Private key as PEM, and the DNS record."""
    return _rsa_key(bits)


@functools.cache
def _rsa_key(bits: int) -> tuple[bytes, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem, "v=DKIM1; k=rsa; p=" + base64.b64encode(public).decode()


@functools.cache
def ed25519_key() -> tuple[bytes, str]:
    """Private key as dkimpy wants it, and the DNS record."""
    key = ed25519.Ed25519PrivateKey.generate()
    raw = serialization.Encoding.Raw
    private = key.private_bytes(raw, serialization.PrivateFormat.Raw, serialization.NoEncryption())
    public = key.public_key().public_bytes(raw, serialization.PublicFormat.Raw)
    return base64.b64encode(private), "v=DKIM1; k=ed25519; p=" + base64.b64encode(public).decode()


def signed(
    message: bytes = MESSAGE,
    domain: str = "shop.example",
    *,
    selector: str = "s",
    algorithm: str = "rsa-sha256",
    forms: tuple[bytes, bytes] = (b"relaxed", b"relaxed"),
    length: bool = False,
    bits: int = 1024,
    names: list[bytes] | None = None,
) -> bytes:
    """The message, which has no dot-stuffing, with a signature of dkimpy above it."""
    pem = (rsa_key(bits) if algorithm == "rsa-sha256" else ed25519_key())[0]
    field: bytes = dkim.DKIM(message, signature_algorithm=algorithm.encode()).sign(
        selector.encode(), domain.encode(), pem, canonicalize=forms, length=length, include_headers=names
    )
    return field + message


def stuffed(message: bytes) -> bytes:
    """The message as on the wire and as stored."""
    data = message.replace(b"\r\n.", b"\r\n..")
    return b"." + data if data.startswith(b".") else data


def dkimpy_verifies(message: bytes, record: str) -> bool:
    """Whether dkimpy takes the first signature of a message that has no dot-stuffing."""
    found: bool = dkim.verify(message, dnsfunc=lambda name, timeout=5: record.encode())
    return found
