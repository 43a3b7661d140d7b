"""The section [alerts]: when the portal warns an operator, and where the warnings go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.bounds import DAY_S, bad, choice, flag, number, text, texts, whole
from mailcore.config import values
from mailcore.routing.address import ascii_lower

__all__ = ["RULES", "SAFE", "Alerts", "alerts_warnings", "settle"]

RULES = (
    "core_away",
    "active_set_full",
    "destination_dead",
    "tls_failing",
    "queue_age",
    "queue_growth",
    "bounces",
    "sender_bounces",
    "tls_clear",
    "disk",
    "certificate",
    "dkim",
    "balance",
    "report_missing",
    "replication",
    "webhook",
    "not_checked",
    "watch_away",
    "database",
)
PORT = 25
SECRETS = ("webhook_secret_file", "smtp_password_file")
SAFE = ("verify", "implicit")  # values of smtp_tls with which a password may be sent
_SERVER = re.compile(
    r"(?:\[(?P<literal>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[^\s:/@\[\]]{1,253}))(?::(?P<port>[0-9]{1,5}))?"
)
_URL = re.compile(r"https?://[^\s/?#@]+(?:[/?][^\s]*)?")


def _server(given: str) -> str:
    found = _SERVER.fullmatch(given)
    if not found or not 1 <= int(found["port"] or PORT) <= 65_535:
        raise bad(given, 'must be a mail server: "host", "host:port", "192.0.2.1:25" or "[2001:db8::1]:25"')
    host = f"[{found['literal']}]" if found["literal"] else ascii_lower(found["name"])
    return f"{host}:{int(found['port'] or PORT)}"


def _url(given: str) -> str:
    if not given.isascii() or not _URL.fullmatch(given):
        raise bad(given, 'must be an address such as "https://alerts.example.org/waypost", without user and password')
    return given


def _line(given: str) -> str:
    if not given.isprintable():
        raise bad(given, "must be one line of text")
    return given


def _rule(given: str) -> str:
    if given not in RULES:
        raise bad(given, f"must be a rule: {', '.join(RULES)}")
    return given


def _mailbox(given: str) -> str:
    if not given.isascii():
        raise bad(given, "must be of ASCII: any mail server must take it")
    return values.mailbox(given)


@dataclass(frozen=True, kw_only=True)
class Alerts:
    """[alerts]: warnings of the portal, by mail that does not pass our queue, and by webhook. The core reads none of these."""

    recipients: tuple[str, ...] = texts(
        (), "mail addresses that alerts are sent to; none of them should be delivered by this Waypost", _mailbox
    )
    sender: str = text("", "From address of that mail", _mailbox, special={"": "waypost@ and the name of this host"})
    smtp: str = text(
        "",
        'mail server that takes this mail, "host:port"; it must not be this Waypost',
        _server,
        special={"": "the mail servers (MX) of each recipient's domain, on port 25"},
    )
    smtp_tls: str = choice(
        "may",
        ("none", "may", "verify", "implicit"),
        "TLS with that server: never, STARTTLS if it offers it, always STARTTLS with a valid certificate, or a valid "
        "certificate from the first byte (port 465)",
    )
    smtp_user: str = text("", "name to log in with at `smtp`", _line, special={"": "no login"})
    smtp_password_file: str = text(
        "", "file with the password of smtp_user; the portal's user must be able to read it", special={"": "no login"}
    )
    webhook: str = text(
        "", "address that each alert is posted to as JSON (docs/alerts.md)", _url, special={"": "no webhook"}
    )
    webhook_secret_file: str = text(
        "",
        "file with the secret that signs these requests (HMAC-SHA256); the portal's user must be able to read it",
        special={"": "they are not signed"},
    )
    send_ended: bool = flag(True, "also send when an alert ends")
    off: tuple[str, ...] = texts(
        (), f"rules that are turned off, of {', '.join(RULES)}", _rule, values.distinct, elements=RULES
    )
    interval_s: float = number(10.0, 1, 300, "seconds", "time between two checks of all rules")
    clear_s: int = whole(300, 0, DAY_S, "seconds", "how long the cause of an alert must be gone before the alert ends")
    again_s: int = whole(
        3600, 0, 7 * DAY_S, "seconds", "the same cause is sent again no sooner than this after it was sent"
    )
    keep_days: int = whole(400, 1, 3650, "days", "how long alerts that have ended are kept")
    core_away_s: int = whole(120, 0, DAY_S, "seconds", "core_away: how long the core must not answer")
    active_set_full_s: int = whole(600, 0, DAY_S, "seconds", "active_set_full: how long it must be full")
    destination_dead_s: int = whole(
        3600, 0, 7 * DAY_S, "seconds", "destination_dead: how long a destination must take no mail while mail waits"
    )
    tls_failing_s: int = whole(
        900, 0, 7 * DAY_S, "seconds", "tls_failing: how long mail must wait because TLS with its destination fails"
    )
    queue_age_s: int = whole(DAY_S, 300, 60 * DAY_S, "seconds", "queue_age: age of the oldest message in the queue")
    queue_growth_recipients: int = whole(
        10_000, 1, 100_000_000, "recipients", "queue_growth: this many more recipients queued than an hour before"
    )
    bounces_percent: int = whole(
        20, 1, 100, "per cent", "bounces: this share of the recipients of an hour whose mail bounced or expired"
    )
    bounces_recipients: int = whole(
        200, 1, 100_000_000, "recipients", "bounces: if this many were delivered, bounced or expired in that hour"
    )
    sender_bounces_percent: int = whole(
        5,
        1,
        100,
        "per cent",
        "sender_bounces: this share of the recipients of an hour of mail from one domain that bounced or expired",
    )
    sender_bounces_recipients: int = whole(
        200,
        1,
        100_000_000,
        "recipients",
        "sender_bounces: if this many of that mail were delivered, bounced or expired",
    )
    tls_clear_transactions: int = whole(
        10,
        1,
        100_000_000,
        "transactions",
        "tls_clear: transactions of an hour in the clear with a host, because TLS failed or was not offered as before",
    )
    disk_reserve_times: float = number(
        2.0,
        1,
        100,
        "times",
        "disk: free space or inodes below this many times the reserve, at which new mail gets 452",
    )
    portal_disk_free_bytes: int = whole(
        512 << 20, 1 << 20, 1 << 50, "bytes", "disk: free space on the disk of the portal's database and of the reports"
    )
    certificate_days: int = whole(14, 1, 365, "days", "certificate: days before a certificate expires")
    dkim_s: int = whole(
        3600,
        0,
        7 * DAY_S,
        "seconds",
        "dkim: how long the DNS record of a key that signs mail must be missing or not usable",
    )
    balance_s: int = whole(600, 0, DAY_S, "seconds", "balance: how long the live balance must not add up")
    report_late_s: int = whole(
        12 * 3600, 3600, 7 * DAY_S, "seconds", "report_missing: time after the end of a day until its report is missing"
    )
    replication_s: int = whole(
        30,
        0,
        DAY_S,
        "seconds",
        "replication: how long the database that keeps the queue must not take what it is given",
    )
    webhook_failing_s: int = whole(
        3600, 60, 7 * DAY_S, "seconds", "webhook: how long the receiver of a webhook must not take events"
    )
    not_checked_s: int = whole(900, 0, DAY_S, "seconds", "not_checked: how long a rule could not be checked")
    database_s: int = whole(
        120, 0, DAY_S, "seconds", "database: how long the portal's database, which holds the alerts, cannot be used"
    )
    watch_away_s: int = whole(300, 30, DAY_S, "seconds", "watch_away: how long no rule was checked at all")


def settle(section: dict[str, Any], base: Path, fault: Callable[[tuple[str, str], str], None]) -> None:
    """Makes the paths of secrets absolute; a relative one starts at ``base``. Reports a login that would not be safe."""
    for name in SECRETS:
        if section.get(name):
            section[name] = str(base / section[name])
    if not section.get("smtp_user"):
        return
    if not section.get("smtp") or not section.get("smtp_password_file"):
        fault(("alerts", "smtp_user"), "needs smtp and smtp_password_file")
    if section.get("smtp_tls") not in SAFE:
        fault(
            ("alerts", "smtp_user"),
            'needs smtp_tls = "verify" or "implicit", so that no other server gets the password',
        )


def alerts_warnings(alerts: Alerts, domains: Sequence[str]) -> Iterator[str]:
    """Yields a sentence for each setting that does less than it says. ``domains``: [relay] domains."""
    if alerts.webhook_secret_file and not alerts.webhook:
        yield "[alerts] webhook_secret_file: no effect while webhook is not set; set webhook"
    if alerts.smtp_password_file and not alerts.smtp_user:
        yield "[alerts] smtp_password_file: no effect while smtp_user is not set; set smtp_user"
    if alerts.smtp:
        return
    for recipient in alerts.recipients:
        domain = recipient.rpartition("@")[2]
        if any(domain == each or (each.startswith(".") and domain.endswith(each)) for each in domains):
            yield (
                f"[alerts] recipients: mail for {domain} passes this Waypost, so that {recipient} gets no alert while it is "
                "down; use another address, or set smtp to the server behind it"
            )
