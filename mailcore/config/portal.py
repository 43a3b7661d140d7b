"""The section [portal]: the web portal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.bounds import DAY_S, bad, flag, number, text, texts, whole
from mailcore.config import values
from mailcore.config.portal_metrics import PortalMetrics

__all__ = ["OF_NODES", "ROLES", "Portal", "settle"]

OF_NODES = "nodes"  # database_url: the database of [nodes]
ROLES = ("viewer", "operator", "administrator")


def _role(given: str) -> str:
    if given not in ROLES:
        raise bad(given, f"must be a role: {', '.join(ROLES)}")
    return given


@dataclass(frozen=True, kw_only=True)
class Portal(PortalMetrics):
    """[portal]: the web portal, which `./run` starts beside the core. The core itself reads none of these."""

    listen: str = text("127.0.0.1:8025", "address and port to listen on, an IPv6 address in brackets", values.endpoint)
    public_url: str = text(
        "",
        "address that browsers use if there is a proxy, such as https://waypost.example.org",
        special={"": "the address the portal listens on"},
    )
    tls_certificate: str = text(
        "",
        "PEM file with the certificate chain with which the portal itself speaks HTTPS; browsers may use each of its names",
        special={"": "HTTP, for a proxy in front"},
    )
    tls_key: str = text("", "PEM file with its private key; only the portal's user needs to read it")
    hsts_preload: bool = flag(
        False, "with HTTPS, allow browsers to add the host to their preload list, which takes months to undo"
    )
    processes: int = whole(1, 1, 16, "processes", "portal processes that share the port")
    database_url: str = text(
        "",
        "postgresql://…; the environment variable DATABASE_URL overrides it",
        special={
            "": "an SQLite database below home",
            OF_NODES: "the schema waypost_portal of the database of [nodes], as the user waypost_portal: one for all nodes",
        },
    )
    database_password_file: str = text(
        "",
        "file with the password of the user waypost_portal in its first line, for the database of [nodes]; only the portal's "
        "user needs to read it",
        special={"": "none is needed"},
    )
    session_idle_s: int = whole(
        12 * 3600, 300, 30 * DAY_S, "seconds", "time without a request after which a person is signed out"
    )
    lockout_failures: int = whole(
        5, 2, 100, "attempts", "wrong passwords after which an account is locked for that client"
    )
    lockout_s: int = whole(900, 60, DAY_S, "seconds", "how long the account stays locked")
    second_factor_for: tuple[str, ...] = texts(
        (),
        "roles that must sign in with a second factor, of viewer, operator, administrator; until a user has set one up, this "
        "user sees no other page and the user's tokens are refused",
        _role,
        values.distinct,
    )
    invitation_s: int = whole(
        3 * DAY_S, 300, 30 * DAY_S, "seconds", "how long the link of an invitation works, until it is used"
    )
    invitations_max: int = whole(100, 1, 10_000, "invitations", "invitations that may be open at a time")
    manages: bool = flag(
        True,
        "settings can be changed while Waypost runs, with waypost settings, and are kept in managed.toml below home; false:"
        " only in the configuration file",
    )
    core_timeout_s: float = number(
        5.0, 0.5, 60, "seconds", "how long a page waits for the core before it shows that there is no answer"
    )
    change_timeout_s: float = number(20.0, 1, 300, "seconds", "how long a change waits for the core's answer")
    readers_max: int = whole(
        500, 1, 10_000, "pages", "maximum live pages open in one portal process; further ones try again later"
    )
    sample_days: int = whole(35, 1, 3650, "days", "how long the minute samples of the charts are kept")
    audit_days: int = whole(3650, 30, 36_500, "days", "how long the audit log is kept")
    webhook_timeout_s: float = number(
        10.0,
        1,
        60,
        "seconds",
        "how long a webhook waits for each answer of its receiver; a whole request has three times this",
    )
    webhook_retry_s_max: int = whole(
        300, 1, 3600, "seconds", "longest wait before a request of a webhook that failed is sent again"
    )
    api_token_days_max: int = whole(365, 1, 3650, "days", "longest life of a token of the HTTP API")
    api_tokens_max: int = whole(50, 1, 1000, "tokens", "tokens in use that one user may have")
    api_requests_per_minute: int = whole(600, 10, 100_000, "requests", "requests a minute with one token; more get 429")
    api_idempotency_s: int = whole(
        DAY_S, 60, 30 * DAY_S, "seconds", "how long the answer to an Idempotency-Key is kept for a repeated request"
    )
    api_body_bytes_max: int = whole(
        33_554_432, 65_536, 1 << 30, "bytes", "maximum size of a request that hands in a message; a larger one gets 413"
    )


def settle(
    section: dict[str, Any], nodes: Mapping[str, Any], base: Path, fault: Callable[[tuple[str, str], str], None]
) -> None:
    """Makes the path of the password absolute; a relative one starts at ``base``. Reports a setting that lacks another one."""
    if section.get("database_password_file"):
        section["database_password_file"] = str(base / section["database_password_file"])
    if section.get("database_url") == OF_NODES and not nodes.get("database"):
        fault(("portal", "database_url"), 'must have [nodes] database if it is "nodes"')
