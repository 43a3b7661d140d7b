"""Options of services of master.cf: each is taken over, or named with its consequence."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.import_postfix.draft import Draft, Fate
from mailcore.import_postfix.translation import translate
from tests.import_postfix.translating import said_of, settings_of

MASTER = """
smtp      inet  n  -  y  -  1  postscreen
  -o smtpd_service_name=inner
inner     pass  -  -  y  -  -  smtpd
  -o content_filter=scan:[127.0.0.1]:10024
  -o smtpd_milters=inet:127.0.0.1:8891
  -o cleanup_service_name=first
lonely    pass  -  -  y  -  -  smtpd
tlsproxy  unix  -  -  y  -  0  tlsproxy -o tlsproxy_tls_loglevel=1
pickup    unix  n  -  y  60 1  pickup
  -o content_filter=
  -o non_smtpd_milters=inet:127.0.0.1:8892
first     unix  n  -  y  -  0  cleanup
  -o syslog_name=first
  -o header_checks=pcre:/etc/postfix/incoming
  -o always_bcc=all@example.org
  -o virtual_alias_maps=
qmgr      unix  n  -  n  300 1 qmgr
  -o default_destination_concurrency_limit=3
  -o maximal_queue_lifetime=1d
rewrite   unix  -  -  y  -  -  trivial-rewrite -o transport_maps=hash:/etc/postfix/other
bounce    unix  -  -  y  -  0  bounce
  -o bounce_template_file=/etc/postfix/bounce.cf
  -o myorigin=$myhostname
smtp      unix  -  -  y  -  -  smtp
scan      unix  -  -  y  -  -  smtp
"""
MAIN = "maximal_queue_lifetime = 3d\nalways_bcc = archive@example.org\nmyorigin = $myhostname\ncontent_filter = x\n"


@pytest.fixture
def site(tmp_path: Path) -> tuple[Draft, Settings]:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "main.cf").write_text(MAIN)
    (etc / "master.cf").write_text(MASTER)
    draft, _ = translate(etc, "mail.example.org")
    return draft, settings_of(draft, etc)


@pytest.mark.parametrize(
    ("what", "fate", "said"),
    [
        ("inner pass smtpd", Fate.TAKEN, "see the finding of master.cf:2"),
        ("inner pass smtpd -o content_filter", Fate.LEFT, "Waypost has no filters of its own"),
        (
            "inner pass smtpd -o cleanup_service_name",
            Fate.LEFT,
            "all mail is completed in one way",
        ),
        ("lonely pass smtpd", Fate.LEFT, "no postscreen line passes connections to it"),
        ("pickup unix pickup -o content_filter", Fate.LEFT, "Waypost has no filters of its own"),
        ("pickup unix pickup -o non_smtpd_milters", Fate.LEFT, "(empty) is used for mail of local programs, too"),
        ("first unix cleanup -o header_checks", Fate.LEFT, "(empty) is used for mail that this service completes, too"),
        ("first unix cleanup -o always_bcc", Fate.LEFT, "the value of main.cf (archive@example.org) is used"),
        ("first unix cleanup -o virtual_alias_maps", Fate.LEFT, "used for mail that this service completes"),
        ("qmgr unix qmgr -o maximal_queue_lifetime", Fate.LEFT, "(3d) is used for the queue, too"),
        ("qmgr unix qmgr -o default_destination_concurrency_limit", Fate.LEFT, "(20) is used for the queue"),
        ("rewrite unix trivial-rewrite -o transport_maps", Fate.LEFT, "(empty) is used for addresses and routes"),
        ("bounce unix bounce -o bounce_template_file", Fate.LEFT, "its own bounce text"),
        ("bounce unix bounce -o myorigin", Fate.TAKEN, "the same value as in main.cf"),
        ("tlsproxy unix tlsproxy -o tlsproxy_tls_loglevel", Fate.LEFT, "the option is for one service"),
    ],
)
def test_options_of_every_service_have_a_finding(
    site: tuple[Draft, Settings], what: str, fate: Fate, said: str
) -> None:
    found = [each for each in said_of(site[0], what) if each.what.partition("=")[0] == what]
    assert [(each.fate, said in each.said) for each in found] == [(fate, True)]
    assert all(each.where.startswith("master.cf:") for each in found)


def test_the_name_of_a_service_in_the_log_has_none(site: tuple[Draft, Settings]) -> None:
    assert not any("syslog_name" in each.what for each in site[0].findings)


def test_milters_behind_postscreen_are_those_of_its_listener(site: tuple[Draft, Settings]) -> None:
    draft, settings = site
    assert {each.address: each.milters for each in settings.listener} == {
        "0.0.0.0:25": ("inet:127.0.0.1:8891",), "[::]:25": ("inet:127.0.0.1:8891",),
    }  # fmt: skip
    (finding,) = said_of(draft, "smtp inet postscreen")
    assert "without postscreen's tests of clients" in finding.said
    assert "smtpd_service_name" not in finding.said


@pytest.mark.parametrize(
    ("main", "master", "what", "said"),
    [
        ("smtp_tls_wrappermode = yes", "", "smtp_tls_wrappermode", "(port 465) is not delivered"),
        (
            "",
            "-o smtp_tls_wrappermode=yes",
            "smtps unix smtp -o smtp_tls_wrappermode=yes",
            "(port 465) is not delivered",
        ),
        ("", "-o smtp_tls_CAfile=/ca", "smtps unix smtp -o smtp_tls_CAfile", "cannot be set for a single transport"),
        ("ignore_mx_lookup_error = yes", "", "ignore_mx_lookup_error", "stays in the queue and is tried again"),
        ("smtpd_restriction_classes = strict\nstrict = reject", "", "smtpd_restriction_classes", "has no classes"),
        ("smtpd_restriction_classes = strict\nstrict = reject", "", "strict = ", "a class of restrictions"),
        ("smtpd_upstream_proxy_protocol = haproxy", "", "smtpd_upstream_proxy_protocol", "set proxy of a [[listener]]"),
    ],
)
def test_what_the_absence_of_a_setting_means_is_said(
    tmp_path: Path, main: str, master: str, what: str, said: str
) -> None:
    (tmp_path / "main.cf").write_text(f"{main}\n")
    (tmp_path / "master.cf").write_text(f"smtp inet n - y - - smtpd\nsmtps unix - - y - - smtp {master}\n")
    (finding,) = said_of(translate(tmp_path, "mail.example.org")[0], what)
    assert (finding.fate, said in finding.said) == (Fate.LEFT, True), finding.said


@pytest.mark.parametrize(
    ("main", "option", "fate", "limit"),
    [
        ("smtp_line_length_limit = 0", "", Fate.TAKEN, 0),
        ("smtp_line_length_limit = 4096", "", Fate.TAKEN, 4096),
        ("smtp_line_length_limit = 998", "", Fate.TAKEN, 998),
        ("smtp_line_length_limit = 4096", "-o smtp_line_length_limit=2048", Fate.TAKEN, 2048),
        ("smtp_line_length_limit = 4096", "-o smtp_line_length_limit=998", Fate.TAKEN, 998),
        ("", "-o smtp_line_length_limit=50", Fate.CHANGED, 100),
        ("", "-o smtp_line_length_limit=2000000000", Fate.CHANGED, 0),
        ("", "-o smtp_line_length_limit=long", Fate.LEFT, 998),
    ],
)
def test_the_longest_line_of_a_transport_is_taken_over(
    tmp_path: Path, main: str, option: str, fate: Fate, limit: int
) -> None:
    (tmp_path / "main.cf").write_text(f"{main}\nlmtp_line_length_limit = 3000\n")
    (tmp_path / "master.cf").write_text(f"slow unix - - y - - smtp {option}\nstore unix - - y - - lmtp\n")
    draft, _ = translate(tmp_path, "mail.example.org")
    settings = settings_of(draft, tmp_path)
    lengths = {name: settings.transports[name].line_length_limit for name in ("slow", "store", "smtp")}
    assert lengths == {"slow": limit, "store": 3000, "smtp": 998}
    assert ("line_length_limit" in draft.transports["slow"]) == (limit != 998)
    (finding,) = said_of(draft, "slow unix smtp -o smtp_line" if option else "smtp_line_length_limit")
    assert (finding.fate, "[transports.slow] line_length_limit" in finding.said) == (fate, True), finding.said
    (finding,) = said_of(draft, "lmtp_line_length_limit")
    assert (finding.fate, finding.said) == (Fate.TAKEN, "[transports.store] line_length_limit = 3000")


@pytest.mark.parametrize("option", ["smtp_tls_wrappermode=no", "smtp_tls_security_level=may", "smtp_tls_loglevel=1"])
def test_an_option_of_a_transport_that_is_taken_over_is_not_left(tmp_path: Path, option: str) -> None:
    (tmp_path / "main.cf").write_text("")
    (tmp_path / "master.cf").write_text(f"smtps unix - - y - - smtp -o {option}\n")
    draft, _ = translate(tmp_path, "mail.example.org")
    assert not [each for each in draft.findings if each.fate is Fate.LEFT and option in each.what]


def test_a_listener_without_logins_needs_neither_a_certificate_nor_users(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "main.cf").write_text("")
    (etc / "master.cf").write_text(
        "127.0.0.1:10025 inet n - y - - smtpd -o smtpd_client_restrictions=permit_mynetworks,reject\n"
    )
    draft, _ = translate(etc, "mail.example.org")
    (listener,) = settings_of(draft, etc).listener
    assert (listener.address, listener.purpose, listener.auth) == ("127.0.0.1:10025", "submission", "off")
    (finding,) = said_of(draft, "127.0.0.1:10025 inet")
    assert finding.fate is Fate.TAKEN
