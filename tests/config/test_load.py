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
    file.write_text(
        f'[queue]\nundo_time_s = 61\n[receiver]\nerror_limit = 7\n[relay]\ndomains = ["a.example"]\n'
        f'[deliverer]\nport = 26\n[control]\ngroup = "{group}"\n[export]\nkeep_days = 9\n[supervisor]\nsilent_s = 9\n'
        f"[portal]\nprocesses = 2\n[reports]\nretries = 1\n[scheduler]\ntransport_retry_time = 9\n"
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
    ("proceses = 1\n", "waypost.toml:1: proceses is unknown; allowed: home"),
    (
        "[receiver]\nproceses = 1",
        "waypost.toml:2: [receiver] proceses is unknown; did you mean 'processes'? allowed: listen",
    ),
    (
        "[reciever]\nprocesses = 1",
        "waypost.toml:1: reciever is unknown; did you mean 'receiver'? allowed: home, queue_dir",
    ),
    ("listen = []", "waypost.toml:1: listen is unknown; it belongs in [receiver] or [portal]; allowed: home"),
    (
        "processes = 2",
        "waypost.toml:1: processes is unknown; it belongs in [receiver] or [deliverer] or [portal]; allowed",
    ),
    ("[relay]\nhome = 'x'", "waypost.toml:2: [relay] home is unknown; it stands at the top of the file"),
    ("\n[transports.smtp]\nlimit = 1", "waypost.toml:3: [transports.smtp] limit is unknown; "),
    ("receiver = 3", "waypost.toml:1: receiver = 3 is wrong; allowed: a section [receiver]"),
    ("[transports]\nsmtp = 3", "waypost.toml:2: [transports] smtp = 3 is wrong; allowed: a section [transports.smtp]"),
    ("[[receiver]]\nprocesses = 1", "waypost.toml:1: receiver = [{'processes': 1}] is wrong; allowed: a section"),
    ("home = 3", "waypost.toml:1: home = 3 is wrong; allowed: a string"),
    ("home = ''", "waypost.toml:1: home '' is no directory; allowed: a path"),
    ("home = 'a\\b'\nhome = 'c'", "waypost.toml:2: is not TOML: Cannot overwrite a value"),
    ('home = "a\\u0000b"', "waypost.toml:1: home 'a\\x00b' is no directory"),
    (
        "[receiver]\nprocesses = 0",
        "waypost.toml:2: [receiver] processes = 0 is wrong; allowed: a whole number from 1 to 64",
    ),
    ("[receiver]\nprocesses = 65", "allowed: a whole number from 1 to 64"),
    ("[receiver]\nprocesses = true", "processes = True is wrong; allowed: a whole number"),
    ("[receiver]\nprocesses = 1.0", "processes = 1.0 is wrong; allowed: a whole number"),
    ("[receiver]\nprocesses = '1'", "processes = '1' is wrong; allowed: a whole number"),
    ("[queue]\ncheckpoint_interval_s = nan", "= nan is wrong; allowed: a number from 0.05 to 60"),
    ("[queue]\ncheckpoint_interval_s = inf", "= inf is wrong; allowed: a number from 0.05 to 60"),
    (
        "[transports.smtp]\ntls = 'must'",
        '2: [transports.smtp] tls = \'must\' is wrong; allowed: "none" or "may" or "encrypt"',
    ),
    ("[receiver]\nlisten = '127.0.0.1:25'", "listen = '127.0.0.1:25' is wrong; allowed: a list of strings"),
    ("[receiver]\nlisten = []", "2: [receiver] listen the list is empty; allowed: one or more"),
    (
        "[receiver]\nlisten = [\n'127.0.0.1:25',\n'localhost:25']",
        "waypost.toml:4: [receiver] listen 'localhost:25' is no",
    ),
    ("[receiver]\nlisten = ['127.0.0.1:25', '127.0.0.1:25']", "stands there twice"),
    ("[receiver]\nlisten = ['127.0.0.1']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:0']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['127.0.0.1:65536']", "port from 1 to 65535"),
    ("[receiver]\nlisten = ['::1:25']", "is no address with a port"),
    ("[receiver]\nhostname = 'a b'", "hostname 'a b' is no host name; allowed: \"mail.example.org\""),
    ("[receiver]\nhostname = '[1.2.3]'", "is no host name"),
    ("[relay]\nnetworks = ['127.0.0.1/8']", "no network; did you mean '127.0.0.0/8'? allowed"),
    ("[relay]\nnetworks = ['localhost']", 'is no network; allowed: "192.0.2.0/24"'),
    ("[relay]\nnetworks = ['0.0.0.0/0']", "an open relay"),
    ("[relay]\nnetworks = ['::/1', '8000::/1']", "together these are ::/0, the whole world"),
    ("[relay]\ndomains = ['*']", "everything would be an open relay"),
    ("[relay]\ndomains = ['.']", "is no domain name"),
    ("[relay]\ndomains = ['a@example.org']", "is no domain name"),
    ("[reports]\nbroker_url = 'amqp://x'", "is no Redis; allowed"),
    ("[reports]\nspark_master = 'mesos://x'", "is no master of Spark; allowed"),
    ("[reports]\nzone = 'Moon/Base'", "is no time zone; allowed"),
    ("[reports]\nrecipients = ['nobody']", "is no address; allowed"),
    ("[reports]\nkeep = ['senders']", 'allowed: "TABLE:DAYS"'),
    ("[deliverer]\nnameservers = ['dns.example']", "'dns.example' is no name server; allowed"),
    ("[queue]\nretry_ladder_s = []", "is no ladder"),
    ("[queue]\nretry_ladder_s = [0, 1]", "is no ladder"),
    ("[queue]\nretry_ladder_s = [5, 5]", "each greater than the one before"),
    ("[queue]\nretry_ladder_s = [1, 2.5]", "allowed: a list of whole numbers"),
    ("[queue]\nretry_ladder_s = [1, 999999999]", "from 1 to 604800"),
    ("[scheduler]\nminimal_backoff_time = 5000", "allowed: minimal_backoff_time <= maximal_backoff_time"),
    ("[transports.'Upper case']", "1: [transports] Upper case 'Upper case' is no transport's name"),
    ("[routes]\n'a b' = 'smtp'", "2: [routes] a b 'a b' is no pattern; allowed: \"example.org\", "),
    (
        "[routes]\n'example.org' = 25",
        '2: [routes] example.org = 25 is wrong; allowed: a string like "smtp:example.org:25"',
    ),
    ("[routes]\n'example.org' = 'smtp:127.0.0.1'", "an address stands in brackets: [127.0.0.1]"),
    (
        "[routes]\n'example.org' = 'smpt:a.example'",
        "transport 'smpt' is not defined; did you mean 'smtp'? allowed: smtp, relay",
    ),
    ("[routes]\n'example.org' = 'smtp'\n'Example.Org' = 'smtp'", "3: [routes] Example.Org is 'example.org' again"),
    ("queue_directory = 'x'\nspool_directory = './x'", "2: spool_directory = "),
    (f"home = '{'x' * 90}'", "1: home makes the sockets' directory"),
    ("[receiver\nprocesses = 1", "waypost.toml:1: is not TOML: Expected ']'"),
    ("home = 'x'\n\nx = [1,", "waypost.toml:3: is not TOML: "),
    ("[receiver]\n[relay]\n[receiver]", "waypost.toml:3: is not TOML: Cannot declare ('receiver',) twice"),
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
    with pytest.raises(ConfigError, match=r"waypost.toml:2: is not UTF-8"):
        load(file)
    file.write_bytes(b"#" * (5 << 20))
    with pytest.raises(ConfigError, match="too big"):
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


def test_a_certificate_that_would_fail_later_fails_at_the_start(file: Path) -> None:
    chain, key, encrypted = certificate("mail.example.org")
    for name, data in (("chain.pem", chain), ("key.pem", key), ("encrypted.pem", encrypted)):
        (file.parent / name).write_bytes(data)
    (file.parent / "other.pem").write_bytes(certificate("other.example.org")[1])
    (file.parent / "empty.pem").write_bytes(b"")

    def told(key_file: str, chain_file: str = "chain.pem") -> str:
        return fault(file, f"[receiver]\ntls_certificate = '{chain_file}'\ntls_key = '{key_file}'\n")

    assert "2: [receiver] tls_certificate stands alone; allowed: both, or neither" in told("")
    assert "3: [receiver] tls_key stands alone" in told("key.pem", "")
    assert "'missing.pem' cannot be read: No such file" in told("missing.pem")
    assert "are no certificate with its key (KEY_VALUES_MISMATCH)" in told("other.pem")
    assert "the key not encrypted" in told("encrypted.pem")
    assert "are no certificate with its key" in told("key.pem", "empty.pem")
    assert "3: [receiver] tls_key 'missing.pem' cannot be read" in told("missing.pem")
    assert "2: [receiver] tls_certificate 'missing.pem' cannot be read" in told("key.pem", "missing.pem")


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
