"""The mechanisms of AUTH as small machines: each takes a decoded response and says what follows. Pure.

Nothing is compared with a verifier here before the session has counted the try: a proof is a step of its own (``Proof``).

PLAIN is RFC 4616, LOGIN is draft-murchison-sasl-login, SCRAM-SHA-256 is RFC 7677. To act for another user than the one who logs
in is refused by all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mailcore.users.scram import ScramError, ScramExchange

__all__ = ["MECHANISMS", "Challenge", "Malformed", "Mechanism", "Password", "Proof", "Proved", "Refused", "Step"]

USER_NAME, PASSWORD = b"Username:", b"Password:"
OCTETS_MAX = 1_024  # of a name and of a password


class Challenge(NamedTuple):
    """The server's next message. ``name``: of the user, if this message is only for one whose logins are not throttled."""

    data: bytes
    name: str = ""


class Password(NamedTuple):
    """A name and a password to check."""

    name: str
    password: str


class Proof(NamedTuple):
    """A proof of the password. ``compare`` says whether it is right, so it is called only when the try is counted."""

    name: str
    compare: Callable[[], Challenge | Refused]


class Proved(NamedTuple):
    """The client has proved that it knows the password that belongs to this verifier of the user."""

    name: str
    verifier: str


class Refused(NamedTuple):
    """The login is refused (535); the name is "" if it is not known."""

    name: str
    why: str


class Malformed(NamedTuple):
    """The response is not one of this mechanism (501)."""


Step = Challenge | Password | Proof | Proved | Refused | Malformed


class Mechanism(Protocol):
    """One exchange."""

    def begin(self) -> Step:
        """Returns the first step when the client sent no initial response."""

    def respond(self, response: bytes) -> Step:
        """Takes a response; the initial one is the first."""


class Plain:
    """[authzid] NUL authcid NUL password, in one message."""

    def __init__(self, scram: Callable[[], ScramExchange]) -> None:
        pass

    def begin(self) -> Step:
        """Asks for the message."""
        return Challenge(b"")

    def respond(self, response: bytes) -> Step:
        """Takes the message."""
        parts = response.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            return Malformed()
        try:
            authzid, name, password = (each.decode() for each in parts)
        except UnicodeDecodeError:
            return Malformed()
        if max(len(parts[1]), len(parts[2])) > OCTETS_MAX:
            return Malformed()
        if authzid not in ("", name):
            return Refused(name, "the client asks to act for another user")
        return Password(name, password)


class Login:
    """Name, then password."""

    def __init__(self, scram: Callable[[], ScramExchange]) -> None:
        self._name: str | None = None

    def begin(self) -> Step:
        """Asks for the name."""
        return Challenge(USER_NAME)

    def respond(self, response: bytes) -> Step:
        """Takes the name, then the password."""
        try:
            text = response.decode()
        except UnicodeDecodeError:
            return Malformed()
        if not text or "\0" in text or len(response) > OCTETS_MAX:
            return Malformed()
        if self._name is None:
            self._name = text
            return Challenge(PASSWORD)
        return Password(self._name, text)


class Scram:
    """First message, final message, and an empty one behind the server's proof."""

    def __init__(self, scram: Callable[[], ScramExchange]) -> None:
        self._exchange = scram()
        self._messages = 0

    def begin(self) -> Step:
        """Asks for the first message."""
        return Challenge(b"")

    def respond(self, response: bytes) -> Step:
        """Takes the next message."""
        self._messages += 1
        try:
            if self._messages == 1:
                return Challenge(self._exchange.first(response), self._exchange.name)
        except ScramError as error:
            return Refused(self._exchange.name, str(error))
        if self._messages == 2:
            return Proof(self._exchange.name, functools.partial(self._compare, response))
        return Proved(self._exchange.name, self._exchange.verifier) if not response else Malformed()

    def _compare(self, response: bytes) -> Challenge | Refused:
        try:
            proof = self._exchange.final(response)
        except ScramError as error:
            return Refused(self._exchange.name, str(error))
        return Refused(self._exchange.name, "") if proof is None else Challenge(proof)


MECHANISMS: dict[str, Callable[[Callable[[], ScramExchange]], Mechanism]] = {
    "PLAIN": Plain,
    "LOGIN": Login,
    "SCRAM-SHA-256": Scram,
}
