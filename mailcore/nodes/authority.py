"""The authority of the nodes, their certificates, and the tokens with which another node joins (docs/decisions/0100).

- law: keys-stay-secret. A private key is written only into files that their owner alone reads, or encrypted with a token. No
  key and no token is logged, or in a message of an error.

Values only: the caller has the clock, the files and the database.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import secrets
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

__all__ = [
    "Authority",
    "BadToken",
    "NodeKeys",
    "digest_of",
    "digest_of_token",
    "make_authority",
    "make_node",
    "make_token",
    "open_sealed",
    "seal",
]

# A certificate counts as long as its row is there (law: trust-is-a-row); a date would only end the trust of a node by accident.
DAYS = 36_500
_SKEW = datetime.timedelta(days=1)  # clocks of nodes differ
_PREFIX = "waypost-node-"
_TOKEN_BYTES = 32
_NONCE_BYTES = 12
ORGANISATION = "Waypost nodes"
COMMON_NAME_MAX = 64  # RFC 5280, ub-common-name


class BadToken(Exception):
    """Says that a text is not a token, or that it does not open what it should. The text is not in the message."""


class Authority(NamedTuple):
    """The authority, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Authority(…)"


class NodeKeys(NamedTuple):
    """The certificate and the key of a node, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "NodeKeys(…)"


def digest_of(certificate: bytes) -> bytes:
    """Returns the SHA-256 of a certificate, given as PEM."""
    return hashlib.sha256(x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)).digest()


def make_authority(now: float) -> Authority:
    """Returns a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"authority {secrets.token_hex(4)}")
    certificate = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def make_node(authority: Authority, node: str, now: float) -> NodeKeys:
    """Returns a new key of a node, with its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.load_pem_x509_certificate(authority.certificate)
    signing = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    certificate = (
        _builder(_name(node), signer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    return NodeKeys(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def make_token() -> str:
    """Returns a new token."""
    return _PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_TOKEN_BYTES)).decode().rstrip("=")


def digest_of_token(token: str) -> bytes:
    """Returns the digest by which the database knows a token. Raises BadToken."""
    return hashlib.sha256(_secret_of(token)).digest()


def seal(authority: Authority, token: str, node: str) -> bytes:
    """Returns the authority encrypted for the node that gets the token."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    plain = authority.certificate + authority.key
    return nonce + ChaCha20Poly1305(_key_of(token)).encrypt(nonce, plain, node.encode())


def open_sealed(sealed: bytes, token: str, node: str) -> Authority:
    """Returns the authority. Raises BadToken."""
    nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        plain = ChaCha20Poly1305(_key_of(token)).decrypt(nonce, rest, node.encode())
    except (InvalidTag, ValueError):
        raise BadToken("the token does not open what the database has for it") from None
    end = b"-----END CERTIFICATE-----\n"
    certificate, found, key = plain.partition(end)
    return Authority(certificate + found, key)


def _secret_of(token: str) -> bytes:
    words = token.strip()
    if not words.startswith(_PREFIX):
        raise BadToken("this is not a token")
    try:
        secret = base64.b64decode(words.removeprefix(_PREFIX) + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken("the token is damaged") from None
    if len(secret) != _TOKEN_BYTES:
        raise BadToken("the token is damaged")
    return secret


def _key_of(token: str) -> bytes:
    return HKDF(hashes.SHA256(), 32, None, b"waypost node token").derive(_secret_of(token))


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common[:COMMON_NAME_MAX]),
        ]
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float
) -> x509.CertificateBuilder:
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _SKEW)
        .not_valid_after(at + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
