"""SCRAM-SHA-256 (RFC 5802, RFC 7677): the verifier of a password, and the server's side of the exchange. Pure.

Laws
- The server offers no channel binding, so a client that asks for one is refused: an attacker in the middle may have removed
  the offer (RFC 5802 6).
- A user that does not exist gets the same messages as one that does, with a salt that stays the same.

Keeps law: login-reveals-no-user (docs/laws.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["ITERATIONS", "ScramError", "ScramExchange", "ScramVerifier"]

ITERATIONS = (
    100_000  # RFC 7677 4: at least 4096. As costly as the Argon2 of others: 30 ms, which the client pays as well
)
ITERATIONS_MAX = 10_000_000
SALT_BYTES = 16
DIGEST_BYTES = 32
PREFIX = "SCRAM-SHA-256$"
# The form of PostgreSQL, and of RFC 5803 with another name: SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY
_VERIFIER = re.compile(r"SCRAM-SHA-256\$([0-9]{1,8}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_FIRST = re.compile(r"(?P<binding>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,]+))?,(?P<bare>.+)", re.DOTALL)
_BARE = re.compile(r"n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?")  # m= would be mandatory: refused
_FINAL = re.compile(
    r"(?P<unproved>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[^,]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramError(Exception):
    """A message of the client that breaks the protocol, or asks for what the server does not have."""


class ScramVerifier(NamedTuple):
    """The part of a password that the server keeps: enough to check it, not enough to log in with it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of_password(cls, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramVerifier:
        """Makes the verifier of a password that is prepared (``saslprep``). It takes 30 ms of CPU."""
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))

    @classmethod
    def parse(cls, text: str) -> ScramVerifier:
        """Reads a verifier. Raises ValueError."""
        match = _VERIFIER.fullmatch(text)
        if match is None:
            raise ValueError("is not SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY")
        iterations = int(match[1])
        salt, stored, server = (_decoded(each) for each in match.groups()[1:])
        if not 4096 <= iterations <= ITERATIONS_MAX or len(stored) != DIGEST_BYTES or len(server) != DIGEST_BYTES:
            raise ValueError(f"needs 4096 to {ITERATIONS_MAX} iterations and keys of {DIGEST_BYTES} bytes")
        return cls(iterations, salt, stored, server)

    def __str__(self) -> str:
        parts = [base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)]
        return f"{PREFIX}{self.iterations}:{parts[0]}${parts[1]}:{parts[2]}"

    def matches(self, password: str) -> bool:
        """Tells whether this is the verifier of the prepared password. It takes 30 ms of CPU."""
        other = self.of_password(password, self.salt, self.iterations)
        return hmac.compare_digest(other.stored_key, self.stored_key)


class ScramExchange:
    """The server's side of one exchange. ``verifier_of`` returns the verifier of a name, a made-up one for an unknown name."""

    def __init__(self, nonce: str, verifier_of: Callable[[str], ScramVerifier]) -> None:
        self.name = ""
        self._nonce = nonce
        self._verifier_of = verifier_of
        self._verifier: ScramVerifier | None = None
        self._header = b""
        self._messages = ""

    @property
    def verifier(self) -> str:
        """Returns the verifier that the client's proof is compared with."""
        return str(self._verifier)

    def first(self, message: bytes) -> bytes:
        """Takes client-first-message and returns server-first-message. Raises ScramError."""
        text = _text(message)
        match = _FIRST.fullmatch(text)
        bare = _BARE.fullmatch(match["bare"]) if match is not None else None
        if match is None or bare is None:
            raise ScramError("client-first-message is malformed")
        if match["binding"].startswith("p="):
            raise ScramError("channel binding is not supported")
        self.name = _unescaped(bare["name"])
        if match["authzid"] is not None and _unescaped(match["authzid"]) != self.name:
            raise ScramError("the client asks to act for another user")
        self._header = text[: match.start("bare")].encode()
        self._verifier = self._verifier_of(self.name)
        self._nonce = bare["nonce"] + self._nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._messages = f"{match['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes | None:
        """Takes client-final-message and returns server-final-message; None if the password is wrong. Raises ScramError."""
        assert self._verifier is not None
        match = _FINAL.fullmatch(_text(message))
        if match is None:
            raise ScramError("client-final-message is malformed")
        try:
            binding, proof = _decoded(match["binding"]), _decoded(match["proof"])
        except ValueError as error:
            raise ScramError(str(error)) from None
        if binding != self._header or match["nonce"] != self._nonce or len(proof) != DIGEST_BYTES:
            raise ScramError("channel binding, nonce or proof is not that of this exchange")
        signed = f"{self._messages},{match['unproved']}".encode()
        signature = _hmac(self._verifier.stored_key, signed)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(_hmac(self._verifier.server_key, signed))


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _decoded(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise ValueError(f"base64: {error}") from None


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None


def _unescaped(name: str) -> str:
    """Reads a saslname (RFC 5802 5.1): "=2C" is a comma, "=3D" an equals sign, and no other "=" is allowed."""
    if re.search(r"=(?!2C|3D)", name):
        raise ScramError("the user name has a wrong escape")
    return name.replace("=2C", ",").replace("=3D", "=")
