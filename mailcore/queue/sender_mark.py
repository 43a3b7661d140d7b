"""The mark of a sender in the index of a segment: 32 bits, by which a filter passes over the mail of nearly all others.

The high 16 bits are made of the domain, the low ones of the whole address, so that a filter can name either. Two senders that
compare as equal (mailcore.routing.address.comparable) have the same mark, or 0, which says nothing. Later releases read the
indexes of today, so the mark is made of the address with A-Z in lower case. An address that needs more than that has no mark.

Keeps law: index-is-a-cache (docs/laws.md).
"""

from __future__ import annotations

from functools import lru_cache

import google_crc32c

__all__ = ["DOMAIN_BITS", "MARK_BITS", "domain_mark", "sender_mark"]

MARK_BITS = 0xFFFF_FFFF
DOMAIN_BITS = 0xFFFF_0000

SENDERS_REMEMBERED = 1024  # the mark of one that is not costs 1 us

_crc32c = google_crc32c.value


@lru_cache(SENDERS_REMEMBERED)
def sender_mark(sender: str) -> int:
    """Returns the mark of a sender, "" included; 0 if it can have none."""
    if not sender.isascii() or sender.endswith((".", "]")):  # in these, other parts count than the letters
        return 0
    address = sender.lower().encode()
    return (_domain_crc(address.rpartition(b"@")[2]) | (_crc32c(address) & 0xFFFF)) or 1


def domain_mark(domain: str) -> int:
    """Returns the bits of the mark that all senders in the domain share, those without a mark aside; 0 if there are none."""
    return _domain_crc(domain.lower().encode()) if domain.isascii() and not domain.endswith((".", "]")) else 0


def _domain_crc(domain: bytes) -> int:
    return int(_crc32c(domain)) << 16 & DOMAIN_BITS
