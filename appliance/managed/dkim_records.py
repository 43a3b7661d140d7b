"""Looks up the DNS record of a DKIM key that Waypost keeps, and compares it with the key."""

from __future__ import annotations

from typing import Any

import dns.exception
import dns.resolver

from appliance.alerts.name_servers import own_resolver
from mailcore.authenticity.key_record import Compared, compared
from mailcore.control.protocol.kept import KeptFile

__all__ = ["state_of"]

ONE_S = 5.0


def state_of(file: KeptFile) -> Compared:
    """Returns the state of the record, "no_answer" without an answer, and what to do."""
    facts = file.dkim
    assert facts is not None
    texts: list[str] = []
    try:
        answer: Any = own_resolver().resolve(facts.record_name, "TXT", lifetime=ONE_S)
        texts = ["".join(part.decode("utf-8", "replace") for part in record.strings) for record in answer]
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        texts = []
    except dns.exception.Timeout:  # its own text names each try
        return Compared("no_answer", f"the name servers did not answer within {ONE_S:g} s")
    except (dns.exception.DNSException, OSError) as error:
        return Compared("no_answer", f"the name servers did not answer: {error}")
    return compared(facts.record, facts.algorithm, facts.record_name, [each.replace("\\", "\\\\") for each in texts])
