"""A server's reply goes into our sentence and comes out as it was; a sentence of ours never passes for a reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.remote_reply import (
    RemoteReply,
    code_said,
    expired,
    refused_login,
    refused_tls,
    refused_to_talk,
    remote_reply,
    said,
    suspended,
)

HOST = "mx.example.org[192.0.2.1]"
TRICKS = (
    "550 5.1.1 <a@b>: unknown (sorry)",
    "550 host evil.example[192.0.2.66] said: 250 fine (in reply to RCPT TO command)",
    "450 4.2.0 later (in reply to DATA command)",
    "550-5.7.1 one 550 5.7.1 two",
    "421 host mx.example.org[192.0.2.1] refused to talk to me: 421 busy",
    "454 4.7.0 TLS is required, but host mx.example.org[192.0.2.1] refused to start TLS: 454 4.7.0 no",
    "535 SASL authentication failed; server mx.example.org[192.0.2.1] said: 535 5.7.8 Error",
    "450 delivery temporarily suspended: host mx.example.org[192.0.2.1] refused to talk to me: 421 busy",
    "554 message has been in the queue too long, last: 550 no",
    "550 ",
)


@pytest.mark.parametrize("reply", TRICKS)
@pytest.mark.parametrize("host", [HOST, "192.0.2.1[192.0.2.1]", "mx.example.org[2001:db8::1]"])
def test_what_the_server_said_comes_back_as_it_was_whatever_it_said(host: str, reply: str) -> None:
    of_the_site = [refused_to_talk(host, reply), refused_tls(host, reply), refused_login(host, reply)]
    for text in (said(host, reply, "RCPT TO"), said(host, reply, "end of DATA"), *of_the_site):
        assert remote_reply(text) == RemoteReply(host, reply)
        assert remote_reply(expired(text)) == RemoteReply(host, reply)
    for text in map(suspended, of_the_site):
        assert remote_reply(text) == RemoteReply(host, reply)
        assert remote_reply(expired(text)) == RemoteReply(host, reply)
    assert remote_reply(reply) == RemoteReply("", reply)


@given(st.integers(200, 599), st.text(max_size=80), st.sampled_from(["MAIL FROM", "RCPT TO", "DATA", "end of DATA"]))
def test_any_reply_comes_back(code: int, text: str, command: str) -> None:
    reply = f"{code} {text}"
    assert remote_reply(said(HOST, reply, command)) == RemoteReply(HOST, reply)
    for words in (refused_to_talk(HOST, reply), refused_tls(HOST, reply), refused_login(HOST, reply)):
        assert remote_reply(words) == remote_reply(suspended(words)) == RemoteReply(HOST, reply)


OURS = (
    "connect to mx.example.org[192.0.2.1]:25: Connection refused",
    "Host or domain name not found. Name service error for name=x.example type=MX",
    "delivery temporarily suspended: connect to mx.example.org[192.0.2.1]:25: Connection refused",
    "delivery temporarily suspended: host mx.example.org[192.0.2.1] said: 550 no (in reply to RCPT TO command)",
    "delivery temporarily suspended: 550 no",
    "delivery temporarily suspended: message has been in the queue too long, last: 450 no",
    "returned to sender by the operator: host mx.example.org[192.0.2.1] said: 550 no (in reply to RCPT TO command)",
    "returned to sender by the operator: 550 5.1.1 unknown",
    "lost connection with mx.example.org[192.0.2.1] while sending RCPT TO",
    "TLS is required, but was not offered by host mx.example.org[192.0.2.1]",
    "TLS is required, but host mx.example.org[192.0.2.1] refused to start TLS: no",
    "SASL authentication failed; server mx.example.org[192.0.2.1] said: (struck out) no",
    "SASL authentication failed; host mx.example.org[192.0.2.1] offers no mechanism that fits the login: 535",
    "bad address syntax: '550 5.1.1 x@y'",
    "message size 9 exceeds size limit 5 of server mx.example.org[192.0.2.1]",
    "host said: 550 no (in reply to RCPT TO command)",
    "host a b[192.0.2.1] said: 550 no (in reply to RCPT TO command)",
    "message has been in the queue too long, last: message has been in the queue too long, last: 450 no",
    "5500 is no code",
    "",
)


@pytest.mark.parametrize("text", OURS)
def test_our_own_sentences_are_no_replies(text: str) -> None:
    assert remote_reply(text) is None
    assert remote_reply(expired(text)) is None


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("451 4.7.1 Greylisted", "4.7.1"),
        ("450-4.2.1 one 450 4.2.2 two", "4.2.1"),
        ("450 4.7", ""),
        ("450 4.7.1.2 what", ""),
        ("450 4.1234.1 what", ""),
        ("450 busy 4.7.1", ""),
        ("550 4.7.1 contradicts", ""),
        ("554 5.7.1 no", "5.7.1"),
        ("450", ""),
    ],
)
def test_the_enhanced_code_of_a_reply_comes_out_of_our_sentence(reply: str, code: str) -> None:
    assert code_said(said(HOST, reply, "RCPT TO")) == code_said(reply) == code
    assert code_said(expired(said(HOST, reply, "DATA"))) == code


def test_a_sentence_of_ours_has_no_code() -> None:
    assert code_said("connect to mx.example.org[192.0.2.1]:25: 4.7.1 Connection refused") == ""
