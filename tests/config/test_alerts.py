"""[alerts]: what a mail server, a webhook and a rule may be, and what check-config warns of."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.bounds import BadValue
from mailcore.config.alerts import Alerts, _mailbox, _rule, _server, _url, alerts_warnings
from mailcore.config.load import ConfigError, load


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("mail.example.org", "mail.example.org:25"),
        ("Mail.Example.org:587", "mail.example.org:587"),
        ("192.0.2.1:2525", "192.0.2.1:2525"),
        ("[2001:db8::1]", "[2001:db8::1]:25"),
        ("[2001:db8::1]:26", "[2001:db8::1]:26"),
    ],
)
def test_a_mail_server(given: str, read: str) -> None:
    assert _server(given) == read


@pytest.mark.parametrize(
    "given", ["mail:0", "mail:65536", "a b:25", "user@mail:25", "smtp://mail", "mail:25:25", ":25"]
)
def test_no_mail_server(given: str) -> None:
    with pytest.raises(BadValue):
        _server(given)


@pytest.mark.parametrize(
    "given", ["ftp://a", "https://", "https://user:password@a/", "https://a b", "https://a\r\nX: y", "a"]
)
def test_no_webhook(given: str) -> None:
    with pytest.raises(BadValue):
        _url(given)


def test_a_rule_is_one_that_is_there_and_a_recipient_is_of_ascii() -> None:
    assert _rule("core_away") == "core_away"
    assert _mailbox("on-call@EXAMPLE.org") == "on-call@example.org"
    for read, given in ((_rule, "core_gone"), (_mailbox, "d\xfc@example.org"), (_mailbox, "a@b\r\nBcc: x@y")):
        with pytest.raises(BadValue):
            read(given)


def test_the_file_of_the_secret_lies_beside_the_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(
        '[alerts]\nwebhook = "https://alerts.example.org/"\nwebhook_secret_file = "secret"\noff = ["disk"]\n'
    )
    alerts = load(config).alerts
    assert (alerts.webhook_secret_file, alerts.off) == (str(tmp_path / "secret"), ("disk",))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('smtp_tls = "verify"\nsmtp = "a"', "needs smtp and smtp_password_file"),
        ('smtp_tls = "verify"\nsmtp_password_file = "a"', "needs smtp and smtp_password_file"),
        ('smtp_tls = "may"\nsmtp = "a"\nsmtp_password_file = "a"', "no other server gets the password"),
    ],
)
def test_a_password_goes_only_to_a_server_that_proves_its_name(tmp_path: Path, more: str, why: str) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'[alerts]\nsmtp_user = "a"\n{more}\n')
    with pytest.raises(ConfigError, match=why):
        load(config)


def test_settings_that_do_less_than_they_say_are_warned_of() -> None:
    assert list(alerts_warnings(Alerts(), ["example.org"])) == []
    assert list(alerts_warnings(Alerts(webhook_secret_file="/secret"), [])) == [
        "[alerts] webhook_secret_file: no effect while webhook is not set; set webhook"
    ]
    behind = Alerts(recipients=("a@example.org", "a@other.example"))
    assert [each.partition(":")[0] for each in alerts_warnings(behind, ["example.org"])] == ["[alerts] recipients"]
    assert len(list(alerts_warnings(Alerts(recipients=("a@sub.example.org",)), [".example.org"]))) == 1
    assert list(alerts_warnings(Alerts(recipients=("a@example.org",), smtp="inside:25"), ["example.org"])) == []
