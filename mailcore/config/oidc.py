"""The section [oidc]: single sign-on to the portal, by a provider of OpenID Connect."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mailcore.bounds import DAY_S, bad, flag, number, text, texts, whole
from mailcore.config import values

__all__ = ["Oidc", "is_safe_url", "settle"]

GROUPS = ("viewer_groups", "operator_groups", "administrator_groups")
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,255}")
_NAME_MAX = 60


def is_safe_url(given: str) -> bool:
    """Returns whether an address is one of HTTPS, or of HTTP on this host, without user, password and fragment."""
    try:
        parts = urlsplit(given)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment or not _PRINTABLE.fullmatch(given):
        return False
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


def _issuer(given: str) -> str:
    if not is_safe_url(given) or urlsplit(given).query:
        raise bad(given, 'must be an address such as "https://login.example.org/realm"; http:// only on this host')
    return given


def _printable(given: str) -> str:
    if not _PRINTABLE.fullmatch(given):
        raise bad(given, "must be of ASCII, without blanks, up to 255 characters")
    return given


def _line(given: str) -> str:
    if not given.isprintable() or len(given) > _NAME_MAX:
        raise bad(given, f"must be one line of text, up to {_NAME_MAX} characters")
    return given


@dataclass(frozen=True, kw_only=True)
class Oidc:
    """[oidc]: single sign-on to the portal (docs/sign-in.md). The core reads none of these."""

    issuer: str = text(
        "",
        "address of the provider, as it writes it in its tokens; its configuration is read below it, at "
        "/.well-known/openid-configuration",
        _issuer,
        special={"": "no single sign-on"},
    )
    client_id: str = text("", "name by which the provider knows this portal", _printable)
    client_secret_file: str = text(
        "",
        "file with the secret that the provider gave for client_id; the portal's user must be able to read it",
        special={"": "none: the provider needs no secret of this client"},
    )
    name: str = text("single sign-on", "name of the provider on the button of the page for signing in", _line)
    scopes: tuple[str, ...] = texts(
        ("openid", "email", "profile"), "scopes to ask for; openid is always asked for", _printable, values.distinct
    )
    link_by_address: bool = flag(
        True,
        "the first single sign-on finds a user, or an open invitation, by the mail address, if the provider says that it is "
        "verified; false: only a user who opens an invitation",
    )
    make_users: bool = flag(False, "make a user at the first single sign-on of a person without one; needs groups")
    groups_claim: str = text("groups", "claim with the groups of the person", _printable)
    viewer_groups: tuple[str, ...] = texts((), "groups whose members are viewers", _line, values.distinct)
    operator_groups: tuple[str, ...] = texts((), "groups whose members are operators", _line, values.distinct)
    administrator_groups: tuple[str, ...] = texts(
        (),
        "groups whose members are administrators; if any of the three lists has a group, each single sign-on sets the role, "
        "and takes it away from a person in none of them",
        _line,
        values.distinct,
    )
    passwords: bool = flag(True, "users may also sign in with passwords; false: with single sign-on and passkeys only")
    second_factor_amr: tuple[str, ...] = texts(
        (),
        'values of the claim amr that count as a second factor, such as "mfa"; empty: the portal demands its own',
        _printable,
        values.distinct,
    )
    session_s: int = whole(
        12 * 3600,
        300,
        30 * DAY_S,
        "seconds",
        "how long a session by single sign-on lasts, also if it is used, so that a lost group counts",
    )
    timeout_s: float = number(10.0, 1, 60, "seconds", "how long the portal waits for each answer of the provider")

    @property
    def maps_groups(self) -> bool:
        """Returns whether groups give roles."""
        return bool(self.viewer_groups or self.operator_groups or self.administrator_groups)


def settle(section: dict[str, Any], base: Path, fault: Callable[[tuple[str, str], str], None]) -> None:
    """Makes the path of the secret absolute; a relative one starts at ``base``. Reports settings that lack another one."""
    if section.get("client_secret_file"):
        section["client_secret_file"] = str(base / section["client_secret_file"])
    if section.get("issuer") and not section.get("client_id"):
        fault(("oidc", "issuer"), "needs client_id")
    if section.get("make_users") and not any(section.get(name) for name in GROUPS):
        fault(("oidc", "make_users"), f"needs groups that give a role: {', '.join(GROUPS)}")
    if section.get("passwords") is False and not section.get("issuer"):
        fault(("oidc", "passwords"), "needs issuer, as users could not sign in otherwise")
