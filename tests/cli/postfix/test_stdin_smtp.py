"""``sendmail -bs`` takes what it offers, and refuses the rest: a parameter that it ignored would be a broken promise."""

from __future__ import annotations

import re

import pytest

from tests.cli.postfix.maildrop_home import HOST, Home, smtp

MESSAGE = b"DATA\nSubject: x\n\nbody\n.\nQUIT\n"
SENT = ["354", "250", "221"]


def test_what_it_offers_is_announced(home: Home) -> None:
    smtp(home, b"EHLO me\nQUIT\n")
    offered = re.findall(r"^250[- ](.*?)\r?$", home.out, re.MULTILINE)
    assert offered[1:] == ["PIPELINING", "SIZE 5000", "ENHANCEDSTATUSCODES", "8BITMIME", "DSN", "SMTPUTF8"]


@pytest.mark.parametrize(
    "parameter",
    [
        b"HOLDFOR=3600", b"HOLDUNTIL=2099-01-01T00:00:00Z", b"BY=120;R", b"MT-PRIORITY=9",
        b"BODY=BINARYMIME", b"REQUIRETLS", b"AUTH=<>",
    ],
)  # fmt: skip
def test_a_parameter_that_is_not_offered_is_refused(home: Home, parameter: bytes) -> None:
    talk = b"EHLO me\nMAIL FROM:<a@e.org> " + parameter + b"\nRCPT TO:<b@e.net>\nQUIT\n"
    assert smtp(home, talk) == ["220", "250", "555", "503", "221"]
    assert "555 5.5.4" in home.out
    assert home.names() == []


def test_the_parameters_that_are_offered_come_along(home: Home) -> None:
    mail = b"EHLO me\nMAIL FROM:<a@e.org> SIZE=100 BODY=8BITMIME RET=HDRS ENVID=x1 SMTPUTF8\n"
    rcpt = b"RCPT TO:<b@e.net> NOTIFY=SUCCESS ORCPT=rfc822;c@e.net\nRCPT TO:<d@e.net>\n"
    assert smtp(home, mail + rcpt + MESSAGE) == ["220", "250", "250", "250", "250", *SENT]
    submission = home.only().submission
    assert submission.options == (("RET", "HDRS"), ("ENVID", "x1"))
    assert submission.recipient_options == ((("NOTIFY", "SUCCESS"), ("ORCPT", "rfc822;c@e.net")), ())
    assert submission.smtputf8, "the header may hold UTF-8 though the addresses do not"


def test_without_smtputf8_none_is_asked_for(home: Home) -> None:
    assert smtp(home, b"EHLO me\nMAIL FROM:<a@e.org>\nRCPT TO:<b@e.net>\n" + MESSAGE)[-1] == "221"
    assert not home.only().submission.smtputf8


@pytest.mark.parametrize("parameters", [b"NOTIFY=NEVER", b"ORCPT=rfc822;c@e.net"])
def test_after_helo_there_are_no_parameters(home: Home, parameters: bytes) -> None:
    talk = b"HELO me\nMAIL FROM:<a@e.org> RET=HDRS\nMAIL FROM:<a@e.org>\nRCPT TO:<b@e.net> " + parameters + b"\nQUIT\n"
    assert smtp(home, talk) == ["220", "250", "555", "250", "555", "221"]


@pytest.mark.parametrize("setting", ["", "without_domain = false\n"])
def test_addresses_without_a_domain_get_the_same_as_those_of_sendmail(home: Home, setting: str) -> None:
    home.config.write_text(f'{home.config.read_text()}[lenient]\ndomain = "own.example"\n{setting}')
    talk = b"EHLO me\nMAIL FROM:<cron>\nRCPT TO:<root>\nRCPT TO:<postmaster>\nRCPT TO:b@e.net\n"
    assert smtp(home, talk + MESSAGE) == ["220", "250", "250", "250", "250", "250", *SENT]
    assert home.out.startswith(f"220 {HOST} "), "our own name stays"
    submission = home.only().submission
    assert (submission.sender, submission.recipients) == (
        "cron@own.example", ("root@own.example", "postmaster@own.example", "b@e.net"),
    )  # fmt: skip
    assert home.run("-f", "cron", "root", "postmaster", "b@e.net") == 0
    again = home.only().submission
    assert (again.sender, again.recipients) == (submission.sender, submission.recipients)
