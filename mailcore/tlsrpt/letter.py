"""The mail that carries a report (RFC 8460 5.3). Pure.

TLS-Required: No (RFC 8689) lets it be sent although TLS fails, which is what it may report (RFC 8460 5.3.1).
"""

from __future__ import annotations

import base64
import email.utils

from mailcore.tlsrpt.report import Report

__all__ = ["letter"]

LINE_BYTES = 57  # 76 characters in base64


def letter(report: Report, sender: str, recipient: str, now: float) -> bytes:
    """Returns the message, with its header."""
    boundary = f"=_tlsrpt_{report.id.partition('@')[0]}"
    dates = report.content["date-range"]
    lines = [
        f"From: <{sender}>",
        f"To: <{recipient}>",
        f"Date: {email.utils.formatdate(now)}",
        f"Message-ID: <tlsrpt.{report.id}>",
        f"Subject: Report Domain: {report.domain}",
        f" Submitter: {report.submitter}",
        f" Report-ID: <{report.id}>",
        f"TLS-Report-Domain: {report.domain}",
        f"TLS-Report-Submitter: {report.submitter}",
        "TLS-Required: No",
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
        'Content-Type: multipart/report; report-type="tlsrpt";',
        f' boundary="{boundary}"',
        "",
        f"--{boundary}",
        "Content-Type: text/plain; charset=us-ascii",
        "",
        f"This is an aggregate TLS report from {report.submitter} (RFC 8460),",
        f"about mail that was sent to {report.domain}",
        f"from {dates['start-datetime']} to {dates['end-datetime']}.",
        "",
        f"--{boundary}",
        "Content-Type: application/tlsrpt+gzip",
        "Content-Transfer-Encoding: base64",
        "Content-Disposition: attachment;",
        f' filename="{report.file_name}"',
        "",
        *_in_base64(report.compressed),
        f"--{boundary}--",
        "",
    ]
    return "\r\n".join(lines).encode("ascii")


def _in_base64(data: bytes) -> list[str]:
    return [
        base64.b64encode(data[start : start + LINE_BYTES]).decode("ascii") for start in range(0, len(data), LINE_BYTES)
    ]
