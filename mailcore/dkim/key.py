"""A signing key: a PEM file with an RSA or an Ed25519 key, and the DNS record of its public half (RFC 6376 3.6.1, RFC 8463)."""

from __future__ import annotations

import base64
import os
import stat
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

__all__ = ["ALGORITHMS", "RSA_BITS", "RSA_BITS_MIN", "BadKey", "SigningKey", "key_of_pem", "load_key", "new_key"]

ALGORITHMS = ("rsa", "ed25519")
RSA_BITS = 2048
RSA_BITS_MIN = 1024  # RFC 8301 3.2: signatures of shorter keys are not valid
FILE_BYTES_MAX = 64 << 10


class BadKey(ValueError):
    """A key that cannot be used; the message says why, without the file's name."""


class SigningKey:
    """A private key. ``algorithm`` is its name in a signature, ``a=``."""

    def __init__(self, private: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> None:
        self._private = private
        self.algorithm = "rsa-sha256" if isinstance(private, rsa.RSAPrivateKey) else "ed25519-sha256"

    def sign(self, digest: bytes, data: bytes) -> bytes:
        """Returns the signature of ``data``, whose SHA-256 is ``digest``."""
        if isinstance(self._private, rsa.RSAPrivateKey):
            return self._private.sign(data, padding.PKCS1v15(), hashes.SHA256())
        return self._private.sign(digest)  # RFC 8463 3: Ed25519 signs the hash

    @property
    def public(self) -> str:
        """Returns the public key as in ``p=`` of the DNS record."""
        if isinstance(self._private, rsa.RSAPrivateKey):
            form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        else:
            form = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        return base64.b64encode(self._private.public_key().public_bytes(*form)).decode("ascii")

    @property
    def record(self) -> str:
        """Returns the text of the DNS record."""
        kind = "rsa" if self.algorithm == "rsa-sha256" else "ed25519"
        return f"v=DKIM1; k={kind}; p={self.public}"

    @property
    def pem(self) -> bytes:
        """Returns the private key as the text of a PEM file."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_key(algorithm: str) -> SigningKey:
    """Makes a key; ``algorithm`` is one of ALGORITHMS."""
    if algorithm == "ed25519":
        return SigningKey(ed25519.Ed25519PrivateKey.generate())
    return SigningKey(rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS))


def load_key(path: str) -> SigningKey:
    """Reads a key. Raises BadKey."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise BadKey(f"cannot be read: {error.strerror}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise BadKey("can be read or changed by every user of this host; run chmod 640 on it")
    return key_of_pem(data)


def key_of_pem(data: bytes) -> SigningKey:
    """Returns the key in a PEM text. Raises BadKey."""
    private: Any
    try:
        private = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        why = "the key is encrypted" if isinstance(error, TypeError) else "the file has no private key in PEM form"
        raise BadKey(why) from None
    if isinstance(private, rsa.RSAPrivateKey) and private.key_size >= RSA_BITS_MIN:
        return SigningKey(private)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return SigningKey(private)
    raise BadKey(f"must be an RSA key of {RSA_BITS_MIN} bits or more, or an Ed25519 key")
