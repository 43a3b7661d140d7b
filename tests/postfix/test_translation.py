"""From main.cf to waypost.toml: what is written is what the appliance takes, and every setting has its word."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mailcore.config import load
from mailcore.postfix.draft import Draft, Fate, Finding
from mailcore.postfix.translation import translate
from mailcore.routing.resolve import Resolved, Routing
from mailcore.settings import Settings

MAIN = """
compatibility_level = 3.6
myhostname = mail.example.org
mydestination = $myhostname, localhost
mynetworks = 127.0.0.0/8 [::ffff:127.0.0.0]/104 [::1]/128, !192.0.2.7, 192.0.2.0/28 NETWORKS
relay_domains = example.net, .only.below.example, hash:RELAY
relayhost = [gateway.example.com]:submission
transport_maps = texthash:TRANSPORT, regexp:RULES
relay_transport = relay
inet_interfaces = 127.0.0.1, ::1
inet_protocols = ipv4
message_size_limit = 20000000
queue_minfree = 50000000
default_process_limit = 50
default_destination_concurrency_limit = 10
slow_destination_concurrency_limit = 2
slow_destination_rate_delay = 3s
relay_destination_recipient_limit = 0
smtp_destination_concurrency_negative_feedback = 1/sqrt_concurrency
local_destination_concurrency_limit = 3
minimal_backoff_time = 10m
maximal_backoff_time = 2h
maximal_queue_lifetime = 3
bounce_queue_lifetime = 1d
smtp_connect_timeout = 10
smtp_mail_timeout = 60s
smtp_rcpt_timeout = 2m
smtp_tls_security_level = dane
smtp_sasl_auth_enable = yes
header_checks = regexp:/etc/postfix/headers
virtual_alias_maps = hash:/etc/postfix/virtual
always_bcc =
surprise_setting = 1
my_own = x
smtpd_banner = $my_own
"""
MASTER = """
# service type private unpriv chroot wakeup maxproc command
smtp      inet  n  -  y  -  -  smtpd
2525      inet  n  -  y  -  -  smtpd
  -o content_filter= -o smtpd_client_restrictions=permit
submission inet n  -  y  -  -  smtpd
  -o smtpd_sasl_auth_enable=yes
smtps     inet  n  -  y  -  -  smtpd
  -o { smtpd_tls_wrappermode = yes }
smtp      unix  -  -  y  -  -  smtp
relay     unix  -  -  y  -  30 smtp
slow      unix  -  -  y  -  2  smtp
  -o smtp_tls_security_level=encrypt
  -o smtp_bind_address=192.0.2.1
Old.Hop   unix  -  -  y  -  -  smtp
error     unix  -  -  y  -  -  error
maildrop  unix  -  n  n  -  -  pipe
  flags=DRhu user=vmail argv=/usr/bin/maildrop -d ${recipient}
"""
TRANSPORT = """
# a comment
slow.example        slow:
fixed.example       smtp:[192.0.2.25]:2525
.below.example      :[hop.example.com]
user@fixed.example  slow:[192.0.2.26]
two.example         smtp:[a.example]:25, [b.example]:25
capital.example     Old.Hop:
plain.example       :
example.net         :
refused.example     error:no such domain
mailbox.example     maildrop:
six.example         smtp:[2001:db8::1]:2525
nonsense.example    smtp:[a
justakey
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    place = tmp_path / "postfix"
    place.mkdir()
    main = MAIN
    for name, text in {
        "TRANSPORT": TRANSPORT,
        "RELAY": "listed.example OK\n",
        "RULES": "/^(.*)@x/ smtp:[x]\n/y/ smtp:[y]\n",
        "NETWORKS": "198.51.100.0/24\n# ours\n2001:db8::/32\n",
    }.items():
        (place / name.lower()).write_text(text)
        main = main.replace(name, str(place / name.lower()))
    (place / "main.cf").write_text(main)
    (place / "master.cf").write_text(MASTER)
    return place


def settings_of(draft: Draft, directory: Path) -> Settings:
    """As the appliance takes them."""
    path = directory.parent / "waypost.toml"
    path.write_text(draft.toml("home", ["Made."]))
    return load(path)


def said_of(draft: Draft, what: str) -> list[Finding]:
    return [each for each in draft.findings if each.what.startswith(what)]


def route_of(settings: Settings, address: str) -> str:
    resolved = Routing(settings.routes, settings.transports).resolve(address)
    assert isinstance(resolved, Resolved)
    return resolved.destination


def test_what_is_written_is_taken_by_the_appliance(directory: Path) -> None:
    draft, _ = translate(directory, "host")
    settings = settings_of(draft, directory)
    assert settings.receiver.listen == ("127.0.0.1:25", "127.0.0.1:2525")
    assert settings.receiver.hostname == settings.deliverer.hostname == "mail.example.org"
    assert settings.receiver.message_size_limit == 20_000_000
    assert settings.queue.reserve_bytes == 50_000_000
    assert settings.relay.networks[:2] == ("127.0.0.0/8", "::1/128")
    assert "192.0.2.7/32" not in settings.relay.networks
    assert {"192.0.2.6/32", "192.0.2.8/29", "198.51.100.0/24", "2001:db8::/32"} <= set(settings.relay.networks)
    assert settings.relay.domains == (
        "example.net", ".example.net", ".only.below.example", "listed.example", ".listed.example",
    )  # fmt: skip
    assert settings.scheduler.minimal_backoff_time == 600
    assert settings.scheduler.maximal_backoff_time == 7200
    assert settings.scheduler.maximal_queue_lifetime == 3 * 86_400
    assert settings.scheduler.bounce_queue_lifetime == 86_400
    assert (settings.deliverer.connect_timeout_s, settings.deliverer.command_timeout_s) == (10, 120)


def test_transports_have_what_postfix_gave_each(directory: Path) -> None:
    settings = settings_of(translate(directory, "host")[0], directory)
    slow, smtp, relay = (settings.transports[name] for name in ("slow", "smtp", "relay"))
    assert (slow.process_limit, slow.destination_concurrency_limit, slow.destination_rate_delay) == (2, 2, 3)
    assert (smtp.process_limit, smtp.destination_concurrency_limit) == (50, 10)
    assert smtp.destination_concurrency_negative_feedback == "1/sqrt_concurrency"
    assert (relay.process_limit, relay.destination_recipient_limit) == (30, 10_000)
    assert (slow.tls, smtp.tls) == ("encrypt", "encrypt")
    assert set(settings.transports) == {"smtp", "relay", "bulk", "slow", "told-hop"}


@pytest.mark.parametrize(
    ("address", "destination"),
    [
        ("a@anywhere.example", "smtp:[gateway.example.com]:587"),
        ("a@example.net", "relay:[gateway.example.com]:587"),
        ("a@listed.example", "relay:[gateway.example.com]:587"),
        ("a@deep.listed.example", "relay:[gateway.example.com]:587"),
        ("a@slow.example", "slow:slow.example"),
        ("a@fixed.example", "smtp:[192.0.2.25]:2525"),
        ("user@fixed.example", "slow:[192.0.2.26]"),
        ("a@x.below.example", "smtp:[hop.example.com]"),
        ("a@two.example", "smtp:[a.example]"),
        ("a@capital.example", "told-hop:capital.example"),
        ("a@plain.example", "smtp:[gateway.example.com]:587"),
        ("a@refused.example", "smtp:[gateway.example.com]:587"),
        ("a@six.example", "smtp:[2001:db8::1]:2525"),
    ],
)
def test_mail_goes_where_postfix_sent_it(directory: Path, address: str, destination: str) -> None:
    settings = settings_of(translate(directory, "host")[0], directory)
    assert route_of(settings, address) == destination


@pytest.mark.parametrize(
    ("what", "fate", "said"),
    [
        ("submission inet", Fate.LEFT, "no login"),
        ("smtps inet", Fate.LEFT, "only STARTTLS"),
        ("2525 inet", Fate.CHANGED, "content_filter"),
        ("mynetworks", Fate.CHANGED, "without what ! took out"),
        ("mydestination", Fate.LEFT, "no mailboxes"),
        ("smtp_tls_security_level = dane", Fate.CHANGED, "nobody's certificate is checked"),
        ("relay_destination_recipient_limit", Fate.CHANGED, "0 is unlimited"),
        ("Old.Hop unix", Fate.CHANGED, "is called told-hop"),
        ("slow unix smtp -o smtp_bind_address", Fate.LEFT, "can't be set here"),
        ("two.example", Fate.CHANGED, "[b.example]:25 is left out"),
        ("refused.example", Fate.LEFT, "no route that refuses mail; mail for it goes smtp:[gateway"),
        ("mailbox.example", Fate.LEFT, "no transport that speaks SMTP (pipe)"),
        ("nonsense.example", Fate.LEFT, "goes smtp:[gateway"),
        ("a line", Fate.LEFT, "has no value"),
        ("transport_maps = regexp", Fate.LEFT, "2 rules"),
        ("smtp_sasl_auth_enable", Fate.LEFT, "can't log in to a next hop"),
        ("header_checks", Fate.LEFT, "no filters"),
        ("virtual_alias_maps", Fate.LEFT, "rewrites no address"),
        ("always_bcc", Fate.TAKEN, "nothing is lost"),
        ("surprise_setting", Fate.LEFT, "look whether mail depends on it"),
        ("my_own", Fate.TAKEN, "put in where it is named"),
        ("local_destination_concurrency_limit", Fate.LEFT, "local is no transport that delivers over SMTP"),
        ("message_size_limit", Fate.TAKEN, "message_size_limit = 20000000"),
    ],
)
def test_what_became_of_it_is_said(directory: Path, what: str, fate: Fate, said: str) -> None:
    found = said_of(translate(directory, "host")[0], what)
    assert [each.fate for each in found if said in each.said][:1] == [fate], found


def test_each_setting_has_a_finding(directory: Path) -> None:
    draft, machine = translate(directory, "host")
    house = next(each.what for each in draft.findings if "own house" in each.said)
    told = {each.what.partition(" = ")[0] for each in draft.findings} | set(house.split(", "))
    # Looked at together with another: what is listened on, how a list is read.
    assert set(machine.cf.given) - told <= {"inet_protocols", "relay_transport", "smtp_mail_timeout"}
    assert all(each.where and each.said for each in draft.findings)


def test_nothing_below_the_directory_is_changed(directory: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*")}
    translate(directory, "host")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*")} == before


def test_an_empty_main_cf_is_postfix_as_it_comes(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "main.cf").write_text("")
    draft, _ = translate(tmp_path / "etc", "mail.example.org")
    settings = settings_of(draft, tmp_path / "etc")
    assert settings.receiver.listen == ("0.0.0.0:25", "[::]:25")
    assert settings.receiver.message_size_limit == 10_240_000
    assert settings.transports["smtp"].tls == "none"
    assert settings.routes == {"*": "smtp"}
    assert any(each.where == "master.cf" and "cannot be read" in each.said for each in draft.findings)
    plain = Settings(home=settings.home, **{name: getattr(settings, name) for name in _DIRECTORIES})
    for name in ("scheduler", "queue"):
        assert dataclasses.asdict(getattr(settings, name)) == dataclasses.asdict(getattr(plain, name))


_DIRECTORIES = ("queue_directory", "spool_directory", "run_directory", "log_directory")


@pytest.mark.parametrize("networks", ["0.0.0.0/0", "0.0.0.0/1 128.0.0.0/1", "static:all", "ldap:/etc/x"])
def test_no_open_relay_is_taken_over(tmp_path: Path, networks: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "main.cf").write_text(f"mynetworks = {networks}\nrelay_domains = static:all\n")
    draft, _ = translate(tmp_path / "etc", "mail.example.org")
    settings = settings_of(draft, tmp_path / "etc")
    assert settings.relay.networks == ("127.0.0.0/8", "::1/128")
    assert settings.relay.domains == ()
    assert [each.fate for each in said_of(draft, "mynetworks")] == [Fate.LEFT]


def test_hostile_text_in_main_cf_does_not_get_out_of_its_line(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    text = 'smtp_helo_name = a"]\nrelay_domains = b"c.example, d\x1b[31m.example\nrelayhost = x"\\y\n'
    (tmp_path / "etc" / "main.cf").write_text(text)
    draft, _ = translate(tmp_path / "etc", "mail.example.org")
    assert settings_of(draft, tmp_path / "etc").relay.domains == ()
