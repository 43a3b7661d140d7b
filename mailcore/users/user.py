"""A user who may log in: name, verifier, sender addresses and rates; and all users of a file. Values only."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator

import msgspec

from mailcore.routing.address import a_labels, ascii_lower
from mailcore.routing.domain_pattern import covers
from mailcore.routing.route import RouteError, domain_name
from mailcore.users.scram import ScramVerifier
from mailcore.users.verifier import DECOY, is_scram, parse_verifier

__all__ = ["ANY", "NAME_RULE", "User", "Users", "check_user", "name_of", "sender_pattern"]

ANY = "*"  # among the senders of a user: every address
NAME_RULE = "must be 1 to 128 letters, digits and . _ - + @, such as alice or alice@example.org"
SENDERS_MAX = 1_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._+@-]{0,127}")
_LOCAL_PART = re.compile(r"[^\s\x00-\x1f\x7f<>]{1,64}")
PLAIN, SCRAM = "PLAIN LOGIN", "SCRAM-SHA-256 PLAIN LOGIN"


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A user, as a line of the file. None: the limit of [auth] is in force; 0: no limit."""

    name: str
    verifier: str
    senders: tuple[str, ...] = ()  # addresses, domains, ".example.org" for all subdomains, ANY
    enabled: bool = True
    messages_per_hour: int | None = None
    recipients_per_hour: int | None = None

    def may_send_as(self, sender: str) -> bool:
        """Tells whether the user owns the sender address. "" is the null sender, which everyone may use (RFC 8098)."""
        if not sender or ANY in self.senders:
            return True
        local, _, domain = sender.rpartition("@")
        try:
            domain = a_labels(domain)
        except UnicodeError:
            return False
        return f"{ascii_lower(local)}@{domain}" in self.senders or covers(self.senders, domain)

    @property
    def domains(self) -> frozenset[str] | None:
        """Returns patterns of the domains of the sender addresses (``mailcore.routing.domain_pattern``); None: every domain."""
        return None if ANY in self.senders else frozenset(each.rpartition("@")[2] for each in self.senders)


def name_of(text: str) -> str:
    """Returns the one spelling of a user name: clients may write it in capital letters. Raises ValueError."""
    name = ascii_lower(text)
    if not _NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return name


def sender_pattern(text: str) -> str:
    """Returns a sender pattern in its one spelling; "any" is ANY. Raises ValueError."""
    if text in (ANY, "any"):
        return ANY
    local, at, domain = text.rpartition("@")
    try:
        if at:
            if not _LOCAL_PART.fullmatch(local):
                raise ValueError
            return f"{ascii_lower(local)}@{domain_name(a_labels(domain))}"
        return f".{domain_name(a_labels(text[1:]))}" if text.startswith(".") else domain_name(a_labels(text))
    except (RouteError, ValueError):
        raise ValueError(
            'must be an address, a domain such as "example.org", ".example.org" for its subdomains, or "any"'
        ) from None


def check_user(user: User) -> None:
    """Raises ValueError, with the key at fault, if a line of the file cannot be used."""
    try:
        if name_of(user.name) != user.name:
            raise ValueError("must be in lower case")
    except ValueError as error:
        raise ValueError(f"name {error}") from None
    try:
        parse_verifier(user.verifier)
    except ValueError as error:
        raise ValueError(f"verifier {error}") from None
    if len(user.senders) > SENDERS_MAX:
        raise ValueError(f"senders: at most {SENDERS_MAX} are allowed")
    for sender in user.senders:
        try:
            if sender_pattern(sender) != sender:
                raise ValueError(f"must be written as {sender_pattern(sender)}")
        except ValueError as error:
            raise ValueError(f"senders: {sender!r} {error}") from None
    for name in ("messages_per_hour", "recipients_per_hour"):
        if (getattr(user, name) or 0) < 0:
            raise ValueError(f"{name} must be 0 or more")


class Users:
    """All users of a file. ``salt_key`` makes up the salts of users that do not exist, the same ones after a restart."""

    def __init__(self, users: Iterable[User] = (), salt_key: bytes = b"") -> None:
        self._by_name = {user.name: user for user in users}
        self._all = list(self._by_name.values())
        self._salt_key = salt_key
        # A client takes the strongest mechanism that is offered, so SCRAM is offered only if each user can use it.
        able = [user for user in self._all if user.enabled]
        self.mechanisms = SCRAM if able and all(is_scram(user.verifier) for user in able) else PLAIN

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[User]:
        return iter(self._all)

    def get(self, name: str) -> User | None:
        """Returns the user with this name in its one spelling, also a disabled one; None if there is none."""
        return self._by_name.get(name)

    def find(self, given: str) -> User | None:
        """Returns the user whom a client names; None if it does not exist or is disabled."""
        user = self._by_name.get(ascii_lower(given))
        return user if user is not None and user.enabled else None

    def decoy(self, given: str) -> str:
        """Returns the verifier of some user, always the same for one name: checking it takes as long as a real check."""
        if not self._all:
            return DECOY
        digest = hmac.digest(self._salt_key, b"decoy " + ascii_lower(given).encode(), hashlib.sha256)
        return self._all[int.from_bytes(digest[:8], "big") % len(self._all)].verifier

    def scram_verifier(self, given: str) -> ScramVerifier:
        """Returns the verifier for a SCRAM exchange; for a name that cannot use SCRAM one that no password matches."""
        user = self.find(given)
        if user is not None and is_scram(user.verifier):
            return ScramVerifier.parse(user.verifier)
        like = self.decoy(given)
        known = ScramVerifier.parse(like) if is_scram(like) else None
        made_up = [
            hmac.digest(self._salt_key, what + ascii_lower(given).encode(), hashlib.sha256)
            for what in (b"salt ", b"stored ", b"server ")
        ]
        salt = made_up[0][: len(known.salt) if known is not None else 16]
        return ScramVerifier(known.iterations if known is not None else 100_000, salt, made_up[1], made_up[2])
