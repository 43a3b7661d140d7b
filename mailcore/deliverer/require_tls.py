"""REQUIRETLS and TLS-Required (RFC 8689): what a sender demands of the encryption of one message, or waives.

Laws
- A message with REQUIRETLS leaves only over TLS with a checked certificate, to a host that offers REQUIRETLS; its name does
  not come from DNS alone: the next hop itself, an MX host by DNSSEC, or one that an MTA-STS policy allows. A message without
  a sender, which is a report, also goes to a host that does not offer it: it could not be returned (RFC 8689 5).
- TLS-Required: No lowers only what the recipient's domain publishes (DANE, MTA-STS), never what the operator demands.

Keeps law: requiretls-is-kept (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.opening import Unusable
from mailcore.envelope import Options, Status
from mailcore.esmtp import REQUIRETLS
from mailcore.frames import NextHop
from mailcore.tls.policy import Policy

__all__ = ["NOT_OFFERED", "PUBLISHED", "requires_tls", "returned", "strengthened", "waives_tls", "without_requirement"]

PUBLISHED = ("dane", "mta-sts")  # levels that follow what the recipient's domain publishes
NOT_OFFERED = "4.7.30"  # of a host; the message is returned if that is so of all
_VERIFYING = ("verify", "dane-only", "mta-sts")
_WAIVED = re.compile(rb"^TLS-Required:[ \t]*No[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


def requires_tls(options: Options) -> bool:
    """Returns whether the sender said REQUIRETLS."""
    return any(keyword == REQUIRETLS for keyword, _ in options)


def without_requirement(options: Options) -> Options:
    """Returns the options without REQUIRETLS: for a Unix socket, where nothing leaves this host, and for a report."""
    return tuple(option for option in options if option[0] != REQUIRETLS)


def strengthened(policy: Policy, next_hop: NextHop, ca_file: str) -> Policy:
    """Returns a policy that checks the certificate: ``policy``, or one for the name of the next hop."""
    if policy.level in _VERIFYING:
        return policy
    return Policy("verify", REQUIRETLS, (next_hop.host, "." + next_hop.host), ca_file)


def waives_tls(data: MessageData) -> bool:
    """Returns whether the header says TLS-Required: No; of a long header only the first block is read. Raises DataError."""
    return _WAIVED.search(data.read(0).partition(b"\r\n\r\n")[0]) is not None


def returned(reasons: Sequence[Unusable]) -> Unusable | None:
    """Returns why a message with REQUIRETLS is returned; None if some host could not be looked at, so that it waits."""
    if not all(reason.dsn.startswith("4.7.") for reason in reasons):
        return None
    dsn = "5.7.30" if any(reason.dsn == NOT_OFFERED for reason in reasons) else "5.7.10"
    return reasons[-1]._replace(status=Status.BOUNCED, dsn=dsn)
