"""The fields of a report for a program: who said what, when, and of whom (RFC 3464, RFC 3461 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime

import pytest

from mailcore.envelope import Recipient, Status, Verdict
from mailcore.remote_reply import expired, refused_login, refused_tls, refused_to_talk, said, suspended
from tests.bounce.report import ARRIVED, NOW, Read, make

HOST = "mx.b.example[192.0.2.1]"
TO = Recipient(0, "to@b.example")


def of(verdict: Verdict, recipient: Recipient = TO, **fields: object) -> dict[str, str]:
    """The fields of the one recipient."""
    (group,) = Read(make((recipient, verdict), **fields).data).groups.values()  # type: ignore[arg-type]
    return {name: " ".join(str(value).split()) for name, value in group.items()}


def test_a_refusal_names_the_server_and_has_its_own_reply() -> None:
    reply = said(HOST, "550 5.1.1 <to@b.example>: unknown", "RCPT TO")
    fields = of(Verdict(0, Status.BOUNCED, "5.1.1", reply, at=int(ARRIVED) + 7))
    assert list(fields) == [
        "Final-Recipient", "Action", "Status", "Remote-MTA", "Diagnostic-Code", "Last-Attempt-Date",
    ]  # fmt: skip
    assert fields["Remote-MTA"] == "dns; mx.b.example"
    assert fields["Diagnostic-Code"] == "smtp; 550 5.1.1 <to@b.example>: unknown"
    assert parsedate_to_datetime(fields["Last-Attempt-Date"]).timestamp() == ARRIVED + 7


def test_what_expired_has_the_last_reply_of_the_server_and_no_word_of_ours() -> None:
    reply = expired(said(HOST, "450 4.2.0 Greylisted", "RCPT TO"))
    fields = of(Verdict(0, Status.EXPIRED, "4.4.7", reply, at=1))
    assert (fields["Action"], fields["Status"], fields["Remote-MTA"]) == ("failed", "4.4.7", "dns; mx.b.example")
    assert fields["Diagnostic-Code"] == "smtp; 450 4.2.0 Greylisted"


@pytest.mark.parametrize("text", [refused_to_talk, refused_tls, refused_login])
def test_a_server_that_refuses_all_mail_is_named_with_its_own_reply(text: Callable[[str, str], str]) -> None:
    """Also of mail that was not attempted, because the server had refused other mail; then there is no date."""
    for words in (text(HOST, "554 5.7.1 blocked"), expired(suspended(text(HOST, "554 5.7.1 blocked")))):
        fields = of(Verdict(0, Status.EXPIRED, "4.4.7", words))
        assert (fields["Remote-MTA"], fields["Diagnostic-Code"]) == ("dns; mx.b.example", "smtp; 554 5.7.1 blocked")
        assert "Last-Attempt-Date" not in fields


@pytest.mark.parametrize(
    "reply",
    [
        "connect to mx.b.example[192.0.2.1]:25: Connection refused",
        "returned to sender by the operator: 550 5.1.1 unknown",
        "delivery temporarily suspended: connect to mx.b.example[192.0.2.1]:25: Connection refused",
    ],
)
def test_our_own_words_are_not_those_of_a_server(reply: str) -> None:
    fields = of(Verdict(0, Status.BOUNCED, "5.0.0", reply))
    assert fields["Diagnostic-Code"] == f"x-waypost; {reply}"
    assert not fields.keys() & {"Remote-MTA", "Last-Attempt-Date"}


def test_a_server_without_a_name_is_named_by_its_address() -> None:
    for host, name in (("192.0.2.1[192.0.2.1]", "[192.0.2.1]"), ("2001:db8::1[2001:db8::1]", "[2001:db8::1]")):
        reply = said(host, "550 no", "DATA")
        assert of(Verdict(0, Status.BOUNCED, "5.0.0", reply))["Remote-MTA"] == f"dns; {name}"


def test_the_senders_own_names_come_back_decoded() -> None:
    recipient = Recipient(0, "to@b.example", options=(("NOTIFY", "FAILURE"), ("ORCPT", "rfc822;Old+2Bx@b.example")))
    report = Read(
        make((recipient, Verdict(0, Status.BOUNCED, "5.1.1", "550 no")), options=(("ENVID", "Q+2B1+20a"),)).data
    )
    assert report.of_message["Original-Envelope-Id"] == "Q+1 a"
    assert report.groups["to@b.example"]["Original-Recipient"] == "rfc822;Old+x@b.example"
    plain = Read(make().data)
    assert plain.of_message["Original-Envelope-Id"] is None
    assert plain.groups["to@b.example"]["Original-Recipient"] is None  # RFC 3461 6.3 d


def test_a_server_that_took_the_mail_has_relayed_it_and_never_delivered_it() -> None:
    fields = of(Verdict(0, Status.DELIVERED, "2.1.5", "250 2.1.5 Queued", HOST, int(NOW)))
    assert (fields["Action"], fields["Status"], fields["Remote-MTA"]) == ("relayed", "2.1.5", "dns; mx.b.example")
    assert fields["Diagnostic-Code"] == "smtp; 250 2.1.5 Queued"
    assert "Will-Retry-Until" not in fields


def test_a_delay_says_until_when_it_is_tried() -> None:
    reply = said(HOST, "451 4.7.1 Later", "RCPT TO")
    fields = of(Verdict(0, Status.DEFERRED, "4.7.1", reply, at=int(NOW)), retry_until=NOW + 3600)
    assert (fields["Action"], fields["Status"]) == ("delayed", "4.7.1")
    assert parsedate_to_datetime(fields["Will-Retry-Until"]).timestamp() == NOW + 3600
    assert "Will-Retry-Until" not in of(Verdict(0, Status.BOUNCED, "5.0.0", "550 no"), retry_until=NOW + 3600)


@pytest.mark.parametrize(
    ("status", "dsn", "code"),
    [
        (Status.DELIVERED, "5.1.1", "2.0.0"),
        (Status.DEFERRED, "5.1.1", "4.0.0"),
        (Status.DEFERRED, "", "4.0.0"),
        (Status.BOUNCED, "2.0.0", "5.0.0"),
        (Status.EXPIRED, "2.0.0", "4.4.7"),
    ],
)
def test_a_status_that_contradicts_the_action_is_not_written(status: Status, dsn: str, code: str) -> None:
    assert of(Verdict(0, status, dsn, "250 x"))["Status"] == code


def test_a_long_word_of_a_reply_stays_whole() -> None:
    url = "https://support.example.net/" + "x" * 300
    fields = of(Verdict(0, Status.BOUNCED, "5.7.1", said(HOST, f"550 5.7.1 see {url} for help", "DATA")))
    assert fields["Diagnostic-Code"] == f"smtp; 550 5.7.1 see {url} for help"


def test_a_host_without_a_domain_does_not_claim_to_be_in_the_dns() -> None:
    assert Read(make(hostname="waypost").data).of_message["Reporting-MTA"] == "x-local-hostname; waypost"
    assert Read(make().data).of_message["Reporting-MTA"] == "dns; mx.example.org"
