"""The limits that a next hop announces (RFC 9422): recipients of a transaction, transactions of a session.

An entry that is too big for a transaction goes out in several, one after the other, usually over the same connection.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from mailcore.frames import Deliver

__all__ = ["ServerLimits", "limits_of", "without"]

_LIMIT = re.compile(r"(MAILMAX|RCPTMAX|RCPTDOMAINMAX)=([1-9][0-9]{0,5})", re.IGNORECASE)  # RFC 9422 3, 6


class ServerLimits(NamedTuple):
    """Limits of one server; 0: it announced none."""

    mail_max: int = 0  # transactions of a session
    rcpt_max: int = 0  # recipients of a transaction
    rcpt_domain_max: int = 0  # different domains of a transaction's recipients

    def part_of(self, work: Deliver) -> Deliver:
        """Returns ``work`` with as many of its recipients as one transaction may have, at least one."""
        count = self.rcpt_max or len(work.recipients)
        if len(work.recipients) <= count and not self.rcpt_domain_max:
            return work
        taken: list[int] = []
        domains: set[str] = set()
        for index, (_, address) in enumerate(work.recipients):
            if self.rcpt_domain_max:
                domain = address.rpartition("@")[2].lower()
                if domain not in domains and len(domains) >= self.rcpt_domain_max:
                    continue
                domains.add(domain)
            taken.append(index)
            if len(taken) == count:
                break
        return _only(work, taken)


def limits_of(features: Mapping[str, str]) -> ServerLimits | None:
    """Returns the limits that EHLO announced; None without any. A limit that is not known, or not a number, is ignored."""
    announced = features.get("limits")
    if announced is None:
        return None
    found = {match[1].upper(): int(match[2]) for word in announced.split() if (match := _LIMIT.fullmatch(word))}
    if not found:
        return None
    return ServerLimits(found.get("MAILMAX", 0), found.get("RCPTMAX", 0), found.get("RCPTDOMAINMAX", 0))


def without(work: Deliver, numbers: set[int]) -> Deliver:
    """Returns ``work`` without the recipients of these numbers."""
    return _only(work, [index for index, (number, _) in enumerate(work.recipients) if number not in numbers])


def _only(work: Deliver, indexes: list[int]) -> Deliver:
    options = work.recipient_options
    return msgspec.structs.replace(
        work,
        recipients=tuple([work.recipients[index] for index in indexes]),
        recipient_options=tuple([options[index] for index in indexes]) if options else (),
    )
