"""The TXT record with which a domain asks for reports: ``_smtp._tls.DOMAIN`` (RFC 8460 3). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from mailcore.routing.address import is_mailbox

__all__ = ["ADDRESSES_MAX", "Https", "addresses_of", "https_of", "mailbox_of"]

ADDRESSES_MAX = 5  # of one domain that get the report; the RFC has no limit, a hostile zone would
URI_MAX = 2_000  # characters
_VERSION = re.compile(r"v[ \t]*=[ \t]*TLSRPTv1[ \t]*;")
_VISIBLE = re.compile(r"[\x21-\x7e]+")


class Https(NamedTuple):
    """An https address."""

    host: str
    port: int
    path: str  # with its query


def addresses_of(texts: Sequence[str]) -> list[str]:
    """Returns the addresses in the TXT records of a domain, at most ADDRESSES_MAX; [] unless exactly one record is TLSRPT's."""
    records = [text for text in texts if _VERSION.match(text)]
    if len(records) != 1:
        return []
    for field in records[0].split(";")[1:]:
        name, _, value = field.partition("=")
        if name.strip() == "rua":
            found = dict.fromkeys(uri.strip() for uri in value.split(","))
            return [uri for uri in found if mailbox_of(uri) or https_of(uri) is not None][:ADDRESSES_MAX]
    return []


def mailbox_of(uri: str) -> str:
    """Returns the mail address of a mailto address; "" if it is none that mail can be sent to."""
    scheme, _, rest = uri.partition(":")
    if scheme.lower() != "mailto" or len(uri) > URI_MAX:
        return ""
    address = unquote(rest.partition("?")[0])
    return address if address.isascii() and is_mailbox(address) else ""


def https_of(uri: str) -> Https | None:
    """Returns the parts of an https address; None if it is none."""
    if not _VISIBLE.fullmatch(uri) or len(uri) > URI_MAX:
        return None
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port or 443
    except ValueError:
        return None
    if parts.scheme.lower() != "https" or not host or "@" in parts.netloc or not host.isascii():
        return None
    path = parts.path or "/"
    return Https(host, port, f"{path}?{parts.query}" if parts.query else path)
