"""The section [dnsbl]: lists in the DNS of clients that are refused, or trusted.

Values only, and the form of a list as Postfix's postscreen_dnsbl_sites has it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import NamedTuple

from mailcore.bounds import bad, choice, flag, number, texts, whole
from mailcore.config import values
from mailcore.routing.route import RouteError, domain_name

__all__ = ["UNLISTED", "DnsList", "Dnsbl", "dnsbl_warnings", "parse_list", "why_not_listed"]

WEIGHT_MAX = 1_000_000
UNLISTED = (
    "1.0.0.127"  # 127.0.0.1, which no list may have (RFC 5782 5): a list that was shut down has it, with all others
)
_REFUSED = ipaddress.ip_network("127.255.255.0/24")
_NEVER = ipaddress.ip_address("127.0.0.1")  # lists use it for "not allowed"
_ANSWERS = ipaddress.ip_network("127.0.0.0/8")
_SITE = re.compile(r"([^=*\s]+)(?:=([^*\s]+))?(?:\*([+-]?\d{1,7}))?")
_OCTET = re.compile(r"\d{1,3}|\[\d{1,3}(?:\.\.\d{1,3})?(?:;\d{1,3}(?:\.\.\d{1,3})?)*\]")
_FORM = 'must be a list, such as "list.example", "list.example=127.0.0.[2..11]*2" or "allow.example*-2"'


class DnsList(NamedTuple):
    """One entry of ``sites``. ``octets`` are the allowed values of each octet of an answer; none: any answer counts."""

    domain: str
    octets: tuple[frozenset[int], ...]
    weight: int


def parse_list(text: str) -> DnsList:
    """Reads ``domain=filter*weight``. Raises BadValue."""
    match = _SITE.fullmatch(text)
    if match is None:
        raise bad(text, _FORM)
    try:
        domain = domain_name(match[1])
        octets = _octets(match[2]) if match[2] else ()
        weight = int(match[3]) if match[3] else 1
        if not 0 < abs(weight) <= WEIGHT_MAX:
            raise ValueError
    except (RouteError, ValueError):
        raise bad(text, _FORM) from None
    return DnsList(domain, octets, weight)


def _octets(text: str) -> tuple[frozenset[int], ...]:
    parts = re.findall(_OCTET, text)
    if len(parts) != 4 or ".".join(parts) != text:
        raise ValueError
    return tuple(map(_octet, parts))


def _octet(text: str) -> frozenset[int]:
    allowed: set[int] = set()
    for part in text.strip("[]").split(";"):
        first, _, last = part.partition("..")
        low, high = int(first), int(last or first)
        if not low <= high <= 255:
            raise ValueError
        allowed.update(range(low, high + 1))
    return frozenset(allowed)


def _site(text: str) -> str:
    parse_list(text)
    return text


@dataclass(frozen=True, kw_only=True)
class Dnsbl:
    """[dnsbl]: lists in the DNS that clients outside of our networks are looked up in, before they may name a recipient."""

    sites: tuple[str, ...] = texts(
        (),
        'lists, each "domain=filter*weight" as Postfix\'s postscreen_dnsbl_sites: only answers that fit the filter count '
        "(default: all), with their weight (default 1); a negative weight is that of a list of good clients",
        _site,
        values.distinct,
    )
    threshold: int = whole(
        1,
        1,
        WEIGHT_MAX,
        "points",
        "sum of weights from which a client is refused, as Postfix's postscreen_dnsbl_threshold",
    )
    action: str = choice(
        "reject", ("reject", "warn"), "refuse the recipients of such a client with 554, or only log it"
    )
    has_texts: bool = flag(False, "add the TXT record of the list to the reply; it is one look-up more")
    timeout_s: float = number(
        10.0, 0.1, 60, "seconds", "time for the answers of all lists; one that is late counts as not listed"
    )
    late_rest_s: int = whole(
        60,
        0,
        3600,
        "seconds",
        "time for which a list is not asked that was late for three clients in a row; 0: it is asked",
    )
    min_ttl_s: int = whole(60, 1, 86_400, "seconds", "shortest time that the answers about a client are kept")
    max_ttl_s: int = whole(3600, 1, 86_400, "seconds", "longest time that the answers about a client are kept")
    clients_max: int = whole(
        10_000, 100, 1_000_000, "clients", "maximum clients whose answers are kept in one receiver"
    )
    lookups_max: int = whole(
        200, 1, 10_000, "clients", "maximum clients that are looked up at once; a further one counts as not listed"
    )

    @property
    def lists(self) -> tuple[DnsList, ...]:
        """Returns the lists."""
        return tuple(map(parse_list, self.sites))


def why_not_listed(answer: ipaddress.IPv4Address) -> str:
    """Returns why the answer of a list does not mean that a client is on it; "" if it does."""
    if answer == _NEVER or answer in _REFUSED:
        return f"refuses our queries: it answered {answer}"
    if answer not in _ANSWERS:
        return f"answered {answer}, which is not in 127.0.0.0/8"
    return ""


def dnsbl_warnings(settings: Dnsbl) -> Iterator[str]:
    """Yields a sentence for each key without effect: without lists, of a list that cannot count, of weights too low."""
    if not settings.sites:
        for each in fields(settings):
            if getattr(settings, each.name) != getattr(Dnsbl(), each.name):
                yield f"[dnsbl] {each.name} has no effect without sites"
    for site in settings.sites:
        if _never_counts(parse_list(site).octets):
            yield f"[dnsbl] sites: {site} never counts; lists answer 127.x.x.x, but not 127.0.0.1 or 127.255.255.x"
    highest = sum(each.weight for each in settings.lists if each.weight > 0)
    if 0 < highest < settings.threshold:
        yield f"[dnsbl] threshold = {settings.threshold} is never reached: the weights of all lists are {highest} together"


def _never_counts(octets: tuple[frozenset[int], ...]) -> bool:
    """Returns whether a filter holds only answers that never count, as ``mailcore.receiver.dns_lists`` has it."""
    if not octets:
        return False
    first, second, third, fourth = octets
    return (
        127 not in first
        or (second == third == frozenset((0,)) and fourth == frozenset((1,)))
        or second == third == frozenset((255,))
    )
