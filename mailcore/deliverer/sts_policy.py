"""The texts of MTA-STS (RFC 8461): the TXT record, the policy, and which MX hosts it allows. Pure: no DNS, no HTTP, no disk."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from mailcore.routing.route import RouteError, domain_name
from mailcore.tls_result import Result

__all__ = ["MAX_AGE_S_MAX", "PolicyError", "StsPolicy", "allows", "parse_policy", "record_id"]

MAX_AGE_S_MAX = 31_557_600  # RFC 8461 3.2: a year
MAX_AGE_S_MIN = 60  # a policy that ends sooner would be fetched for every message
HOSTS_MAX = 1_000  # patterns of one policy; 64 kB have room for more
_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_MAX_AGE = re.compile(r"[0-9]{1,10}")
_MODES = ("enforce", "testing", "none")


class PolicyError(Exception):
    """A policy that can't be used; the message has its reason, ``result`` the code for reports."""

    def __init__(self, reason: str, result: Result = Result.STS_POLICY_INVALID) -> None:
        super().__init__(reason)
        self.result = result


class StsPolicy(msgspec.Struct, frozen=True):
    """A policy as it was fetched. Times are wall clock, in seconds."""

    domain: str
    id: str  # of the TXT record when it was fetched
    mode: str  # enforce, testing or none
    hosts: tuple[str, ...]  # patterns of MX hosts: "mx.example.org" or "*.example.org"
    max_age_s: int
    fetched_at: float

    @property
    def lines(self) -> tuple[str, ...]:
        """Returns the policy as lines, for reports (RFC 8460 4.4)."""
        hosts = [f"mx: {host}" for host in self.hosts]
        return ("version: STSv1", f"mode: {self.mode}", *hosts, f"max_age: {self.max_age_s}")

    def holds(self, now: float) -> bool:
        """Returns whether the policy is in force; a clock that was set back does not make it last longer than max_age."""
        return abs(now - self.fetched_at) < self.max_age_s


def record_id(texts: Sequence[str]) -> str:
    """Returns the id in the TXT records of ``_mta-sts.DOMAIN``; "" unless exactly one is a record of MTA-STS."""
    records = [text for text in texts if re.match(r"v=STSv1\s*(;|$)", text)]
    if len(records) != 1:
        return ""
    for field in records[0].split(";")[1:]:
        name, _, value = field.strip().partition("=")
        if name == "id":
            return value if _ID.fullmatch(value) else ""
    return ""


def parse_policy(text: str, domain: str, identifier: str, now: float) -> StsPolicy:
    """Reads the policy of a domain. Raises PolicyError."""
    fields: dict[str, str] = {}
    hosts: list[str] = []
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon:
            if name:
                raise PolicyError("a line without a colon")
        elif name == "mx":
            hosts.append(_pattern(value))
        else:
            fields.setdefault(name, value)
    if fields.get("version") != "STSv1":
        raise PolicyError("its version is not STSv1")
    mode = fields.get("mode", "")
    if mode not in _MODES:
        raise PolicyError("its mode is not enforce, testing or none")
    if not _MAX_AGE.fullmatch(fields.get("max_age", "")):
        raise PolicyError("its max_age is not a number")
    if (not hosts and mode != "none") or len(hosts) > HOSTS_MAX:
        raise PolicyError(f"it must name 1 to {HOSTS_MAX} MX hosts")
    max_age_s = max(MAX_AGE_S_MIN, min(int(fields["max_age"]), MAX_AGE_S_MAX))
    return StsPolicy(domain, identifier, mode, tuple(hosts), max_age_s, now)


def _pattern(text: str) -> str:
    try:
        return "*." + domain_name(text[2:]) if text.startswith("*.") else domain_name(text)
    except RouteError:
        raise PolicyError("an MX host that is not a name") from None


def allows(patterns: Sequence[str], host: str) -> bool:
    """Returns whether a policy allows an MX host; a wildcard stands for exactly one label (RFC 8461 4.1)."""
    host = host.lower().removesuffix(".")
    above = "*." + host.partition(".")[2]
    return host in patterns or above in patterns
