"""TLSA records of our own names: whether they match the certificate that other servers get on port 25.

If none matches, senders with DANE send no mail, and our log has no line about it (docs/submission.md).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from mailcore.doctor.finding import AFTER_NAMES, Finding, bad, good, not_known, warn
from mailcore.doctor.host import Host
from mailcore.doctor.resolver import side_by_side
from mailcore.doctor.served import served
from mailcore.routing.tlsa import Tlsa
from mailcore.tls.dane import matched, usable
from mailcore.tls.policy import Policy

__all__ = ["look"]

NAMES_MAX = 10
REMEDY = "Publish the record of the key in use beside the present one; docs/submission.md, TLSA records."


def look(host: Host) -> Iterator[Finding]:
    """Yields a finding for each of our names that has TLSA records for port 25; one if none has."""
    if not any(rule.purpose == "mx" for rule in host.settings.all_listeners):
        yield good("TLSA records", "not needed: no listener is for mail from other servers")
        return
    given = (name for pair in host.settings.certificate_pairs for name in pair.names if "*" not in name)
    names = list(dict.fromkeys([host.greeting, *given]))[:NAMES_MAX]
    answers = side_by_side([functools.partial(host.lookups.ask, f"_25._tcp.{name}", "TLSA") for name in names])
    have = [(name, tuple(map(_record, answer.records))) for name, answer in zip(names, answers, strict=True)]
    have = [(name, records) for name, records in have if records]
    for name, records in have:
        yield _compared(host, name, records)
    if not have and all(answer.is_usable for answer in answers):
        yield good("TLSA records", f"none: senders check no certificate of {', '.join(names)} by DANE")
    elif not have:
        failed = next(answer for answer in answers if not answer.is_usable)
        yield not_known("TLSA records", f"the lookup failed: {failed.error or failed.rcode}", AFTER_NAMES)


def _record(text: str) -> Tlsa:
    """Reads a record in presentation form; its data may be in several words (RFC 6698 2.2)."""
    usage, selector, matching, *data = text.split()
    return Tlsa(int(usage), int(selector), int(matching), bytes.fromhex("".join(data)))


def _compared(host: Host, name: str, records: tuple[Tlsa, ...]) -> Finding:
    what = f"TLSA records of {name}"
    counted = usable(records)
    if not counted:
        shown = ", ".join(map(str, records[:3]))
        return warn(
            what, f"none is of a kind that counts for SMTP ({shown}); the certificate is not checked by them",
            "Publish 3 1 1 records (RFC 7672 3.1).",
        )  # fmt: skip
    chain = served(host, name, [rule for rule in host.settings.all_listeners if rule.purpose == "mx"])
    if not chain:
        return not_known(
            what, "cannot check the certificate in use: no receiver answers with TLS; senders with DANE need it",
            "See the findings on ports, processes and certificates; then run waypost doctor again.",
        )  # fmt: skip
    matching = sum(matched(chain, Policy("dane", names=(name,), tlsa=(record,))) is not None for record in counted)
    if not matching:
        return bad(what, "none matches the certificate in use: senders with DANE send no mail", REMEDY)
    return good(what, f"{matching} of {len(counted)} match the certificate in use")
