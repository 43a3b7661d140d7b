"""A Postfix as sites run it, with logins, policy maps, sender routes, rewriting, milters and listeners of its own: nothing is
dropped but what docs/import-postfix.md names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mailcore.config.load import load
from mailcore.config.maps import map_faults
from mailcore.config.settings import Settings
from mailcore.import_postfix.draft import Draft, Fate
from mailcore.import_postfix.meanings import names
from mailcore.import_postfix.translation import translate
from tests.doctor.sample_host import certificate
from tests.test_tidy import read

MAIN = """
compatibility_level = 3.6
myhostname = mail.example.org
mydomain = example.org
myorigin = $mydomain
mydestination =
mynetworks = 127.0.0.0/8 [::1]/128 192.0.2.0/24
relay_domains = example.org, hash:DIR/relay_domains
relay_recipient_maps = hash:DIR/relay_recipients
transport_maps = hash:DIR/transport
relayhost = [smarthost.example.net]:587
sender_dependent_relayhost_maps = hash:DIR/sender_relay
smtp_fallback_relay = [backup.example.net]
recipient_delimiter = +
message_size_limit = 26214400
smtpd_banner = $myhostname ESMTP

# SASL
smtpd_sasl_auth_enable = no
mua_client_restrictions = permit_sasl_authenticated, reject
smtpd_sasl_type = dovecot
smtpd_sasl_path = private/auth
smtpd_sasl_security_options = noanonymous
smtp_sasl_auth_enable = yes
smtp_sasl_password_maps = hash:DIR/sasl_passwd
smtp_sasl_security_options = noanonymous

# TLS
smtp_tls_security_level = may
smtp_tls_policy_maps = hash:DIR/tls_policy
smtp_tls_loglevel = 1
smtpd_tls_security_level = may
smtpd_tls_cert_file = DIR/mail.pem
smtpd_tls_key_file = $smtpd_tls_cert_file
smtpd_tls_auth_only = yes
smtpd_tls_mandatory_protocols = >=TLSv1.2

# restrictions
smtpd_helo_required = yes
smtpd_helo_restrictions = permit_mynetworks, reject_invalid_helo_hostname
smtpd_sender_restrictions = reject_unknown_sender_domain
smtpd_relay_restrictions = permit_mynetworks, permit_sasl_authenticated, reject_unauth_destination
smtpd_recipient_restrictions = check_policy_service unix:private/policy, reject_rbl_client zen.spamhaus.org
smtpd_client_connection_count_limit = 20
smtpd_client_connection_rate_limit = 100
smtpd_client_message_rate_limit = 200
smtpd_client_recipient_rate_limit = 500
smtpd_client_auth_rate_limit = 10
anvil_rate_time_unit = 60s
smtpd_client_event_limit_exceptions = $mynetworks
smtpd_authorized_xclient_hosts = 192.0.2.10
smtpd_authorized_xforward_hosts = 127.0.0.0/8, 192.0.2.11
smtpd_soft_error_limit = 5
smtpd_error_sleep_time = 2s
disable_vrfy_command = yes

# rewriting
virtual_alias_maps = hash:DIR/virtual, pcre:DIR/virtual.pcre
canonical_maps = hash:DIR/canonical
sender_canonical_maps = regexp:DIR/sender_canonical
canonical_classes = envelope_sender, header_sender, header_recipient
local_header_rewrite_clients = permit_mynetworks, permit_sasl_authenticated
masquerade_domains = example.org
always_bcc = archive@example.org
recipient_bcc_maps = hash:DIR/recipient_bcc
header_checks = pcre:DIR/header_checks
mime_header_checks = pcre:DIR/mime_header_checks
body_checks = pcre:DIR/body_checks
smtp_header_checks = pcre:DIR/header_checks
smtp_generic_maps = hash:DIR/generic

# milters
smtpd_milters = inet:127.0.0.1:11332, unix:opendkim/opendkim.sock
non_smtpd_milters = $smtpd_milters
milter_default_action = accept
milter_protocol = 6
milter_mail_macros = i {mail_addr} {client_addr} {client_name} {auth_authen}
content_filter =

# the queue
maximal_queue_lifetime = 3d
bounce_queue_lifetime = 1d
minimal_backoff_time = 300s
default_destination_concurrency_limit = 10
default_process_limit = 100
"""
MASTER = """
smtp       inet  n  -  y  -  -  smtpd
submission inet  n  -  y  -  -  smtpd
  -o syslog_name=postfix/submission
  -o smtpd_tls_security_level=encrypt
  -o smtpd_sasl_auth_enable=yes
  -o smtpd_client_restrictions=$mua_client_restrictions
  -o smtpd_recipient_restrictions=
  -o milter_macro_daemon_name=ORIGINATING
submissions inet n  -  y  -  -  smtpd
  -o smtpd_tls_wrappermode=yes
  -o smtpd_sasl_auth_enable=yes
  -o { smtpd_relay_restrictions = permit_mynetworks, permit_sasl_authenticated, reject }
  -o smtpd_milters=inet:127.0.0.1:8891
  -o milter_macro_daemon_name=Grün
10025      inet  n  -  y  -  -  smtpd
  -o smtpd_tls_security_level=none
  -o smtpd_milters=
192.0.2.1:2525 inet n - y - - smtpd
  -o smtpd_client_restrictions=permit_mynetworks,reject
pickup     unix  n  -  y  60 1  pickup
cleanup    unix  n  -  y  -  0  cleanup
qmgr       unix  n  -  n  300 1 qmgr
smtp       unix  -  -  y  -  -  smtp
relay      unix  -  -  y  -  -  smtp
slow       unix  -  -  y  -  2  smtp
lmtp       unix  -  -  y  -  -  lmtp
error      unix  -  -  y  -  -  error
"""
TABLES = {
    "relay_domains": "example.net OK\n",
    "relay_recipients": "@example.org OK\n",
    "transport": "example.net slow:[mx.example.net]\nkim@example.org lmtp:inet:[192.0.2.20]:24\nold.example error:5.1.2 gone\n",
    "sender_relay": "app@example.org [relay.example.com]:587\n@shop.example [192.0.2.30]\n",
    "sasl_passwd": "[smarthost.example.net]:587 user:secret\n",
    "tls_policy": "example.net encrypt\nbank.example secure match=mx.bank.example\n",
    "virtual": "team@example.org kim@example.org, robin@example.org\n@old.example.org @example.org\n",
    "virtual.pcre": "/^list-(.*)@example[.]org$/ $1@lists.example.org\n",
    "canonical": "kim@in.example.org kim@example.org\n",
    "sender_canonical": "/^(.*)@host[0-9]+[.]example[.]org$/ $1@example.org\n",
    "recipient_bcc": "boss@example.org audit@example.org\n",
    "header_checks": "/^Received: .*\\[10\\./ IGNORE\nif /^Subject:/\n/lottery/ REJECT not here\nendif\n/^X-Bulk:/ HOLD\n",
    "mime_header_checks": "/name=.*[.]exe/ REJECT\n",
    "body_checks": "/viagra/ REJECT\n",
    "generic": "root@mail.example.org admin@example.org\n",
}


@pytest.fixture
def site(tmp_path: Path) -> tuple[Draft, Settings]:
    etc = tmp_path / "etc"
    etc.mkdir()
    for name, text in TABLES.items():
        (etc / name).write_text(text)
    shutil.copy(certificate(tmp_path, "mail", 90), etc / "mail.pem")
    (etc / "main.cf").write_text(MAIN.replace("DIR", str(etc)))
    (etc / "master.cf").write_text(MASTER)
    draft, _ = translate(etc, "mail.example.org")
    file = tmp_path / "waypost.toml"
    file.write_text(draft.toml("home", ["Made."]))
    return draft, load(file)


def test_what_is_written_passes_the_check_of_the_configuration(site: tuple[Draft, Settings], tmp_path: Path) -> None:
    _, settings = site
    etc = tmp_path / "etc"
    assert map_faults(settings.rewriting) == []
    assert settings.rewriting.header_checks == (f"{etc}/header_checks",)
    assert settings.rewriting.canonical_classes == ("envelope_sender", "header_sender", "header_recipient")
    assert settings.rewriting.local_header_rewrite_clients == ("networks", "logins")
    assert settings.rewriting.virtual_alias_maps == (f"{etc}/virtual", f"regexp:{etc}/virtual.pcre")
    clients = settings.clients
    assert (clients.connection_rate_limit, clients.message_rate_limit, clients.recipient_rate_limit) == (100, 200, 500)
    assert clients.xclient_networks == ("192.0.2.10/32",)
    assert clients.xforward_networks == ("127.0.0.0/8", "192.0.2.11/32")
    assert (clients.soft_error_limit, clients.error_sleep_time_s) == (5, 2.0)
    assert settings.routes["kim@example.org"] == "lmtp:[192.0.2.20]:24"
    assert settings.sender_routes["app@example.org"].endswith(":[relay.example.com]:587")
    assert "inet:127.0.0.1:11332" in settings.receiver.milters


def test_the_lines_of_master_cf_are_listeners_with_their_own_rules(site: tuple[Draft, Settings]) -> None:
    draft, settings = site
    assert settings.receiver.listen == ("0.0.0.0:25", "[::]:25")
    found = {each.address: each for each in settings.listener}
    submission = found["0.0.0.0:587"]
    assert (submission.purpose, submission.tls, submission.auth) == ("submission", "required", "required")
    assert submission.milters == settings.receiver.milters
    implicit = found["[::]:465"]
    assert (implicit.purpose, implicit.tls, implicit.auth) == ("submission", "implicit", "offered")
    assert implicit.milters == ("inet:127.0.0.1:8891",)
    ours = found["192.0.2.1:2525"]
    assert (ours.purpose, ours.tls, ours.auth) == ("submission", "starttls", "off")
    inner = found["0.0.0.0:10025"]
    assert (inner.purpose, inner.tls, inner.auth, inner.milters) == ("mx", "none", "off", ())
    assert len(found) == 7
    assert settings.receiver.non_smtpd_milters == settings.receiver.milters
    (said,) = [each.said for each in draft.findings if each.what.startswith("submission inet")]
    assert "waypost user add" in said
    assert said.endswith("its own settings are not taken over: -o smtpd_recipient_restrictions")
    assert submission.milter_macro_daemon_name == "ORIGINATING"
    assert implicit.milter_macro_daemon_name == "", "check-config would refuse the file"
    (said,) = [each.said for each in draft.findings if each.what.startswith("submissions inet")]
    assert "milter_macro_daemon_name is not taken over" in said


def test_each_setting_whose_consequence_is_known_is_on_the_page() -> None:
    page = read("docs/import-postfix.md").partition("## Not taken over")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9_…]+)`", page))
    beginnings = tuple(name.removesuffix("…") for name in named if name.endswith("…"))
    assert [name for name in names() if name not in named and not name.removesuffix("…").startswith(beginnings)] == []


def test_what_is_not_taken_over_is_named_in_the_finding_and_on_the_page(site: tuple[Draft, Settings]) -> None:
    draft, _ = site
    page = read("docs/import-postfix.md")
    named = set(re.findall(r"`([a-z0-9_…]+)`", page.partition("## Not taken over")[2].partition("\n## ")[0]))
    given = {line.partition(" = ")[0] for line in MAIN.splitlines() if " =" in line}
    left = {finding.what.split(" ")[0] for finding in draft.findings if finding.fate is Fate.LEFT}
    assert all(finding.said for finding in draft.findings)
    beginnings = tuple(name.removesuffix("…") for name in named if name.endswith("…"))
    assert sorted(name for name in left & given if name not in named and not name.startswith(beginnings)) == []
    options = set(re.findall(r"-o (\w+)", " ".join(each.said for each in draft.findings)))
    assert sorted(name for name in options if name not in named and not name.startswith(beginnings)) == []
    assert "header_checks" not in left
    assert "non_smtpd_milters" not in left
    assert "smtp_generic_maps" in left
