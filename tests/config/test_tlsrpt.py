"""[tlsrpt]: what a sender may be, and what check-config warns of."""

from __future__ import annotations

import pytest

from mailcore.bounds import BadValue
from mailcore.config.dkim import DkimKey
from mailcore.config.tlsrpt import TlsRpt, _sender, tlsrpt_warnings

ON = TlsRpt(sender="tls@mail.example.org")


def test_a_sender_whose_mail_no_key_signs_is_warned_of() -> None:
    def warned(*keys: DkimKey) -> int:
        return len(list(tlsrpt_warnings(ON, keys)))

    assert warned() == 1
    assert warned(DkimKey(domain="example.org")) == 1
    assert warned(DkimKey(domain="example.org", subdomains=True)) == 0
    assert warned(DkimKey(domain="mail.example.org")) == 0


def test_settings_without_a_sender_are_warned_of() -> None:
    assert list(tlsrpt_warnings(TlsRpt(), ())) == []
    assert list(tlsrpt_warnings(TlsRpt(https=False), ())) == [
        "[tlsrpt] https: no effect while sender is not set; set sender"
    ]


def test_a_sender_is_an_address_of_ascii() -> None:
    assert _sender("tls@EXAMPLE.org") == "tls@example.org"
    for address in ("tls", "tlé@example.org", "tls@example.org\r\nBcc: x@example.org"):
        with pytest.raises(BadValue):
            _sender(address)
