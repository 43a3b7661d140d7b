"""The seal of settings that all nodes have once: encrypted and authenticated with what the authority of the nodes derives.

The database's password is known to receivers, which untrusted clients speak with. So its rows are neither believed nor readable
without the key of the authority, which only nodes that are in have, in files that no receiver enters (docs/decisions/0104).

Keeps law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mailcore.faults import Code, FaultError
from mailcore.nodes.authority import Authority

__all__ = ["GIVE_AGAIN", "NotSealed", "Seal"]

# Elsewhere it would make older settings, or none, those of all.
GIVE_AGAIN = "waypost node settings --give, at the node whose settings are right, writes them again"

_NONCE_BYTES = 12  # of ChaCha20-Poly1305 (RFC 8439)


class NotSealed(FaultError):
    """Raised for a row that the authority of this node has not sealed, or not for this place."""

    default = Code.CONFLICT


class Seal:
    """Seals and opens with the key of an authority. ``about`` names the place, so that no row counts as another one."""

    def __init__(self, authority: Authority) -> None:
        key = HKDF(hashes.SHA256(), 32, None, b"waypost settings of nodes").derive(authority.key)
        self._cipher = ChaCha20Poly1305(key)
        self._key_of_marks = HKDF(hashes.SHA256(), 32, None, b"waypost texts of nodes").derive(authority.key)

    def seal(self, plain: bytes, about: str) -> bytes:
        """Returns what the database gets."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, about.encode())

    def mark(self, plain: bytes) -> str:
        """Returns a short name of a text. Under another authority the text has another one."""
        digest = hmac.HMAC(self._key_of_marks, hashes.SHA256())
        digest.update(plain)
        return digest.finalize().hex()

    def open(self, sealed: bytes, about: str) -> bytes:
        """Returns what was sealed. Raises NotSealed."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            raise NotSealed(
                f"the database's {about} was not written by a node of this authority; {GIVE_AGAIN}"
            ) from None
