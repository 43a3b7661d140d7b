"""A good file gives typed settings; a bad one is refused with file, line, key and what is allowed."""

from __future__ import annotations

import datetime
import grp
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mailcore.config.load import ConfigError, Deliverer, Receiver, Scheduler, Transport, load
from mailcore.config.settings import SECTIONS
from mailcore.config.values import listen_address, nameserver_address
from tests.test_tidy import ROOT

ISSUE_EXAMPLE = """\
home = "var"                    # queue_directory and spool_directory below it, or each on a disk of its own
[receiver]
listen = ["127.0.0.1:2525"]
processes = 1
[relay]
networks = ["127.0.0.0/8", "::1/128"]
domains = []
[deliverer]
processes = 1
[transports.smtp]               # shipped: smtp, relay, bulk
destination_concurrency_limit = 20
[routes]
"example.org" = "smtp:[127.0.0.1]:2526"   # transport, next hop, port; brackets: no MX look-up
"*" = "smtp"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "waypost.toml"


def fault(file: Path, text: str) -> str:
    """What the operator reads, without the directory in front."""
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load(file)
    return str(error.value).replace(f"{file.parent}/", "")


# What is right


def test_an_empty_file_gives_the_defaults_below_home(file: Path) -> None:
    file.write_text("")
    settings = load(file)
    home = file.parent / "var"
    assert settings.home == home
    assert settings.queue_directory == home / "queue"
    assert settings.spool_directory == home / "spool"
    assert settings.run_directory == home / "run"
    assert settings.log_directory == home / "log"
    assert (settings.receiver, settings.deliverer, settings.scheduler) == (Receiver(), Deliverer(), Scheduler())
    assert settings.transports == {"smtp": Transport(), "relay": Transport(), "bulk": Transport()}
    assert settings.routes == {"*": "smtp"}


@pytest.mark.parametrize("text", [ISSUE_EXAMPLE, (ROOT / "waypost.toml").read_text()])
def test_the_shown_files_are_good(file: Path, text: str) -> None:
    file.write_text(text)
    settings = load(file)
    assert settings.receiver.listen == ("127.0.0.1:2525",)
    assert settings.transports["smtp"].destination_concurrency_limit == 20


def test_values_have_the_one_spelling_the_code_sees(file: Path) -> None:
    file.write_text(
        """
        home = "/srv/waypost"
        spool_directory = "disk2/spool"
        [receiver]
        listen = ["0.0.0.0:25", "[2001:DB8:0::1]:25"]
        hostname = "Mail.Example.ORG."
        [relay]
        networks = ["192.0.2.1", "2001:DB8::/32"]
        domains = ["Example.ORG", ".example.NET."]
        [deliverer]
        hostname = "[IPv6:2001:DB8::1]"
        connect_timeout_s = 5
        nameservers = ["192.0.2.53", "::1", "[::1]:5353"]
        [transports.slow]
        tls = "none"
        delivery_slot_discount = 25
        destination_concurrency_negative_feedback = " 1 / sqrt_concurrency "
        destination_concurrency_positive_feedback = 0.25
        [transports.slow.destinations."Example.ORG:26"]
        destination_rate_delay = 2
        destination_concurrency_positive_feedback = "1/concurrency"
        [transports.slow.destinations]
        ".Example.NET.".destination_concurrency_limit = 2
        "[2001:DB8:0::1]:2526".destination_concurrency_feedback_debug = true
        "User@Example.ORG:25" = {}
        [routes]
        "Example.COM." = "slow:[2001:DB8:0::1]:2526"
        ".example.net" = "relay:Example.NET"
        "User@Example.ORG" = "bulk"
        """
    )
    settings = load(file)
    assert settings.queue_directory == Path("/srv/waypost/queue")
    assert settings.spool_directory == file.parent / "disk2/spool"
    assert settings.receiver.listen == ("0.0.0.0:25", "[2001:db8::1]:25")
    assert settings.receiver.hostname == "mail.example.org"
    assert settings.relay.networks == ("192.0.2.1/32", "2001:db8::/32")
    assert settings.relay.domains == ("example.org", ".example.net")
    assert settings.deliverer.hostname == "[IPv6:2001:db8::1]"
    assert type(settings.deliverer.connect_timeout_s) is float
    slow = settings.transports["slow"]
    assert (slow.tls, slow.delivery_slot_discount, slow.delivery_slot_cost) == ("none", 25, 5)
    assert slow.destination_concurrency_negative_feedback == "1/sqrt_concurrency"
    assert slow.destination_concurrency_positive_feedback == "0.25"
    assert slow.destinations == {
        "example.org:26": {"destination_rate_delay": 2.0, "destination_concurrency_positive_feedback": "1/concurrency"},
        ".example.net": {"destination_concurrency_limit": 2},
        "[2001:db8::1]:2526": {"destination_concurrency_feedback_debug": True},
        "user@example.org": {},
    }
    assert settings.routes == {
        "example.com": "slow:[2001:db8::1]:2526",
        ".example.net": "relay:example.net",
        "user@example.org": "bulk",
        "*": "smtp",
    }


def test_every_section_arrives_in_the_settings(file: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    (file.parent / "ca.pem").write_bytes(certificate("ca.example.org")[0])
    (file.parent / "key.pem").write_bytes(b"-----BEGIN PRIVATE KEY-----")
    (file.parent / "key.pem").chmod(0o640)
    file.write_text(
        f'[tls]\nca_file = "ca.pem"\n[client_auth]\nwithout_tls = true\n'
        f'[queue]\nundo_time_s = 61\n[receiver]\nerror_limit = 7\n[relay]\ndomains = ["a.example"]\n'
        f'[deliverer]\nport = 26\n[control]\ngroup = "{group}"\n[export]\nkeep_days = 9\n[supervisor]\nsilent_s = 9\n'
        f"[auth]\nfailure_time_s = 9\n[portal]\nprocesses = 2\n[reports]\nretries = 1\n[scheduler]\ntransport_retry_time = 9\n"
        f"[bounce]\nbounce_size_limit = 9\n[maildrop]\nfiles_max = 9\n[metrics]\ndestinations_max = 9\n"
        f'[clients]\nxclient_networks = ["192.0.2.1"]\n'
        f"[esmtp]\nhold_max_s = 9\n[lenient]\ndots = false\n"
        f'[rewriting]\nrecipient_delimiter = "+"\n[authenticity]\nevaluate = "mx"\n'
        f'[recipients]\nany_domains = ["b.example"]\n[dnsbl]\nsites = ["bad.example"]\n[greylist]\ndelay_s = 9\n'
        f'[arc]\ndomain = "example.org"\nselector = "a"\nkey = "key.pem"\n'
    )
    settings = load(file)
    for name, kind in SECTIONS.items():
        assert getattr(settings, name) != kind(), name


def test_paths_are_taken_from_the_directory_of_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('home = "here"')
    monkeypatch.chdir(file.parent.parent)
    settings = load(Path(file.parent.name, file.name))
    assert settings.home == file.parent / "here"
    assert settings.run_directory.is_absolute()


def test_addresses_are_read_for_those_who_listen_and_ask() -> None:
    assert listen_address("127.0.0.1:25") == ("127.0.0.1", 25)
    assert listen_address("[::1]:25") == ("::1", 25)
    assert nameserver_address("::1") == ("::1", 53)
    assert nameserver_address("192.0.2.53:54") == ("192.0.2.53", 54)


# What is wrong

FAULTS = [
    ("listener = 3", "1: listener must be one or more sections, [[listener]] (got 3)"),
    ("[listener]\naddress = '0.0.0.0:25'", "1: listener must be one or more sections, [[listener]]"),
    ("[[listener]]\npurpose = 'mx'", "1: [[listener]] address must be set, such as"),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\n\n[[listener]]\naddress = '0.0.0.0:587'\ntls = 'must'",
        '6: [[listener]] tls must be "none", "starttls", "required" or "implicit" (got \'must\')',
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\nproxy = ['10.0.0.1/8']",
        "3: [[listener]] proxy must be a network such as",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\nproxy = ['0.0.0.0/1', '128.0.0.0/1']",
        "3: [[listener]] proxy must be your own networks only; together these are 0.0.0.0/0",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\n\n[[listener]]\naddress = '0.0.0.0:25'",
        "5: [[listener]] address must be an address of its own; 0.0.0.0:25 is in another [[listener]]",
    ),
    (
        "[receiver]\nlisten = ['0.0.0.0:25']\n[[listener]]\naddress = '0.0.0.0:25'",
        "4: [[listener]] address must be an address of its own; 0.0.0.0:25 is in [receiver] listen",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:25'\ntls = 'none'\nauth = 'offered'",
        "4: [[listener]] auth needs TLS, so that no password is sent in the clear",
    ),
    (
        "[[listener]]\naddress = '0.0.0.0:587'\npurpose = 'submission'",
        "1: [[listener]] tls needs a certificate; set tls_certificate and tls_key in [receiver]",
    ),
    ("[[listener]]\naddress = '0.0.0.0:25'\nauth = 'offered'", "[[listener]] tls needs a certificate"),
    ("[[certificate]]\nnames = ['a.example']\nkey = 'k'", "1: [[certificate]] certificate must be set"),
    ("[[certificate]]\nnames = ['a b']\nkey = 'k'", "2: [[certificate]] names must be a host name such as"),
    ("[auth]\nfailures_per_user = 0", "2: [auth] failures_per_user must be between 1 and 1000000 failures (got 0)"),
    (
        "proceses = 1\n",
        "1: proceses is not a setting here; allowed here: home, queue_directory, spool_directory, "
        "run_directory, log_directory, queue, receiver,",
    ),
    (
        "[receiver]\nproceses = 1",
        "2: [receiver] proceses is not a setting here; did you mean 'processes'?",
    ),
    (
        "[reciever]\nprocesses = 1",
        "1: reciever is not a setting here; did you mean 'receiver'?",
    ),
    ("listen = []", "1: listen is not a setting here; it belongs in [receiver] or [metrics] or [portal]"),
    (
        "processes = 2",
        "1: processes is not a setting here; it belongs in [receiver] or [deliverer] or [portal]",
    ),
    (
        "[relay]\nhome = 'x'",
        "2: [relay] home is not a setting here; it belongs at the top of the file, before the first section",
    ),
    (
        "\n[transports.smtp]\nlimit = 1",
        "3: [transports.smtp] limit is not a setting here; allowed here: initial_destination_concurrency, "
        "destination_concurrency_limit,",
    ),
    ("receiver = 3", "1: receiver must be a section, [receiver] (got 3)"),
    ("[transports]\nsmtp = 3", "2: [transports] smtp must be a section, [transports.smtp] (got 3)"),
    ("[[receiver]]\nprocesses = 1", "1: receiver must be a section, [receiver] (got [{'processes': 1}])"),
    ("home = 3", "1: home must be a string (got 3)"),
    ("home = ''", "1: home must be a path, absolute or relative to the configuration file (got '')"),
    ("home = 'a\\b'\nhome = 'c'", "2: not valid TOML: Cannot overwrite a value (at the end of the file)"),
    ('home = "a\\u0000b"', "1: home must be a path, absolute or relative to the configuration file (got 'a\\x00b')"),
    (
        "[receiver]\nprocesses = 0",
        "2: [receiver] processes must be between 1 and 64 (got 0)",
    ),
    ("[receiver]\nprocesses = 65", "2: [receiver] processes must be between 1 and 64 (got 65)"),
    ("[receiver]\nprocesses = true", "2: [receiver] processes must be a whole number between 1 and 64 (got true)"),
    ("[receiver]\nprocesses = 1.0", "2: [receiver] processes must be a whole number between 1 and 64 (got 1.0)"),
    ("[receiver]\nprocesses = '1'", "2: [receiver] processes must be a whole number between 1 and 64 (got '1')"),
    (
        "[queue]\ncheckpoint_interval_s = nan",
        "2: [queue] checkpoint_interval_s must be between 0.05 and 60 seconds (got nan)",
    ),
    (
        "[queue]\ncheckpoint_interval_s = inf",
        "2: [queue] checkpoint_interval_s must be between 0.05 and 60 seconds (got inf)",
    ),
    (
        "[transports.smtp]\ntls = 'must'",
        '2: [transports.smtp] tls must be "none", "may", "encrypt", "verify", "dane", "dane-only" or "mta-sts" (got \'must\')',
    ),
    ("[receiver]\nlisten = '127.0.0.1:25'", "2: [receiver] listen must be a list of strings (got '127.0.0.1:25')"),
    ("[receiver]\nlisten = []", "2: [receiver] listen must have at least one value (got [])"),
    (
        "[receiver]\nlisten = [\n'127.0.0.1:25',\n'localhost:25']",
        '4: [receiver] listen must be "IPv4 address:port" or "[IPv6 address]:port", with a port from 1 to 65535 '
        "(got 'localhost:25')",
    ),
    (
        "[receiver]\nlisten = ['127.0.0.1:25', '127.0.0.1:25']",
        "2: [receiver] listen must not have a value twice (got '127.0.0.1:25' twice)",
    ),
    ("[receiver]\nlisten = ['127.0.0.1']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:0']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:65536']", "port from 1 to 65535"),
    (
        "[receiver]\nlisten = ['::1:25']",
        '2: [receiver] listen must be "IPv4 address:port" or "[IPv6 address]:port", with a port from 1 to 65535 '
        "(got '::1:25')",
    ),
    (
        "[receiver]\nhostname = 'a b'",
        '2: [receiver] hostname must be a host name such as "mail.example.org", or an address such as '
        "\"[192.0.2.1]\" (got 'a b')",
    ),
    (
        "[receiver]\nhostname = '[1.2.3]'",
        '2: [receiver] hostname must be a host name such as "mail.example.org", or an address such as '
        "\"[192.0.2.1]\" (got '[1.2.3]')",
    ),
    (
        "[relay]\nnetworks = ['127.0.0.1/8']",
        '2: [relay] networks must be a network such as "192.0.2.0/24" or "2001:db8::/32", or one address (got '
        "'127.0.0.1/8'); did you mean '127.0.0.0/8'?",
    ),
    (
        "[relay]\nnetworks = ['localhost']",
        '2: [relay] networks must be a network such as "192.0.2.0/24" or "2001:db8::/32", or one address (got \'localhost\')',
    ),
    ("[relay]\nnetworks = ['0.0.0.0/0']", "an open relay"),
    (
        "[relay]\nnetworks = ['::/1', '8000::/1']",
        "2: [relay] networks must be your own networks only; together these are ::/0, all addresses: an open relay",
    ),
    (
        "[relay]\ndomains = ['*']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got '
        "'*'); \"*\" would be an open relay",
    ),
    (
        "[relay]\ndomains = ['.']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got \'.\')',
    ),
    (
        "[relay]\ndomains = ['a@example.org']",
        '2: [relay] domains must be a domain such as "example.org", or ".example.org" for all its subdomains (got '
        "'a@example.org')",
    ),
    (
        "[reports]\nbroker_url = 'amqp://x'",
        '2: [reports] broker_url must be a Redis address: "redis://host:port/0", "rediss://…" or '
        "\"redis+socket:///path\" (got 'amqp://x')",
    ),
    (
        "[reports]\nspark_master = 'mesos://x'",
        '2: [reports] spark_master must be a Spark master: "local[N]", "local[*]", "spark://host:port", "yarn" or '
        "\"k8s://…\" (got 'mesos://x')",
    ),
    (
        "[reports]\nzone = 'Moon/Base'",
        '2: [reports] zone must be a time zone such as "UTC" or "Europe/Vienna" (got \'Moon/Base\')',
    ),
    (
        "[reports]\nrecipients = ['nobody']",
        "2: [reports] recipients must be a mail address such as \"user@example.org\" (got 'nobody')",
    ),
    (
        "[reports]\nkeep = ['senders']",
        '2: [reports] keep must be "TABLE:DAYS", such as "senders:400" (got \'senders\')',
    ),
    (
        "[deliverer]\nnameservers = ['dns.example']",
        '2: [deliverer] nameservers must be "address", "IPv4 address:port" or "[IPv6 address]:port" of a name '
        "server (got 'dns.example')",
    ),
    ("[queue]\nretry_ladder_s = []", "2: [queue] retry_ladder_s must have 1 to 32 steps (got 0)"),
    (
        "[queue]\nretry_ladder_s = [0, 1]",
        "2: [queue] retry_ladder_s must have steps between 1 and 604800 seconds, which is 7 days (got [0, 1])",
    ),
    ("[queue]\nretry_ladder_s = [5, 5]", "2: [queue] retry_ladder_s must be strictly increasing (got [5, 5])"),
    ("[queue]\nretry_ladder_s = [1, 2.5]", "2: [queue] retry_ladder_s must be a list of whole numbers (got [1, 2.5])"),
    (
        "[queue]\nretry_ladder_s = [1, 999999999]",
        "2: [queue] retry_ladder_s must have steps between 1 and 604800 seconds, which is 7 days (got [1, 999999999])",
    ),
    (
        "[scheduler]\nminimal_backoff_time = 5000",
        "2: [scheduler] minimal_backoff_time must not be greater than maximal_backoff_time (got 5000 and 4000 seconds)",
    ),
    (
        "[transports.'Upper case']",
        "1: [transports] Upper case must be the name of a transport: a letter, then up to 31 of a-z, 0-9, _ and - "
        "(got 'Upper case')",
    ),
    (
        "[routes]\n'a b' = 'smtp'",
        '2: [routes] a b must be a pattern: "example.org", ".example.org" for all its subdomains, '
        '"user@example.org", or "*" for all others (got \'a b\')',
    ),
    (
        "[routes]\n'example.org' = 25",
        '2: [routes] example.org must be a string such as "smtp:example.org:25" (got 25)',
    ),
    ("[routes]\n'example.org' = 'smtp:127.0.0.1'", "write an address in brackets: [127.0.0.1]"),
    (
        "[routes]\n'example.org' = 'smpt:a.example'",
        "2: [routes] example.org must name a transport that is defined (got 'smpt:a.example'); did you mean "
        "'smtp'? Defined: smtp, relay, bulk. To define another one, add [transports.smpt]",
    ),
    (
        "[routes]\n'example.org' = 'smtp'\n'Example.Org' = 'smtp'",
        "3: [routes] Example.Org must not be there twice; it is the same as 'example.org'",
    ),
    (
        "queue_directory = 'x'\nspool_directory = './x'",
        "2: spool_directory must be a directory of its own; 'x' is queue_directory already",
    ),
    (
        f"home = '{'x' * 90}'",
        "1: home makes the path of the sockets too long; set run_directory to a path of up to 80 bytes (got ",
    ),
    ("[receiver\nprocesses = 1", "1: not valid TOML: Expected ']' at the end of a table declaration (column 10)"),
    ("home = 'x'\n\nx = [1,", "3: not valid TOML: Invalid value (at the end of the file)"),
    ("[receiver]\n[relay]\n[receiver]", "3: not valid TOML: Cannot declare ('receiver',) twice (column 10)"),
    ("x = " + "[" * 5000, "waypost.toml: brackets are nested too deeply"),
]


@pytest.mark.parametrize(("text", "what"), FAULTS, ids=[text[:40].replace("\n", " ") for text, _ in FAULTS])
def test_a_fault_names_its_line_and_what_is_allowed(file: Path, text: str, what: str) -> None:
    assert what in fault(file, text)


def test_all_faults_are_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    told = fault(file, "[relay]\nnetwork = []\n\n[receiver]\nprocesses = 0\nlisten = ['x']\n").split("\n")
    assert [line.split(":")[1] for line in told] == ["2", "5", "6"]


def test_a_flood_of_faults_is_cut_short(file: Path) -> None:
    told = fault(file, "".join(f"x{number} = 1\n" for number in range(500))).split("\n")
    assert len(told) == 21
    assert told[-1] == "waypost.toml: and 480 more"


def test_a_long_wrong_value_is_not_printed_whole(file: Path) -> None:
    assert len(fault(file, f"[receiver]\nlisten = '{'x' * 100_000}'")) < 200


def test_what_cannot_be_read_says_so(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(file)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(file.parent)
    file.write_bytes(b"home = 'x'\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"waypost.toml:2: the line is not UTF-8"):
        load(file)
    file.write_bytes(b"#" * (5 << 20))
    with pytest.raises(ConfigError, match="larger than 4194304 bytes"):
        load(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(lines=st.permutations(ISSUE_EXAMPLE.split("\n")), extra=st.text(max_size=20), at=st.integers(0, 14))
def test_whatever_the_file_says_the_answer_is_settings_or_a_config_error(
    file: Path, lines: list[str], extra: str, at: int
) -> None:
    lines.insert(at, extra)
    file.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        load(file)
        told = str(file)
    except ConfigError as error:
        told = str(error)
    assert told.startswith(str(file))


# The certificate


def certificate(name: str) -> tuple[bytes, bytes, bytes]:
    """A self-signed certificate with its key, in the clear and encrypted."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, start, start + datetime.timedelta(days=36_500))
    ).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return (
        signed.public_bytes(pem),
        key.private_bytes(pem, form, serialization.NoEncryption()),
        key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret")),
    )


def test_a_certificate_is_found_beside_the_file_and_its_path_made_absolute(file: Path) -> None:
    chain, key, _ = certificate("mail.example.org")
    (file.parent / "chain.pem").write_bytes(chain)
    (file.parent / "key.pem").write_bytes(key)
    file.write_text("[receiver]\ntls_certificate = 'chain.pem'\ntls_key = 'key.pem'\n")
    receiver = load(file).receiver
    assert (receiver.tls_certificate, receiver.tls_key) == (f"{file.parent}/chain.pem", f"{file.parent}/key.pem")


def test_a_submission_listener_is_strict_where_the_file_says_nothing(file: Path) -> None:
    file.write_text(
        "[receiver]\ntls_certificate = 'c.pem'\ntls_key = 'k.pem'\n[[listener]]\naddress = '0.0.0.0:465'\n"
        "tls = 'implicit'\npurpose = 'submission'\n[[listener]]\naddress = '[::]:25'\n[[listener]]\n"
        "address = '0.0.0.0:587'\npurpose = 'submission'\nauth = 'offered'\n"
        "[[certificate]]\nnames = ['*.example.org']\ncertificate = 'd.pem'\nkey = 'l.pem'\n"
    )
    settings = load(file, look_at_certificate=False)
    assert [(each.address, each.purpose, each.tls, each.auth) for each in settings.all_listeners] == [
        ("0.0.0.0:465", "submission", "implicit", "required"),
        ("[::]:25", "mx", "starttls", "off"),
        ("0.0.0.0:587", "submission", "required", "offered"),
    ]
    assert [pair.names for pair in settings.certificate_pairs] == [(), ("*.example.org",)]
    assert settings.certificate_pairs[1].certificate == f"{file.parent}/d.pem"


def test_the_short_form_is_an_mx_listener_beside_others(file: Path) -> None:
    file.write_text("[receiver]\nlisten = ['127.0.0.1:26']\n[[listener]]\naddress = '127.0.0.1:27'\n")
    assert [each.address for each in load(file).all_listeners] == ["127.0.0.1:26", "127.0.0.1:27"]


def test_a_certificate_that_would_fail_later_fails_at_the_start(file: Path) -> None:
    chain, key, encrypted = certificate("mail.example.org")
    for name, data in (("chain.pem", chain), ("key.pem", key), ("encrypted.pem", encrypted)):
        (file.parent / name).write_bytes(data)
    (file.parent / "other.pem").write_bytes(certificate("other.example.org")[1])
    (file.parent / "empty.pem").write_bytes(b"")

    def told(key_file: str, chain_file: str = "chain.pem") -> str:
        return fault(file, f"[receiver]\ntls_certificate = '{chain_file}'\ntls_key = '{key_file}'\n")

    assert "2: [receiver] tls_certificate is set but tls_key is missing; set both or neither" in told("")
    assert "3: [receiver] tls_key is set but tls_certificate is missing; set both or neither" in told("key.pem", "")
    assert "cannot be read: missing.pem: No such file" in told("missing.pem")
    assert "chain.pem and other.pem: the key does not belong to the certificate (KEY_VALUES_MISMATCH))" in told(
        "other.pem"
    )
    assert "the key not encrypted" in told("encrypted.pem")
    assert "must be a certificate and its key" in told("key.pem", "empty.pem")
    assert "3: [receiver] tls_key cannot be read: missing.pem" in told("missing.pem")
    assert "2: [receiver] tls_certificate cannot be read: missing.pem" in told("key.pem", "missing.pem")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_key_that_may_not_be_read_says_so(file: Path) -> None:
    chain, key, _ = certificate("mail.example.org")
    (file.parent / "chain.pem").write_bytes(chain)
    (file.parent / "key.pem").write_bytes(key)
    (file.parent / "key.pem").chmod(0)
    assert "Permission denied" in fault(file, "[receiver]\ntls_certificate = 'chain.pem'\ntls_key = 'key.pem'\n")


# The reference


def test_the_reference_is_made_from_the_settings() -> None:
    command = [sys.executable, "-m", "mailcore.config.reference"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs/configuration.md").read_text() == made
