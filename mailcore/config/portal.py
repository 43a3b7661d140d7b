"""The section [portal]: the web portal."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, choice, flag, number, text, whole
from mailcore.config import values
from mailcore.config.portal_metrics import PortalMetrics

__all__ = ["Portal"]


@dataclass(frozen=True, kw_only=True)
class Portal(PortalMetrics):
    """[portal]: the web portal, which `./run` starts beside the core. The core itself reads none of these."""

    listen: str = text("127.0.0.1:8025", "address and port to listen on, an IPv6 address in brackets", values.endpoint)
    public_url: str = text(
        "",
        "address that browsers use if there is a proxy, such as https://waypost.example.org",
        special={"": "the address the portal listens on"},
    )
    hsts_preload: bool = flag(
        False, "with HTTPS, allow browsers to add the host to their preload list, which takes months to undo"
    )
    processes: int = whole(1, 1, 16, "processes", "portal processes that share the port")
    database_url: str = text(
        "",
        "postgresql://…; the environment variable DATABASE_URL overrides it",
        special={"": "an SQLite database below home"},
    )
    session_idle_s: int = whole(
        12 * 3600, 300, 30 * DAY_S, "seconds", "time without a request after which a person is signed out"
    )
    lockout_failures: int = whole(
        5, 2, 100, "attempts", "wrong passwords after which an account is locked for that client"
    )
    lockout_s: int = whole(900, 60, DAY_S, "seconds", "how long the account stays locked")
    require_totp: str = choice(
        "none",
        ("none", "administrators", "everybody"),  # lang: quoted
        "accounts that must sign in with TOTP; until it is set up they see no other page",
    )
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
