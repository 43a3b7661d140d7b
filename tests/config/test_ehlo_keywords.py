"""The masks of ESMTP keywords, checked at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.ehlo_keywords import USED
from mailcore.config.load import load
from mailcore.esmtp import EXTENSIONS
from tests.config.test_load import fault, file

__all__ = ["file"]  # the fixture

OUT, IN = "[smtp_discard_ehlo_keywords]", "[smtpd_discard_ehlo_keywords]"
LISTENER = "[[listener]]\naddress = '127.0.0.1:1587'\ntls = 'required'\ndiscard_ehlo_keywords = ['STARTTLS']"
FAULTS = [
    (
        "[receiver]\ndiscard_ehlo_keywords = ['PIPLINING']",
        "must be a keyword of EHLO that Waypost knows (got 'PIPLINING'); did you mean PIPELINING?",
    ),
    ("[transports.smtp]\ndiscard_ehlo_keywords = ['XCLIENT']", "(got 'XCLIENT'); allowed: PIPELINING, SIZE,"),
    ("[transports.smtp]\ndiscard_ehlo_keywords = ['dsn', 'DSN']", "must not have a value twice (got 'DSN' twice)"),
    (
        "[transports.smtp]\ntls = 'encrypt'\ndiscard_ehlo_keywords = ['starttls']",
        'must not have STARTTLS, because tls = "encrypt" demands it',
    ),
    (f"{OUT}\n'example.org' = 'DSN'", f'2: {OUT} example.org must be a list of keywords such as ["PIPELINING"] (got'),
    (f"{OUT}\n'example.org' = ['XYZ']", f"2: {OUT} example.org must be a keyword of EHLO"),
    (f"{OUT}\n'a@example.org' = []", 'must be a next hop such as "example.org" or'),
    (f"{OUT}\n'192.0.2.1/24' = []", 'must be a network such as "192.0.2.0/24"'),
    (f"{OUT}\n'Example.org' = []\n'example.org:25' = []", "must not be there twice; it is the same as 'example.org'"),
    (f"{IN}\n'example.org' = []", f"2: {IN} example.org must be a network such as"),
    ("smtpd_discard_ehlo_keywords = 3", f"must be a section, {IN} (got 3)"),
    (LISTENER, 'must not have STARTTLS, because tls = "required" needs it'),
]


@pytest.mark.parametrize(("text", "words"), FAULTS)
def test_a_fault_names_its_line_and_what_is_allowed(file: Path, text: str, words: str) -> None:
    assert words in fault(file, text)


def test_patterns_and_keywords_have_one_spelling(file: Path) -> None:
    file.write_text(
        "[receiver]\ndiscard_ehlo_keywords = ['chunking']\nlisten = ['127.0.0.1:1']\n"
        "[[listener]]\naddress = '127.0.0.1:2'\n[[listener]]\naddress = '127.0.0.1:3'\ndiscard_ehlo_keywords = []\n"
        f"{OUT}\n'Example.ORG:25' = ['dsn']\n'[mx.test]:587' = []\n'192.0.2.1' = ['Size']\n"
        f"{IN}\n'2001:db8::/32' = ['xclient']\n"
    )
    settings = load(file)
    assert [each.discard_ehlo_keywords for each in settings.all_listeners] == [("CHUNKING",), ("CHUNKING",), ()]
    assert settings.smtp_discard_ehlo_keywords == {
        "example.org": ("DSN",),
        "[mx.test]:587": (),
        "192.0.2.1/32": ("SIZE",),
    }
    assert settings.smtpd_discard_ehlo_keywords == {"2001:db8::/32": ("XCLIENT",)}


def test_every_extension_can_be_discarded() -> None:
    assert {row.keyword for row in EXTENSIONS} == set(USED)
