"""[[dkim]]: the keys that sign the mail of our own domains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mailcore.bounds import bad, flag, text
from mailcore.routing.address import a_labels

__all__ = ["KEYS_MAX", "DkimKey", "dkim_faults", "domain_name", "selector_name"]

KEYS_MAX = 1_000
_SELECTOR = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")  # RFC 6376 3.1
_DOMAIN = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})+")


def domain_name(given: str) -> str:
    """Returns a domain as A-labels in lower case. Raises BadValue."""
    try:
        name = a_labels(given)
    except UnicodeError:
        name = ""
    if not _DOMAIN.fullmatch(name):
        raise bad(given, "must be a domain, such as example.org")
    return name


def selector_name(given: str) -> str:
    """Returns a selector in lower case. Raises BadValue."""
    name = given.lower()
    if not _SELECTOR.fullmatch(name) or len(name) > 63:
        raise bad(given, "must be letters, digits and hyphens, such as 2026a")
    return name


@dataclass(frozen=True, kw_only=True)
class DkimKey:
    """[[dkim]]: a key that signs mail from our own users and networks (DKIM). Repeat the section for each key; several for one
    domain make several signatures."""

    domain: str = text("", "domain in the From field of the mail to sign, and of the DNS record", domain_name)
    selector: str = text("", "name of the key in the DNS: the record is SELECTOR._domainkey.DOMAIN", selector_name)
    key: str = text("", "PEM file with the private key, RSA or Ed25519; waypost dkim new makes one")
    subdomains: bool = flag(False, "also sign mail from all subdomains that have no key of their own")


def dkim_faults(keys: Sequence[DkimKey]) -> Iterator[tuple[int, str, str]]:
    """Yields number, name of the setting and reason of each key that lacks a value, or has the names of another one."""
    taken: set[tuple[str, str]] = set()
    for number, key in enumerate(keys):
        for name in ("domain", "selector", "key"):
            if not getattr(key, name):
                yield number, name, "must be set"
        if key.domain and (key.domain, key.selector) in taken:
            yield number, "selector", f"must be another one; {key.selector} of {key.domain} has a key already"
        taken.add((key.domain, key.selector))
    if len(keys) > KEYS_MAX:
        yield KEYS_MAX, "domain", f"is one too many; at most {KEYS_MAX} keys are allowed"
