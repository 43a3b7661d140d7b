"""The report, its mail, the record that asks for it, and the list of what was sent."""

from __future__ import annotations

import email
import gzip
import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import msgspec
import pytest

from mailcore.tls_sessions import Session
from mailcore.tlsrpt.letter import letter
from mailcore.tlsrpt.record import ADDRESSES_MAX, Https, addresses_of, https_of, mailbox_of
from mailcore.tlsrpt.report import made
from mailcore.tlsrpt.sent import SentReports, outcomes_in

DAY = date(2026, 11, 20)
POLICY = ("version: STSv1", "mode: testing", "mx: mx.example.net", "max_age: 86400")


def sessions() -> Counter[Session]:
    good = Session("example.net", "sts", "example.net", POLICY, ("mx.example.net",))
    bad = msgspec.structs.replace(
        good,
        result="certificate-expired",
        reason_code="certificate has expired",
        sending_ip="192.0.2.1",
        mx_hostname="mx.example.net",
        receiving_ip="198.51.100.2",
    )
    return Counter({good: 7, bad: 2, Session("example.net", "no-policy-found", "example.net"): 1})


def test_a_report_has_the_fields_of_rfc_8460() -> None:
    report = made("example.net", DAY, sessions(), "tls@example.org", "Example Ltd")
    assert report.file_name.startswith("example.org!example.net!1795132800!1795219199!")
    assert report.file_name.endswith(".json.gz")
    assert json.loads(gzip.decompress(report.compressed)) == {
        "organization-name": "Example Ltd",
        "date-range": {"start-datetime": "2026-11-20T00:00:00Z", "end-datetime": "2026-11-20T23:59:59Z"},
        "contact-info": "tls@example.org",
        "report-id": report.id,
        "policies": [
            {
                "policy": {"policy-type": "no-policy-found", "policy-domain": "example.net"},
                "summary": {"total-successful-session-count": 1, "total-failure-session-count": 0},
            },
            {
                "policy": {
                    "policy-type": "sts",
                    "policy-string": list(POLICY),
                    "policy-domain": "example.net",
                    "mx-host": ["mx.example.net"],
                },
                "summary": {"total-successful-session-count": 7, "total-failure-session-count": 2},
                "failure-details": [
                    {
                        "result-type": "certificate-expired",
                        "sending-mta-ip": "192.0.2.1",
                        "receiving-mx-hostname": "mx.example.net",
                        "receiving-ip": "198.51.100.2",
                        "failed-session-count": 2,
                        "failure-reason-code": "certificate has expired",
                    }
                ],
            },
        ],
    }


def test_the_same_counts_make_the_same_bytes() -> None:
    first, second = (made("example.net", DAY, sessions(), "tls@example.org", "") for _ in range(2))
    assert (first.compressed, first.id) == (second.compressed, second.id)
    assert first.id != made("example.net", DAY + timedelta(days=1), sessions(), "tls@example.org", "").id


def test_the_mail_is_of_the_form_of_rfc_8460() -> None:
    report = made("example.net", DAY, sessions(), "tls@example.org", "")
    message = letter(report, "tls@example.org", "reports@example.net", 1_795_300_000.0)
    assert max(map(len, message.split(b"\r\n"))) < 300
    mail = email.message_from_bytes(message)
    assert mail["Subject"].split() == [
        *("Report", "Domain:", "example.net", "Submitter:", "example.org", "Report-ID:", f"<{report.id}>")
    ]
    assert (mail["From"], mail["To"], mail["TLS-Required"]) == ("<tls@example.org>", "<reports@example.net>", "No")
    parts = mail.get_payload()
    assert isinstance(parts, list)
    assert parts[1].get_payload(decode=True) == report.compressed  # type: ignore[union-attr]
    assert parts[1].get_filename() == report.file_name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("texts", "addresses"),
    [
        (["v=TLSRPTv1; rua=mailto:a@example.net"], ["mailto:a@example.net"]),
        (["v=TLSRPTv1;rua=mailto:a@example.net,https://example.net/x;"], ["mailto:a@example.net", "https://example.net/x"]),
        (["v=spf1 -all", "v=TLSRPTv1; rua=mailto:a@example.net"], ["mailto:a@example.net"]),
        (["v=TLSRPTv1; rua=mailto:a@example.net"] * 2, []),
        (["v=TLSRPTv1; rua=ftp://example.net/,mailto:none"], []),
        (["v=TLSRPTv2; rua=mailto:a@example.net"], []),
        (["v=TLSRPTv1"], []),
        ([], []),
        (["v=TLSRPTv1; rua=" + ",".join(f"mailto:a{each}@x.example" for each in range(99))],
         [f"mailto:a{each}@x.example" for each in range(ADDRESSES_MAX)]),
    ],
)  # fmt: skip
def test_a_record(texts: list[str], addresses: list[str]) -> None:
    assert addresses_of(texts) == addresses


@pytest.mark.parametrize(
    "uri",
    ["mailto:a@b.example%0d%0aBcc: c@d.example", "mailto:a@b.example%0aX: y", "mailto:<a@b.example>", "mailto:é@b.example",
     "mailto:a@b.example%00", "mailto:", "http:a@b.example"],
)  # fmt: skip
def test_a_hostile_mail_address_is_none(uri: str) -> None:
    assert mailbox_of(uri) == ""


def test_an_https_address() -> None:
    assert https_of("https://example.net:8443/a?b=c#d") == Https("example.net", 8443, "/a?b=c")
    assert https_of("https://example.net") == Https("example.net", 443, "/")
    for uri in ("http://example.net/", "https://user@example.net/", "https:///x", "https://a b/", "https://a:99999/",
                "https://a/\r\nX: y"):  # fmt: skip
        assert https_of(uri) is None


def test_the_list_survives_a_line_that_was_cut_off_and_forgets_old_days(tmp_path: Path) -> None:
    sent = SentReports(tmp_path)
    sent.add(DAY, "a.example", "mailto:x@a.example", "4FQ")
    with (tmp_path / "tlsrpt-sent.jsonl").open("ab") as file:
        file.write(b'{"day":"2026-11-2')
    sent = SentReports(tmp_path)
    later = DAY + timedelta(days=3)
    sent.add(later, "b.example", "mailto:x@b.example", "posted")
    assert len(outcomes_in(tmp_path)) == 2
    sent.forget_before(later)
    assert outcomes_in(tmp_path) == sent.outcomes == {(str(later), "b.example", "mailto:x@b.example"): "posted"}
    assert [path.name for path in tmp_path.iterdir()] == ["tlsrpt-sent.jsonl"]
