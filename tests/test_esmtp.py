"""The table of ESMTP extensions: no keyword and no parameter twice, and what a client sends by it."""

from __future__ import annotations

from collections import Counter

from mailcore.esmtp import EXTENSIONS, Extension, Offering, OutgoingTable, Parameter
from mailcore.frames import Deliver, NextHop
from mailcore.receiver.command import Mail

CLEAR = Offering(message_size_limit=1000, has_certificate=True, is_encrypted=False)
WORK = Deliver(
    1, "Q", "smtp", NextHop("example.org", 25, True), "a@example.com", ((0, "b@example.org"),), "/x", 0, 10, True, False
)
ROWS = (
    *EXTENSIONS,
    Extension("X-SOFT", lambda offering: "X-SOFT", mail=(Parameter("X-SOFT", lambda value: value or ""),)),
    Extension(
        "X-HARD",
        lambda offering: "X-HARD",
        mail=(Parameter("X-HARD", lambda value: value or ""),),
        rcpt=(Parameter("X-HARD", lambda value: value or ""),),
        missing_dsn="5.7.9",
    ),
)


def no_header() -> bytes:
    return b""


def test_a_keyword_and_a_parameter_stand_in_one_row() -> None:
    for counted in (
        Counter(extension.keyword for extension in EXTENSIONS),
        Counter(parameter.keyword for extension in EXTENSIONS for parameter in extension.mail),
        Counter(parameter.keyword for extension in EXTENSIONS for parameter in extension.rcpt),
    ):
        assert set(counted.values()) <= {1}, counted
        assert all(name == name.upper() and name.isascii() for name in counted)


def test_a_field_of_its_own_is_one_that_mail_has() -> None:
    fields = {parameter.field for extension in EXTENSIONS for parameter in extension.mail} - {""}
    assert fields == {"size_bytes", "eight_bit", "smtputf8", "submitter"}
    assert fields < set(Mail.__struct_fields__)
    assert not any(parameter.field for extension in EXTENSIONS for parameter in extension.rcpt)


def test_starttls_is_offered_in_the_clear_to_those_who_can() -> None:
    (starttls,) = (extension for extension in EXTENSIONS if extension.keyword == "STARTTLS")
    assert starttls.offer(CLEAR) == "STARTTLS"
    assert starttls.offer(CLEAR._replace(is_encrypted=True)) is None
    assert starttls.offer(CLEAR._replace(has_certificate=False)) is None


def test_a_parameter_is_sent_where_its_keyword_is_offered_and_an_unknown_one_never() -> None:
    options = (("X-SOFT", ""), ("X-HARD", "1"), ("X-GONE", "2"))
    everything = OutgoingTable(ROWS, {"size": "", "8bitmime": "", "x-soft": "", "x-hard": ""})
    nothing = OutgoingTable(ROWS, {})
    assert everything.mail_arguments(WORK, options) == b" SIZE=10 BODY=8BITMIME X-SOFT X-HARD=1"
    assert OutgoingTable(ROWS, {"x-hard": ""}).mail_arguments(WORK, options) == b" X-HARD=1"
    assert nothing.mail_arguments(WORK, options) == b""
    assert everything.rcpt_arguments((("X-HARD", "1"),)) == b" X-HARD=1"
    assert nothing.rcpt_arguments((("X-HARD", "1"),)) == b""


def test_what_is_missing_is_said_of_the_message_or_of_the_recipient() -> None:
    table = OutgoingTable(ROWS, {})
    assert table.missing(WORK, (("X-SOFT", ""),), no_header) is None
    assert OutgoingTable(ROWS, {"x-hard": ""}).missing(WORK, (("X-HARD", ""),), no_header) is None
    missing = table.missing(WORK, (("X-SOFT", ""), ("X-HARD", "")), no_header)
    assert missing is not None
    assert (missing.keyword, missing.missing_dsn) == ("X-HARD", "5.7.9")
    for_recipient = table.missing_for("b@example.org", (("X-HARD", ""),))
    assert for_recipient is not None
    assert for_recipient.keyword == "X-HARD"
    assert table.missing_for("b@example.org", ()) is None
    utf8 = table.missing_for("bé@example.org", ())
    assert utf8 is not None
    assert utf8.keyword == "SMTPUTF8"


def test_only_a_next_hop_without_smtputf8_lacks_what_an_address_may_need() -> None:
    assert OutgoingTable(EXTENSIONS, {}).lacks_some
    assert not OutgoingTable(EXTENSIONS, {"smtputf8": ""}).lacks_some
