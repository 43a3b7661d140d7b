"""The section [recipients]: how the valid recipients of [relay] domains are known.

Values only: ``mailcore.rewriting.recipient_list`` reads the files.

Keeps law: unknown-recipient-refused (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailcore.bounds import DAY_S, choice, number, text, texts, whole
from mailcore.config import greylist, rewriting, values
from mailcore.config.map_file import map_file

__all__ = ["FILE", "STATE", "SUFFIX", "Recipients", "domain_pattern_of", "settle", "warnings_about"]

STATE = "receiver"  # the directory below home with the receivers' own small store
FILE = "recipients.sqlite3"  # the store
SUFFIX = ".damaged"  # of a store that was set aside
LISTS = {"file_domains": "file", "next_hop_domains": "next_hop", "any_domains": "any"}


@dataclass(frozen=True, kw_only=True)
class Recipients:
    """[recipients]: how the valid recipients of [relay] domains are known, so that mail for others is refused at RCPT."""

    known_by: str = choice(
        "any",
        ("any", "file", "next_hop"),
        "any: every recipient is accepted; file: those in relay_recipient_maps; next_hop: those that the next hop accepts at "
        "RCPT, as Postfix's reject_unverified_recipient. For [relay] domains that no list below names",
    )
    relay_recipient_maps: tuple[str, ...] = texts(
        (),
        "files with the valid recipients, an address or @domain at the beginning of each line, as Postfix's "
        "relay_recipient_maps. They are read again when they change",
        map_file,
        values.distinct,
    )
    file_domains: tuple[str, ...] = texts(
        (),
        "domains whose recipients are known by the files; .example.org stands for all its subdomains",
        values.domain_pattern,
        values.distinct,
    )
    next_hop_domains: tuple[str, ...] = texts(
        (), "domains whose recipients are known by asking the next hop", values.domain_pattern, values.distinct
    )
    any_domains: tuple[str, ...] = texts(
        (), "domains of which every recipient is accepted", values.domain_pattern, values.distinct
    )
    address_verify_sender: str = text(
        "", "sender of the probes that ask a next hop", values.mailbox, special={"": "<>, the sender of bounces"}
    )
    address_verify_positive_expire_time_s: int = whole(
        31 * DAY_S, 1, 366 * DAY_S, "seconds", "how long a next hop's yes is used, as Postfix"
    )
    address_verify_positive_refresh_time_s: int = whole(
        7 * DAY_S,
        1,
        366 * DAY_S,
        "seconds",
        "age of a yes from which the next hop is asked again, while the yes is used",
    )
    address_verify_negative_expire_time_s: int = whole(
        3 * DAY_S, 1, 366 * DAY_S, "seconds", "how long a next hop's no is used while it cannot be asked again"
    )
    address_verify_negative_refresh_time_s: int = whole(
        3 * 3600, 0, 366 * DAY_S, "seconds", "how long a no is used without asking again", special={0: "not at all"}
    )
    address_verify_cache_entries: int = whole(
        100_000,
        1_000,
        10_000_000,
        "addresses",
        "maximum answers that are kept, in `receiver` below `home`; the oldest go",
    )
    address_verify_concurrency: int = whole(
        20, 1, 1_000, "probes", "maximum concurrent probes of one receiver; beyond it recipients get 450"
    )
    address_verify_client_rate_limit: int = whole(
        60, 0, 1_000_000, "probes",
        "probes in a minute because of one client network (IPv4 /24, IPv6 /64), in one receiver; beyond it recipients get 450",
        special={0: "no limit"},
    )  # fmt: skip
    address_verify_timeout_s: float = number(
        30.0, 0.1, 600, "seconds", "timeout of each step of a probe: connection, reply"
    )
    address_verify_wait_s: float = number(
        9.0,
        0.1,
        120,
        "seconds",
        "how long RCPT waits for a probe before it gets 450; Postfix polls 3 times, every 3 seconds",
    )
    unverified_recipient_tempfail_action: str = choice(
        "defer",
        ("defer", "accept"),
        "reply to recipients while the next hop cannot be asked: 450, or accepted as if it had said yes",
    )

    @property
    def is_on(self) -> bool:
        """Returns whether any recipient is checked."""
        return any(way != "any" for way in self.ways.values())

    @property
    def ways(self) -> dict[str, str]:
        """Returns how recipients are known, by pattern of domains; "" is that of all others."""
        ways = {pattern: way for name, way in LISTS.items() for pattern in getattr(self, name)}
        return {"": self.known_by} | ways


def settle(sections: dict[str, Any], base: Path, fault: Callable[[tuple[str, ...], str], object]) -> None:
    """Makes the paths of map files absolute, and calls ``fault`` for keys that contradict each other, also of [greylist]."""
    rewriting.absolute(sections["rewriting"], base)
    section = sections["recipients"]
    if "relay_recipient_maps" in section:
        section["relay_recipient_maps"] = tuple(str(base / each) for each in section["relay_recipient_maps"])
    made = Recipients(**section)
    greylist.settle(sections["greylist"], fault)
    taken: dict[str, str] = {}
    for name in LISTS:
        for pattern in getattr(made, name):
            if pattern in taken:
                fault(("recipients", name), f"must not have {pattern!a}, which is in {taken[pattern]} already")
            taken[pattern] = name
    if "file" in made.ways.values() and not made.relay_recipient_maps:
        key = "known_by" if made.known_by == "file" else "file_domains"
        fault(("recipients", key), "needs relay_recipient_maps; without a file, all recipients would be refused")


def warnings_about(recipients: Recipients, domains: Sequence[str]) -> Iterator[str]:
    """Yields a sentence for each key without effect. ``domains`` are those of [relay]."""
    for name in LISTS:
        for pattern in getattr(recipients, name):
            if pattern not in domains and not domain_pattern_of(pattern.lstrip("."), domains):
                yield f"[recipients] {name} has {pattern}, which is not in [relay] domains: no mail is accepted for it"
    if recipients.relay_recipient_maps and "file" not in recipients.ways.values():
        yield '[recipients] relay_recipient_maps is not used; set known_by = "file", or file_domains'


def domain_pattern_of(domain: str, patterns: Sequence[str] | dict[str, str]) -> str:
    """Returns the most specific pattern of a domain, ``example.org`` or ``.example.org``; "" if none fits."""
    if domain in patterns:
        return domain
    while "." in domain:
        domain = domain.partition(".")[2]
        if f".{domain}" in patterns:
            return f".{domain}"
    return ""
