"""The report about a domain's day: JSON as in RFC 8460 4.4, and its name (5.1). Pure: the same counts make the same report.

So a report that is sent twice, because a process was killed between sending and noting it, has the same Report-ID.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import Counter
from datetime import date
from typing import Any

import msgspec

from mailcore.tls_sessions import Session, day_end

__all__ = ["Report", "made"]

DAY_S = 86_400


class Report(msgspec.Struct, frozen=True):
    """A report and what its letter names."""

    domain: str
    submitter: str  # domain of the sender
    id: str
    file_name: str
    content: dict[str, Any]

    @property
    def compressed(self) -> bytes:
        """Returns the JSON in gzip."""
        return gzip.compress(msgspec.json.encode(self.content), mtime=0)


def made(domain: str, day: date, sessions: Counter[Session], sender: str, organization: str) -> Report:
    """Returns the report of a domain's sessions of a UTC day."""
    submitter = sender.rpartition("@")[2]
    token = hashlib.sha256(f"{sender} {domain} {day}".encode()).hexdigest()[:16]
    report_id = f"{day}.{token}@{submitter}"
    end = int(day_end(day))
    return Report(
        domain,
        submitter,
        report_id,
        f"{submitter}!{domain}!{end - DAY_S}!{end - 1}!{token}.json.gz",
        {
            "organization-name": organization or submitter,
            "date-range": {"start-datetime": f"{day}T00:00:00Z", "end-datetime": f"{day}T23:59:59Z"},
            "contact-info": sender,
            "report-id": report_id,
            "policies": _policies(sessions),
        },
    )


def _policies(sessions: Counter[Session]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[tuple[Session, int]]] = {}
    for session, number in sorted(sessions.items(), key=lambda each: msgspec.structs.astuple(each[0])):
        key = session.policy_type, session.policy_domain, session.policy_strings, session.mx_hosts
        groups.setdefault(key, []).append((session, number))
    return [_policy(group) for group in groups.values()]


def _policy(group: list[tuple[Session, int]]) -> dict[str, Any]:
    first = group[0][0]
    policy = {
        "policy-type": first.policy_type,
        "policy-string": list(first.policy_strings),
        "policy-domain": first.policy_domain,
        "mx-host": list(first.mx_hosts),
    }
    failures = [(session, number) for session, number in group if session.result]
    failed = sum(number for _, number in failures)
    total = sum(number for _, number in group)
    result: dict[str, Any] = {
        "policy": {name: value for name, value in policy.items() if value},
        "summary": {"total-successful-session-count": total - failed, "total-failure-session-count": failed},
    }
    if failures:
        result["failure-details"] = [_failure(session, number) for session, number in failures]
    return result


def _failure(session: Session, number: int) -> dict[str, Any]:
    fields = {
        "result-type": session.result,
        "sending-mta-ip": session.sending_ip,
        "receiving-mx-hostname": session.mx_hostname,
        "receiving-ip": session.receiving_ip,
        "failed-session-count": number,
        "failure-reason-code": session.reason_code,
    }
    return {name: value for name, value in fields.items() if value}
