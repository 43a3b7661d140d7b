"""The DNS records of the keys that sign our mail: whether another server can verify a signature with them (RFC 6376 3.6)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import dns.exception
import dns.resolver

from appliance.alerts.facts import KeyRecord, Unknown
from appliance.alerts.name_servers import own_resolver

__all__ = ["look_up"]

ONE_S = 5.0
ALL_S = 60.0  # for all keys: a name server may be dead
_PUBLIC = re.compile(r"(?:^|;)\s*p\s*=([^;]*)")
_FLAGS = re.compile(r"(?:^|;)\s*t\s*=([^;]*)")


def look_up(names: Sequence[str]) -> tuple[KeyRecord, ...]:
    """Returns what the DNS has about each key. A key whose record could not be asked for is Unknown."""
    resolver = own_resolver()
    until = time.monotonic() + ALL_S
    found = []
    for name in names:
        if time.monotonic() > until:
            found.append(KeyRecord(name, Unknown(f"{name}: the name servers are too slow")))
        else:
            found.append(KeyRecord(name, _fault(resolver, name)))
    return tuple(found)


def _fault(resolver: dns.resolver.Resolver, name: str) -> str | Unknown:
    try:
        answer: Any = resolver.resolve(name, "TXT", lifetime=ONE_S)
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return "is missing"
    except (dns.exception.DNSException, OSError) as error:
        return Unknown(f"{name}: {error}")
    texts = [b"".join(record.strings).decode("utf-8", "replace") for record in answer]
    keys = [(text, match[1]) for text in texts if (match := _PUBLIC.search(text))]
    if not keys:
        return "has no key"
    if len(keys) > 1:
        return "has several keys"
    text, public = keys[0]
    if not public.strip():
        return "is revoked"
    flags = _FLAGS.search(text)
    return "is marked as a test (t=y)" if flags and "y" in re.split(r"\s*:\s*", flags[1].strip()) else ""
