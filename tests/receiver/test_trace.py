"""The Received field: as RFC 5321 4.4 has it, and nothing a client says can break out of it."""

from __future__ import annotations

import email
import email.utils

from hypothesis import given
from hypothesis import strategies as st

from mailcore.receiver.trace import TraceHeader, protocol_name

NOW = 1_795_243_560.5


def test_it_says_who_brought_the_message_and_when() -> None:
    field = TraceHeader("mx.example.net").received("client.example", "192.0.2.1", "ESMTP", "QID", "b@example.org", NOW)
    assert field == (
        b"Received: from client.example (unknown [192.0.2.1])\r\n"
        b"\tby mx.example.net (Waypost) with ESMTP id QID\r\n"
        b"\tfor <b@example.org>; Sat, 21 Nov 2026 06:46:00 +0000 (UTC)\r\n"
    )
    date = email.message_from_bytes(field + b"\r\n")["Received"].rpartition(";")[2]
    assert email.utils.parsedate_to_datetime(date).timestamp() == int(NOW)


def test_of_several_recipients_none_is_told() -> None:
    field = TraceHeader("mx.example.net").received("c", "2001:db8::1", "SMTP", "QID", "", NOW)
    assert b" for " not in field
    assert b"[IPv6:2001:db8::1]" in field


@given(st.text())
def test_a_client_s_name_stays_in_its_place(helo: str) -> None:
    field = TraceHeader("mx").received(helo, "192.0.2.1", "ESMTP", "Q", "", NOW)
    assert field.count(b"\r\n") == field.count(b"\n") == field.count(b"\r") == 3
    assert field.count(b"(") == field.count(b")") == 3  # the client, our product, UTC
    assert field.isascii()


def test_the_protocol_has_the_names_of_the_registry() -> None:
    assert protocol_name(False, False, False, False) == "SMTP"
    assert protocol_name(True, False, False, False) == "ESMTP"
    assert protocol_name(True, True, False, False) == "ESMTPS"
    assert protocol_name(True, True, True, False) == "ESMTPSA"
    assert protocol_name(True, False, False, True) == "UTF8SMTP"
    assert protocol_name(True, True, True, True) == "UTF8SMTPSA"
