"""A public key from the DNS (RFC 6376 3.6.1, RFC 8463), and the check of a signature with it.

Laws: a key is bounded in size and in the time of a check; what cannot be used is a value with a reason, never an exception.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

from mailcore.authenticity.tags import BadTags, decoded, tags_of

__all__ = ["ALGORITHMS", "PublicKey", "read_key"]

ALGORITHMS = {"rsa-sha256": "rsa", "ed25519-sha256": "ed25519"}  # RFC 8301 3.1: never rsa-sha1
RECORD_CHARACTERS_MAX = 4_096  # an RSA key of 8192 bits has 1 400
RSA_BITS_MAX = 8_192  # a check takes 0.2 ms; RFC 8301 3.2 asks for 4096
EXPONENT_MAX = 1 << 32  # a longer one makes each check slow


class PublicKey(NamedTuple):
    """A key that can be used, or ``reason`` why not. ``bits`` of RSA, 0 of Ed25519."""

    key: rsa.RSAPublicKey | ed25519.Ed25519PublicKey | None
    reason: str = ""
    bits: int = 0
    is_strict: bool = False  # t=s: the identity must be the domain itself

    def verifies(self, signature: bytes, digest: bytes, data: bytes) -> bool:
        """Returns whether the signature is that of ``data``, whose SHA-256 is ``digest``."""
        try:
            if isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
            elif self.key is not None:
                self.key.verify(signature, digest)
            return self.key is not None
        except (InvalidSignature, ValueError):
            return False


@functools.lru_cache(maxsize=1_000)
def read_key(text: str, algorithm: str) -> PublicKey:
    """Reads the record of a key for a signature of ``algorithm``, one of ALGORITHMS."""
    if len(text) > RECORD_CHARACTERS_MAX:
        return PublicKey(None, "the key record is too long")
    try:
        tags = tags_of(text)
        if tags.get("v", "DKIM1") != "DKIM1":
            return PublicKey(None, "the record is not a key")
        if tags.get("k", "rsa") != ALGORITHMS[algorithm]:
            return PublicKey(None, "the key is of another algorithm")
        if "sha256" not in _words(tags.get("h", "sha256")):
            return PublicKey(None, "the key is not for this hash")
        if not {"*", "email"} & _words(tags.get("s", "*")):
            return PublicKey(None, "the key is not for mail")
        data = decoded(tags.get("p", ""))
    except BadTags:
        return PublicKey(None, "the key record has an error")
    if not data:
        return PublicKey(None, "the key is revoked" if "p" in tags else "the key record has an error")
    return _loaded(data, algorithm)._replace(is_strict="s" in _words(tags.get("t", "")))


def _words(value: str) -> set[str]:
    return {word.strip(" \t") for word in value.split(":")}


def _loaded(data: bytes, algorithm: str) -> PublicKey:
    try:
        if algorithm == "ed25519-sha256":
            return PublicKey(ed25519.Ed25519PublicKey.from_public_bytes(data))
        key = serialization.load_der_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        return PublicKey(None, "the key cannot be read")
    if not isinstance(key, rsa.RSAPublicKey):
        return PublicKey(None, "the key is of another algorithm")
    if key.key_size > RSA_BITS_MAX or key.public_numbers().e > EXPONENT_MAX:
        return PublicKey(None, "the key is too long")
    return PublicKey(key, bits=key.key_size)
