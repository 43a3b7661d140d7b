"""The kinds of settings that have a page of their own: their sections, keys and tables. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailcore.config.described import bounds_of
from mailcore.config.managed import manageable

__all__ = ["KINDS", "MORE", "Group", "Kind", "Table"]


class Group(NamedTuple):
    """Keys of a section in one form; without keys, all that can be managed."""

    section: str
    title: str
    keys: tuple[str, ...] = ()


class Table(NamedTuple):
    """A table with a row for each entry.

    ``shape``: "list", a section that is repeated; "named", a section for each name; "pairs", a name and a text.
    """

    section: str
    title: str
    shape: str
    about: str
    one: str  # the word for a row
    name: str = ""  # label of the name
    example: str = ""


class Kind(NamedTuple):
    """A page."""

    slug: str
    title: str
    about: str
    groups: tuple[Group, ...] = ()
    tables: tuple[Table, ...] = ()
    link: tuple[str, str] = ("", "")  # the name of a page that goes with it, and its words


ROUTE = (
    'A route is "transport", "transport:domain:port", "transport:[host]:port", "discard", "error:5.7.1 text" or "hold".'
)

_TARGETS = ("recipients", "sender", "smtp", "smtp_tls", "smtp_user", "webhook", "send_ended")
_LETTER = ("recipients", "sender", "zone", "numbers")
_TIMES = ("off", "interval_s", "clear_s", "again_s", "keep_days")


def _of(section: str, *, but: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in bounds_of(section) if name not in but)


KINDS = {
    each.slug: each
    for each in (
        Kind(
            "relay",
            "Relay",
            "The domains that mail is accepted for, and the clients that may send to any.",
            (Group("relay", "Domains and networks"), Group("recipients", "Valid recipients")),
        ),
        Kind(
            "routes",
            "Routes",
            f"Where mail goes. {ROUTE}",
            (),
            (
                Table(
                    "routes", "By recipient", "pairs", "An address, a domain, .example.org, or * for all others.",
                    "route", "Recipients", "example.org",
                ),
                Table("sender_routes", "By sender", "pairs", "Instead of the route of *.", "route", "Senders", "example.org"),
                Table("login_routes", "By login", "pairs", "Instead of the route of *.", "route", "User", "kim"),
            ),
        ),
        Kind(
            "transports",
            "Transports",
            "How mail is delivered. smtp, relay and bulk always exist. Values that are tuned live count above these.",
            (Group("deliverer", "Connections"), Group("scheduler", "Scheduler")),
            (Table("transports", "Transports", "named", "Any other name defines one more.", "transport", "Name", "provider"),),
        ),
        Kind(
            "listeners",
            "Listeners",
            "Addresses that mail is taken at. On a server whose sockets systemd opens, addresses are changed with Ansible.",
            (Group("auth", "Logins"), Group("clients", "Clients")),
            (Table("listener", "Listeners", "list", "Those of [receiver] listen are not in this table.", "listener"),),
        ),
        Kind(
            "tls",
            "TLS policies",
            "Encryption towards next hops, instead of that of the transport.",
            (Group("tls", "All next hops"),),
            (Table("tls_policy", "Policies", "named", "A next hop, or .example.org.", "policy", "Next hop", "example.org"),),
        ),
        Kind(
            "milters",
            "Milters",
            "Programs that check and change mail while it is received, each named by its address.",
            (Group("receiver", "In use", ("milters", "non_smtpd_milters")),),
            (Table("milter", "How they are used", "list", "A milter without a row has the defaults.", "milter"),),
        ),
        Kind(
            "alerts",
            "Alerts",
            "Warnings: their recipients, the rules, and their limits. The mail does not pass the queue of this Waypost. A "
            "password for the mail server is named in the configuration file.",
            (
                Group("alerts", "Mail and webhook", _TARGETS),
                Group("alerts", "Which rules, and when", _TIMES),
                Group("alerts", "Limits of the rules", _of("alerts", but=(*_TARGETS, *_TIMES))),
            ),
            link=("alerts:alerts", "Open alerts, silences, and a test of mail and webhook"),
        ),
        Kind(
            "reports",
            "Reports",
            "The nightly report: its recipients, its time zone, how numbers are written, and how long its tables are kept.",
            (Group("reports", "Mail", _LETTER), Group("reports", "Making and keeping", _of("reports", but=_LETTER))),
            link=("reports:schedules", "When it is made"),
        ),
    )
}  # fmt: skip
_SHOWN = {group.section for kind in KINDS.values() for group in kind.groups if not group.keys} | {"alerts", "reports"}
MORE = tuple(
    dict.fromkeys(section for section in (key.partition(".")[0] for key, _ in manageable()) if section not in _SHOWN)
)
