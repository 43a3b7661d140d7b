"""[[dkim]]: the keys that sign the mail of our own domains."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from mailcore.bounds import bad, flag, text
from mailcore.routing.address import a_labels

__all__ = ["KEYS_MAX", "DkimKey", "KeysByDomain", "check_key_file", "dkim_faults", "domain_name", "selector_name"]

KEYS_MAX = 1_000
FILE_BYTES_MAX = 64 << 10
_PRIVATE = b" PRIVATE KEY-----"
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


def check_key_file(path: str) -> str:
    """Returns the path if the file may hold a key. Raises BadValue.

    It needs no package, as a text is checked with Python alone; ``waypost dkim check`` and the deliverers load the key.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise bad(path, f"must be a file that can be read: {error.strerror}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise bad(path, "must not be a file that every user of this host can read or change; run chmod 640 on it")
    if _PRIVATE not in data:
        raise bad(path, "must be a PEM file with a private key that is not encrypted")
    return path


@dataclass(frozen=True, kw_only=True)
class DkimKey:
    """[[dkim]]: a key that signs mail from our own users and networks (DKIM). Repeat the section for each key; several for one
    domain make several signatures."""

    domain: str = text("", "domain in the From field of the mail to sign, and of the DNS record", domain_name)
    selector: str = text("", "name of the key in the DNS: the record is SELECTOR._domainkey.DOMAIN", selector_name)
    key: str = text("", "PEM file with the private key, RSA or Ed25519; waypost dkim new makes one")
    subdomains: bool = flag(False, "also sign mail from all subdomains that have no key of their own")


T = TypeVar("T")


class KeysByDomain(Generic[T]):
    """Finds the keys that sign for a domain: its own, or those of the nearest domain above it that signs for subdomains."""

    def __init__(self) -> None:
        self._exact: dict[str, list[T]] = {}
        self._below: dict[str, list[T]] = {}

    def add(self, domain: str, key: T, *, subdomains: bool) -> None:
        """Adds a key of a domain."""
        self._exact.setdefault(domain, []).append(key)
        if subdomains:
            self._below.setdefault(domain, []).append(key)

    def of(self, domain: str) -> list[T]:
        """Returns the keys that sign for a domain; [] if there are none."""
        found = self._exact.get(domain)
        while found is None and "." in domain:
            domain = domain.partition(".")[2]
            found = self._below.get(domain)
        return found or []


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
