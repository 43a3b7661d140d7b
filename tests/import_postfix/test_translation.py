"""From main.cf to waypost.toml: what is written is what the appliance takes, and every setting has its word."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.import_postfix.draft import Draft, Fate
from mailcore.import_postfix.dropped import origin
from mailcore.import_postfix.machine import open_machine
from mailcore.import_postfix.meanings import HOUSEKEEPING
from mailcore.import_postfix.translation import translate
from tests.import_postfix.translating import MASTER, route_of, said_of, settings_of, told_of

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
delay_warning_time = 4
bounce_size_limit = 70000
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
    assert (settings.bounce.delay_warning_time, settings.bounce.bounce_size_limit) == (4 * 3600, 70_000)
    assert (settings.deliverer.connect_timeout_s, settings.deliverer.command_timeout_s) == (10, 120)


def test_transports_have_what_postfix_gave_each(directory: Path) -> None:
    settings = settings_of(translate(directory, "host")[0], directory)
    slow, smtp, relay = (settings.transports[name] for name in ("slow", "smtp", "relay"))
    assert (slow.process_limit, slow.destination_concurrency_limit, slow.destination_rate_delay) == (2, 2, 3)
    assert (smtp.process_limit, smtp.destination_concurrency_limit) == (50, 10)
    assert smtp.destination_concurrency_negative_feedback == "1/sqrt_concurrency"
    assert (relay.process_limit, relay.destination_recipient_limit) == (30, 10_000)
    assert (slow.tls, smtp.tls) == ("encrypt", "dane")
    assert set(settings.transports) == {"smtp", "relay", "bulk", "slow", "told-hop", "lmtp"}


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
        ("a@six.example", "smtp:[2001:db8::1]:2525"),
    ],
)
def test_mail_goes_where_postfix_sent_it(directory: Path, address: str, destination: str) -> None:
    settings = settings_of(translate(directory, "host")[0], directory)
    assert route_of(settings, address) == destination


@pytest.mark.parametrize(
    ("what", "fate", "said"),
    [
        ("submission inet", Fate.LEFT, 'add a [[listener]] with tls = "starttls", auth = "offered"'),
        ("smtps inet", Fate.LEFT, "needs a certificate"),
        ("2525 inet", Fate.CHANGED, "content_filter"),
        ("mynetworks", Fate.CHANGED, "without the excluded ones (!)"),
        ("mydestination", Fate.LEFT, "no mailboxes"),
        ("smtp_tls_security_level = dane", Fate.TAKEN, 'tls = "dane"'),
        ("relay_destination_recipient_limit", Fate.CHANGED, "0 means unlimited"),
        ("Old.Hop unix", Fate.CHANGED, "renamed to told-hop"),
        ("slow unix smtp -o smtp_bind_address", Fate.LEFT, "cannot be set for a single transport"),
        ("two.example", Fate.CHANGED, "[b.example]:25 is left out"),
        ("mailbox.example", Fate.LEFT, "not a transport that delivers over SMTP (pipe)"),
        ("nonsense.example", Fate.LEFT, "goes smtp:[gateway"),
        ("a line", Fate.LEFT, "has no value"),
        ("transport_maps = regexp", Fate.LEFT, "2 rules"),
        ("smtp_sasl_auth_enable", Fate.LEFT, "passwords are not taken over"),
        ("header_checks", Fate.LEFT, "cannot be read"),
        ("virtual_alias_maps", Fate.LEFT, "add the file to [rewriting]"),
        ("always_bcc", Fate.TAKEN, "nothing to take over"),
        ("surprise_setting", Fate.LEFT, "check whether your mail depends on it"),
        ("my_own", Fate.TAKEN, "expanded in the settings that use it"),
        ("local_destination_concurrency_limit", Fate.LEFT, "local is not a transport that delivers over SMTP"),
        ("message_size_limit", Fate.TAKEN, "message_size_limit = 20000000"),
    ],
)
def test_what_became_of_it_is_said(directory: Path, what: str, fate: Fate, said: str) -> None:
    found = said_of(translate(directory, "host")[0], what)
    assert [each.fate for each in found if said in each.said][:1] == [fate], found


def test_each_setting_has_a_finding(directory: Path) -> None:
    draft, machine = translate(directory, "host")
    house = next(each.what for each in draft.findings if "internal to Postfix" in each.said)
    told = {each.where for each in draft.findings}
    assert [
        name for name in machine.cf.given if machine.where(name) not in told and name not in house.split(", ")
    ] == []
    assert all(each.where and each.said for each in draft.findings)


@pytest.mark.skipif(shutil.which("postconf") is None, reason="needs Postfix")
@pytest.mark.parametrize("value", ["", "yes", "no", "0", "1"])
def test_each_setting_that_postfix_knows_has_a_finding(tmp_path: Path, value: str) -> None:
    known = subprocess.run(["postconf", "-dH"], capture_output=True, text=True, check=True).stdout.split()
    (tmp_path / "main.cf").write_text("".join(f"{name} = {value}\n" for name in known))
    (tmp_path / "master.cf").write_text(MASTER)
    draft, machine = translate(tmp_path, "host")
    told = {each.where for each in draft.findings}
    assert len(known) > 500
    assert [name for name in known if machine.where(name) not in told and name not in HOUSEKEEPING] == []


@pytest.mark.parametrize(
    ("level", "tls", "fate", "said"),
    [
        ("none", "none", Fate.TAKEN, '"may" would encrypt'),
        ("may", "may", Fate.TAKEN, 'tls = "may"'),
        ("encrypt", "encrypt", Fate.TAKEN, 'tls = "encrypt"'),
        ("dane", "dane", Fate.TAKEN, 'tls = "dane"'),
        ("dane-only", "dane-only", Fate.TAKEN, 'tls = "dane-only"'),
        ("fingerprint", "encrypt", Fate.CHANGED, "certificates are not checked"),
        ("verify", "verify", Fate.CHANGED, "the name of the next hop"),
        ("secure", "verify", Fate.TAKEN, 'tls = "verify"'),
        ("dnae", "encrypt", Fate.CHANGED, "'dnae' is not a known level"),
    ],
)
def test_each_level_of_tls_becomes_the_nearest(tmp_path: Path, level: str, tls: str, fate: Fate, said: str) -> None:
    """Postfix's dane without TLSA records is may: as encrypt, mail to hosts without TLS would never go."""
    draft, settings = told_of(tmp_path, f"smtp_tls_security_level = {level}\n")
    assert settings.transports["smtp"].tls == settings.transports["relay"].tls == tls
    found = said_of(draft, "smtp_tls_security_level")[0]
    assert found.fate is fate
    assert said in found.said


def test_other_postfixes_of_the_host_are_named_each(tmp_path: Path) -> None:
    main = "multi_instance_wrapper = ${command_directory}/postmulti -p --\nmulti_instance_enable = yes\n"
    draft, _ = told_of(tmp_path, main + "multi_instance_directories = /etc/postfix-out, /etc/postfix-bulk\n")
    found = said_of(draft, "multi_instance_directories")
    assert [each.what.partition(" = ")[2] for each in found] == ["/etc/postfix-out", "/etc/postfix-bulk"]
    for each in found:
        assert (each.fate, each.where) == (Fate.LEFT, "main.cf:3")
        assert "its settings and its queue are not part of this import" in each.said
    assert "Copy its directory, too" in found[1].said
    assert not any(
        "multi_instance_directories" in each.what for each in draft.findings if "internal to Postfix" in each.said
    )


def test_of_relay_domains_what_can_be_read_is_taken_and_the_table_that_can_not_is_named(tmp_path: Path) -> None:
    main = (
        "compatibility_level = 3.6\nmydestination = own.example, regexp:DIR/rules\nparent_domain_matches_subdomains =\n"
        "relay_domains = literal.example, own.example, regexp:DIR/rules, texthash:DIR/listed, DIR/file, !ldap:DIR/x\n"
    )
    draft, settings = told_of(
        tmp_path,
        main,
        rules="/^a/ OK\n/^b/ OK\n",
        listed="table.example OK\n",
        file="inner.example\nhash:DIR/none\nlast.example\n",
    )
    assert settings.relay.domains == ("literal.example", "table.example", "inner.example", "last.example")
    found = said_of(draft, "relay_domains")
    assert [(each.what.partition(" = ")[2].rpartition("/")[2], each.fate) for each in found[:3]] == [
        ("rules", Fate.LEFT), ("none", Fate.LEFT), ("x", Fate.LEFT),
    ]  # fmt: skip
    assert found[0].what.endswith(f"regexp:{tmp_path}/etc/rules")
    assert "2 rules" in found[0].said
    assert "is refused from outside" in found[0].said
    assert "its exclusions are not taken over" in found[2].said
    assert found[3].fate is Fate.TAKEN
    assert [each.fate for each in said_of(draft, "mydestination")] == [Fate.LEFT, Fate.LEFT]


def copied(tmp_path: Path, below: str, main: str, **tables: str) -> Draft:
    """Of a copy of another host's files; its main.cf names tables as that host did."""
    etc = tmp_path / below
    etc.mkdir(parents=True)
    for name, text in tables.items():
        (etc / name).write_text(text)
    (etc / "main.cf").write_text(main)
    (etc / "master.cf").write_text(MASTER)
    return translate(etc, "host")[0]


def test_tables_are_read_below_the_directory_that_was_given(tmp_path: Path) -> None:
    """The host that runs the command may have a Postfix of its own, with tables of the same names."""
    main = "transport_maps = hash:/etc/postfix/transport\nmynetworks = cidr:/etc/postfix/networks\n"
    tables = {"transport": "a.example smtp:[192.0.2.1]\n", "networks": "192.0.2.0/24 OK\n"}
    draft = copied(tmp_path, "copy", main, **tables)
    assert draft.routes["a.example"] == "smtp:[192.0.2.1]"
    assert draft.sections["relay"]["networks"] == ["192.0.2.0/24"]


def test_a_file_of_this_host_is_never_read(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "transport").write_text("a.example smtp:[192.0.2.66]\n")
    (host / "domains").write_text("secret.example\n")
    main = (
        f"transport_maps = hash:{host}/transport, hash:{tmp_path}/copy/../host/transport\n"
        f"relay_domains = {host}/domains\nmyorigin = {host}/domains\n"
    )
    draft = copied(tmp_path, "copy", main)
    assert "a.example" not in draft.routes
    assert "secret.example" not in draft.toml("home", [])
    said = [each.said for each in draft.findings if "is outside of" in each.said]
    assert len(said) == 4
    assert all(f"is outside of {tmp_path}/copy and is not read; copy it there" in each for each in said[:2])
    (tmp_path / "copy" / "linked").symlink_to(host / "transport")
    (tmp_path / "copy" / "main.cf").write_text("transport_maps = hash:/etc/postfix/linked\n")
    draft = translate(tmp_path / "copy", "host")[0]
    assert "a.example" not in draft.routes
    assert any("leads out of" in each.said for each in draft.findings)


def test_of_a_copy_of_a_whole_file_system_every_table_is_read(tmp_path: Path) -> None:
    mail = tmp_path / "copy/etc/mail"
    mail.mkdir(parents=True)
    (mail / "transport").write_text("a.example smtp:[192.0.2.1]\n")
    (tmp_path / "copy/etc/mailname").write_text("old.example\n")
    main = "transport_maps = hash:/etc/mail/transport\nmyorigin = /etc/mailname\n"
    draft = copied(tmp_path, "copy/etc/postfix", main)
    assert draft.routes["a.example"] == "smtp:[192.0.2.1]"
    assert draft.sections["lenient"]["domain"] == "old.example"
    assert origin(open_machine(tmp_path / "copy/etc/postfix", "host")) == "old.example"


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


@pytest.mark.parametrize(
    ("main", "is_on", "said"),
    [
        ("", True, []),
        ("smtpd_peername_lookup = no", False, ["[clients] reverse_names = false"]),
        ("smtpd_peername_lookup = yes", True, ["[clients] reverse_names = true"]),
    ],
)
def test_names_of_clients_are_looked_up_as_before(tmp_path: Path, main: str, is_on: bool, said: list[str]) -> None:
    draft, settings = told_of(tmp_path, main)
    assert settings.clients.reverse_names is is_on
    assert [each.said for each in said_of(draft, "smtpd_peername_lookup")] == said


def test_what_is_taken_over_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    main = """transport_maps = hash:DIR/transport
smtp_tls_policy_maps = hash:DIR/policy
sender_dependent_relayhost_maps = hash:DIR/relays
smtpd_peername_lookup = yes
alias_maps = hash:DIR/aliases
"""
    tables = {
        "transport": "a.example smtp:[192.0.2.1]\n",
        "policy": "a.example encrypt\n",
        "relays": "@b.example [c.example]\n",
    }
    draft, settings = told_of(tmp_path, main, **tables)
    assert settings.clients.reverse_names
    for name in ("transport_maps", "smtp_tls_policy_maps", "sender_dependent_relayhost_maps"):
        (finding,) = said_of(draft, name)
        assert finding.said == "read; the findings on its tables and their lines say what became of them"
    assert said_of(draft, "smtpd_peername_lookup")[0].fate is Fate.TAKEN
    (local,) = said_of(draft, "alias_maps")
    assert "aliases of whole addresses are in [rewriting]" in local.said


@pytest.mark.parametrize(
    ("given", "domain", "said"),
    [
        ("example.net", "example.net", '[lenient] domain = "example.net"'),
        ("$mydomain", "example.org", '[lenient] domain = "example.org"'),
        ("DIR/mailname", "example.com", '[lenient] domain = "example.com"'),
        (
            "DIR/missing",
            "",
            "cannot be read: No such file or directory; addresses without a domain get [receiver] hostname",
        ),
    ],
)
def test_the_domain_of_addresses_without_one_is_taken_over(tmp_path: Path, given: str, domain: str, said: str) -> None:
    draft, settings = told_of(tmp_path, f"myorigin = {given}\n", mailname="example.com\n")
    assert settings.lenient.domain == domain
    (finding,) = said_of(draft, "myorigin")
    assert said in finding.said
