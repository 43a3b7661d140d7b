"""The masks of ESMTP keywords: ``discard_ehlo_keywords``, [smtp_discard_ehlo_keywords] and [smtpd_discard_ehlo_keywords].

As Postfix's settings of these names: an entry of a table replaces the list that would apply without it. Values only.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mailcore.bounds import BadValue, bad, shown, texts
from mailcore.config import values
from mailcore.config.tls import policy_pattern

__all__ = [
    "OFFERED", "TABLES", "USED", "DiscardsKeywords", "KeywordLists", "discarded_of_transport", "inward_keyword",
    "keyword_tables", "outward_keyword",
]  # fmt: skip

KeywordLists = dict[str, tuple[str, ...]]  # network or pattern of next hops -> keywords
# The keywords of EXTENSIONS (mailcore/esmtp.py); a test compares them. Ansible checks a text with Python alone.
USED = (
    "PIPELINING", "SIZE", "STARTTLS", "ENHANCEDSTATUSCODES", "8BITMIME", "DSN", "SMTPUTF8", "REQUIRETLS", "AUTH",
    "FUTURERELEASE", "DELIVERBY", "MT-PRIORITY", "CHUNKING", "BINARYMIME", "LIMITS", "HELP",
)  # fmt: skip
OFFERED = (*USED, "XCLIENT", "XFORWARD")
DEMANDS_TLS = ("encrypt", "verify", "dane-only")  # levels of TLS that are never lowered
TABLES = ("smtp_discard_ehlo_keywords", "smtpd_discard_ehlo_keywords")
ENTRIES_MAX = 10_000  # of a table; all are compared with a new address


def _keyword(text: str, known: tuple[str, ...]) -> str:
    if text.upper() in known:
        return text.upper()
    near = difflib.get_close_matches(text.upper(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"
    raise BadValue("", text, f"must be a keyword of EHLO that Waypost knows (got {shown(text)}); {hint}")


def outward_keyword(text: str) -> str:
    """Reads a keyword that next hops offer, in any case. Raises BadValue."""
    return _keyword(text, USED)


def inward_keyword(text: str) -> str:
    """Reads a keyword that receivers offer, in any case. Raises BadValue."""
    return _keyword(text, OFFERED)


def discarded_of_transport() -> tuple[str, ...]:
    """Defines the field ``discard_ehlo_keywords`` of a transport."""
    keywords: tuple[str, ...] = texts(
        (),
        "keywords of EHLO that are not used although the next hop offers them, as Postfix's smtp_discard_ehlo_keywords; "
        "[smtp_discard_ehlo_keywords] has those of single next hops",
        outward_keyword,
        values.distinct,
    )
    return keywords


@dataclass(frozen=True, kw_only=True)
class DiscardsKeywords:
    """The setting of [receiver] and of each [[listener]] that hides keywords from clients."""

    discard_ehlo_keywords: tuple[str, ...] = texts(
        (),
        "keywords that are not offered in the reply to EHLO, and whose commands and parameters are refused, as Postfix's "
        "smtpd_discard_ehlo_keywords; [smtpd_discard_ehlo_keywords] has those of single clients",
        inward_keyword,
        values.distinct,
    )


def _server_pattern(text: str, port: int) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        pass
    if "/" in text and not text.startswith("["):
        return values.network(text)  # says what is wrong
    try:
        return policy_pattern(text, port)
    except BadValue:
        rule = (
            'must be a next hop such as "example.org" or "[mx.example.org]:587", ".example.org" for all its subdomains, or a '
            'network of servers such as "192.0.2.0/24"'
        )
        raise bad(text, rule) from None


def keyword_tables(
    table: Callable[[tuple[str, ...]], Mapping[str, object]],
    port: int,
    transports: Mapping[str, Mapping[str, object]],
    fault: Callable[[tuple[str, ...], str], object],
) -> dict[str, KeywordLists]:
    """Reads the two tables; ``table`` returns one by its key, and ``fault`` gets the key and the reason of each fault."""
    for name, reason in _starttls_faults(transports):
        fault(("transports", name, "discard_ehlo_keywords"), reason)

    def read(
        name: str, read_pattern: Callable[[str], str], read_keyword: Callable[[str], str]
    ) -> tuple[str, KeywordLists]:
        given = table((name,))
        return name, _lists(given, read_pattern, read_keyword, lambda key, reason: fault((name, *key), reason))

    servers, clients = TABLES
    return dict(
        [
            read(servers, lambda text: _server_pattern(text, port), outward_keyword),
            read(clients, values.network, inward_keyword),
        ]
    )


def _lists(
    given: Mapping[str, object],
    read_pattern: Callable[[str], str],
    read_keyword: Callable[[str], str],
    fault: Callable[[tuple[str, ...], str], object],
) -> KeywordLists:
    found: KeywordLists = {}
    for name, keywords in given.items():
        try:
            pattern = read_pattern(name)
        except BadValue as error:
            fault((name,), error.reason)
            continue
        if pattern in found:
            fault((name,), f"must not be there twice; it is the same as {pattern!r}")
        if not isinstance(keywords, list) or not all(isinstance(each, str) for each in keywords):
            fault((name,), f'must be a list of keywords such as ["PIPELINING"] (got {shown(keywords)})')
            continue
        try:
            found[pattern] = tuple(dict.fromkeys(read_keyword(each) for each in keywords))
        except BadValue as error:
            fault((name,), error.reason)
    if len(found) > ENTRIES_MAX:
        fault((), f"must have at most {ENTRIES_MAX} entries (got {len(found)})")
    return found


def _starttls_faults(transports: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for name, section in transports.items():
        discarded = section.get("discard_ehlo_keywords", ())
        if section.get("tls") in DEMANDS_TLS and isinstance(discarded, tuple) and "STARTTLS" in discarded:
            yield name, f'must not have STARTTLS, because tls = "{section["tls"]}" demands it: no mail could be sent'
