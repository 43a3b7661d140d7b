"""Whether a result asks for a fallback next hop, and what a fallback that cannot be used makes of it. Pure.

Law: no mail is returned because a fallback does not exist, takes no mail, or is ourselves: this is a mistake in our
configuration, as in Postfix, and the mail is deferred.

Keeps law: fallback-returns-nothing (docs/laws.md).
"""

from __future__ import annotations

import msgspec

from mailcore.envelope import Status, Verdict
from mailcore.frames import Delivered
from mailcore.routing.mx import HOST_NOT_FOUND

__all__ = ["fault_of", "is_unreachable", "unusable"]


def is_unreachable(result: Delivered) -> bool:
    """Returns whether no host of the next hop could be talked to, or found; a domain that takes no mail is not meant."""
    return result.site_failure or (
        result.relay == "none" and any(verdict.dsn == HOST_NOT_FOUND for verdict in result.verdicts)
    )


def fault_of(result: Delivered) -> str:
    """Returns why a fallback next hop is none: no host of it may get mail; "" of other results."""
    if result.relay != "none" or any(verdict.status is not Status.BOUNCED for verdict in result.verdicts):
        return ""
    return result.verdicts[0].reply


def unusable(first: Delivered, why: str) -> Delivered:
    """Returns the result if a fallback next hop cannot be used.

    ``first`` is that of the destination, which alone decides whether the site has failed.
    """
    words = f"a fallback next hop cannot be used: {why}"
    verdicts = tuple([Verdict(each.number, Status.DEFERRED, "4.3.5", words) for each in first.verdicts])
    return msgspec.structs.replace(first, verdicts=verdicts)
