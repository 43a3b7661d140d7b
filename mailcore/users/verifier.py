"""Verifiers: what is kept of a password, as Argon2id or SCRAM-SHA-256, and the check of a password against one.

Making and checking one takes 30 to 60 ms of CPU, and Argon2 64 MiB of memory: never in an event loop.
"""

from __future__ import annotations

import argon2
import argon2.exceptions

from mailcore.users.saslprep import saslprep
from mailcore.users.scram import PREFIX, SALT_BYTES, ScramVerifier

__all__ = ["DECOY", "argon2_verifier", "is_scram", "matches", "parse_verifier", "scram_verifier"]

_HASHER = argon2.PasswordHasher()  # argon2-cffi's defaults: RFC 9106 4, the second recommended option
MEMORY_KIB_MAX = 1 << 20  # of a verifier in the file; each thread that checks one takes as much
# A hash of a random password that was not kept: a login with an unknown name is checked against it, if there is no user at all.
DECOY = "$argon2id$v=19$m=65536,t=3,p=4$MIIRqgvgQbgj220jfp0MPA$YfwJSVjtjSU0zzV/P3S9nnQ/USre2wvJMjfCIjrTQbg"


def argon2_verifier(password: str) -> str:
    """Returns the Argon2id verifier of a password. Raises ValueError for a password with characters that are not allowed."""
    return _HASHER.hash(saslprep(password))


def scram_verifier(password: str, salt: bytes) -> str:
    """Returns the SCRAM-SHA-256 verifier of a password. Raises ValueError."""
    assert len(salt) == SALT_BYTES
    return str(ScramVerifier.of_password(saslprep(password), salt))


def is_scram(verifier: str) -> bool:
    """Tells whether SCRAM-SHA-256 can use it; with an Argon2 verifier only PLAIN and LOGIN can."""
    return verifier.startswith(PREFIX)


def parse_verifier(verifier: str) -> None:
    """Raises ValueError if the text is not a verifier that can be used."""
    if is_scram(verifier):
        ScramVerifier.parse(verifier)
        return
    try:
        parameters = argon2.extract_parameters(verifier)
    except argon2.exceptions.InvalidHashError:
        raise ValueError("is neither an Argon2id nor a SCRAM-SHA-256 verifier") from None
    if parameters.type is not argon2.Type.ID or parameters.memory_cost > MEMORY_KIB_MAX:
        raise ValueError(f"must be Argon2id with at most {MEMORY_KIB_MAX} KiB of memory")


def matches(verifier: str, password: str) -> bool:
    """Tells whether it is the verifier of the password. Takes 30 to 60 ms of CPU and 64 MiB. Raises MemoryError."""
    try:
        prepared = saslprep(password)
    except ValueError:
        prepared = ""  # no user has it; the check below takes its time all the same
    try:
        if is_scram(verifier):
            return ScramVerifier.parse(verifier).matches(prepared) and bool(prepared)
        return _HASHER.verify(verifier, prepared) and bool(prepared)
    except argon2.exceptions.VerifyMismatchError:
        return False
    except argon2.exceptions.VerificationError as error:  # such as memory that cannot be allocated
        raise MemoryError(str(error)) from None
