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
from tests.config.wrong_settings import FAULTS
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
        f"[traces]\nratio = 0.5\n[nodes]\ncommit_wait_s = 9\n[core]\nshards = 2\n"
        f'[clients]\nxclient_networks = ["192.0.2.1"]\n'
        f"[esmtp]\nhold_max_s = 9\n[lenient]\ndots = false\n"
        f'[rewriting]\nrecipient_delimiter = "+"\n[authenticity]\nevaluate = "mx"\n'
        f'[recipients]\nany_domains = ["b.example"]\n[dnsbl]\nsites = ["bad.example"]\n[greylist]\ndelay_s = 9\n'
        f'[alerts]\nclear_s = 9\n[oidc]\nsession_s = 999\n[tlsrpt]\nspread_s = 9\n[route_maps]\nroutes = ["transport"]\n'
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
