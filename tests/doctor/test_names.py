"""Names and reverse names, asked of a BIND with zones of ours, of a server that is slow, and of one that says nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.query
import pytest

from mailcore.doctor import names, resolver, reverse, validation
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host
from tests.doctor.sample_host import found, sample_host
from tests.routing.nameserver import NameServer, name_server

ZONES = {
    "example.org": """
@ IN MX 10 mail.example.org.
mail IN A 203.0.113.5
mail IN AAAA 2001:db8::5
other IN A 203.0.113.7
alone IN TXT "no address"
""",
    "elsewhere.example": "@ IN MX 10 mx.elsewhere.example.\nmx IN A 198.51.100.1\n",
    "bare.example": "@ IN A 198.51.100.2\n",
    "empty.example": "",
    "broken.example": "this is no record at all\n",
    "113.0.203.in-addr.arpa": """
5 IN PTR mail.example.org.
6 IN PTR mail.example.org.
7 IN PTR other.example.org.
""",
    "8.b.d.0.1.0.0.2.ip6.arpa": "5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0 IN PTR mail.example.org.\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with name_server(tmp_path_factory.mktemp("named"), ZONES) as server:
        yield server


def named(directory: Path, server: str, helo: str = "mail.example.org", more: str = "", **others: object) -> Host:
    text = f'[deliverer]\nnameservers = ["{server}"]\nhostname = "{helo}"\n[receiver]\nhostname = "{helo}"\n{more}'
    return sample_host(directory, text, **others)


@contextlib.contextmanager
def datagrams(delay_s: float | None, questions: list[bytes] | None = None, *, flags: int = 0) -> Iterator[str]:
    """A name server that has no records and answers after so long; None: never. ``questions`` takes what it was asked."""
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        asked.bind(("127.0.0.1", 0))

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    data, client = asked.recvfrom(4096)
                    if questions is not None:
                        questions.append(data)
                    if delay_s is not None:
                        time.sleep(delay_s)
                        answer = dns.message.make_response(dns.message.from_wire(data))
                        answer.flags |= flags
                        asked.sendto(answer.to_wire(), client)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{asked.getsockname()[1]}"


# -- name servers


def test_all_is_well(server: NameServer, tmp_path: Path) -> None:
    findings = list(names.look(named(tmp_path, server.text, more='[relay]\ndomains = ["example.org"]\n')))
    assert {each.state for each in findings} == {State.GOOD}
    own = found(findings, "mail.example.org (HELO and greeting name)")
    assert own.figures["addresses"] == ["203.0.113.5", "2001:db8::5"]
    assert found(findings, "example.org ([relay] domains)").figures == {"mx": ["mail.example.org"], "is_ours": True}


def test_a_server_that_says_nothing_is_a_finding_and_no_hang(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "TRY_S", 0.1)
    with datagrams(None) as silent:
        findings = list(names.look(named(tmp_path, f'{silent}", "{server.text}')))
        assert "no answer within 0.1 s" in found(findings, silent.rpartition(":")[2]).found
        assert found(findings, "mail.example.org").state is State.GOOD, "the other one knows"
        findings = list(names.look(named(tmp_path, silent)))
        assert found(findings, "name servers").state is State.BAD


def test_nobody_waits_twice_for_a_silent_server(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "TRY_S", 0.1)
    questions: list[bytes] = []
    with datagrams(None, questions) as silent:
        domains = '[relay]\ndomains = ["example.org", "bare.example", "elsewhere.example"]\n'
        host = named(tmp_path, f'{silent}", "{server.text}', more=domains, sources=("203.0.113.5",))
        assert found(names.look(host), "bare.example").state is State.GOOD
        assert next(iter(reverse.look(host))).state is State.GOOD
    assert len(questions) == resolver.TRIES


def test_dead_name_servers_cost_five_seconds_at_most(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time each query is given, because a busy machine says nothing about it."""
    waited: list[tuple[str, float]] = []
    now = [1_000.0]
    lock = threading.Lock()

    def silent(question: object, address: str, allowed_s: float, *_: object, **__: object) -> None:
        with lock:
            waited.append((threading.current_thread().name, allowed_s))
        raise dns.exception.Timeout

    monkeypatch.setattr(dns.query, "udp", silent)
    monkeypatch.setattr("mailcore.doctor.resolver.time.monotonic", lambda: now[0])
    domains = ", ".join(f'"d{n}.example"' for n in range(10))
    servers = '", "'.join(f"192.0.2.{n}" for n in range(1, 5))
    host = named(tmp_path, servers, more=f"[relay]\ndomains = [{domains}]\n", sources=("203.0.113.5", "2001:db8::5"))
    list(names.look(host))
    assert {each.state for each in reverse.look(host)} == {State.NOT_KNOWN}
    assert len(waited) == 4 * resolver.TRIES, "each server is asked in a thread of its own, and no more than once"
    assert len({thread for thread, _ in waited}) == 4
    assert resolver.TRIES * resolver.TRY_S <= resolver.ALL_S < 5
    now[0] += 4.0  # the servers have become slow
    host.lookups._first_answers = dict.fromkeys(host.lookups.servers, resolver.Answer("NOERROR", (), 0.1))
    waited.clear()
    list(names.look(host))
    assert max(allowed_s for _, allowed_s in waited) <= resolver.ALL_S - 4.0
    now[0] += 1.0
    waited.clear()
    list(reverse.look(host))
    assert waited == [], "no time is left"


def test_a_slow_server_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "SLOW_S", 0.05)
    with datagrams(0.1) as slow:
        finding = found(names.look(named(tmp_path, slow)), "name server 127")
    assert finding.state is State.WARN
    assert "each new destination waits as long" in finding.found
    assert finding.figures["took_s"] > 0.05


def test_a_server_that_refuses_is_a_finding(server: NameServer, tmp_path: Path) -> None:
    findings = list(names.look(named(tmp_path, server.text, "mail.unknown.test")))
    assert "REFUSED" in found(findings, "name server").found
    assert found(findings, "mail.unknown.test").state is State.NOT_KNOWN


def test_there_is_no_server_at_all(tmp_path: Path) -> None:
    empty = tmp_path / "resolv.conf"
    empty.write_text("search example.org\n")
    finding = found(names.look(sample_host(tmp_path, resolv_conf=empty)), "name servers")
    assert finding.state is State.BAD


def test_the_servers_are_those_of_resolv_conf(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("nameserver 192.0.2.53\nnameserver 2001:db8::53\n")
    assert sample_host(tmp_path, resolv_conf=file).lookups.servers == [("192.0.2.53", 53), ("2001:db8::53", 53)]


# -- our names


@pytest.mark.parametrize(
    ("helo", "words"),
    [
        ("alone.example.org", "has no address in DNS"),
        ("gone.example.org", "has no address in DNS"),
        ("mail", "not a fully qualified domain name"),
        ("[203.0.113.5]", "is an address"),
    ],
)
def test_a_name_sites_refuse(server: NameServer, tmp_path: Path, helo: str, words: str) -> None:
    finding = found(names.look(named(tmp_path, server.text, helo)), f"{helo} (")
    assert finding.state is State.WARN
    assert words in finding.found
    assert finding.remedy


def test_two_names_are_looked_at_apart(server: NameServer, tmp_path: Path) -> None:
    deliverer = f'[deliverer]\nnameservers = ["{server.text}"]\nhostname = "mail.example.org"\n'
    text = f'{deliverer}[receiver]\nhostname = "gone.example.org"\n'
    findings = list(names.look(sample_host(tmp_path, text)))
    assert found(findings, "mail.example.org (HELO name)").state is State.GOOD
    assert found(findings, "gone.example.org (greeting name)").state is State.WARN


@pytest.mark.parametrize(
    ("domain", "state", "words"),
    [
        ("elsewhere.example", State.GOOD, "none of them is this host"),
        ("bare.example", State.GOOD, "no MX record, but an address"),
        ("empty.example", State.WARN, "no MX and no address record"),
        ("broken.example", State.NOT_KNOWN, "SERVFAIL"),
    ],
)
def test_a_domain_we_take_mail_for(server: NameServer, tmp_path: Path, domain: str, state: State, words: str) -> None:
    findings = names.look(named(tmp_path, server.text, more=f'[relay]\ndomains = ["{domain}"]\n'))
    finding = found(findings, f"{domain} (")
    assert finding.state is state
    assert words in finding.found


# -- reverse names


def back(server: NameServer, directory: Path, address: str, helo: str = "mail.example.org") -> tuple[State, str, str]:
    (finding,) = reverse.look(named(directory, server.text, helo, sources=(address,)))
    return finding.state, finding.found, finding.remedy


@pytest.mark.parametrize("address", ["203.0.113.5", "2001:db8::5"])
def test_the_reverse_name_is_ours(server: NameServer, tmp_path: Path, address: str) -> None:
    assert back(server, tmp_path, address)[0] is State.GOOD


def test_there_is_no_reverse_name(server: NameServer, tmp_path: Path) -> None:
    state, words, remedy = back(server, tmp_path, "203.0.113.9")
    assert (state, "no PTR record" in words) == (State.WARN, True)
    assert "set its PTR record to mail.example.org" in remedy


def test_the_reverse_name_has_another_address(server: NameServer, tmp_path: Path) -> None:
    state, words, remedy = back(server, tmp_path, "203.0.113.6")
    assert (state, "does not resolve to this address" in words) == (State.WARN, True)
    assert "Add the A record 203.0.113.6 for mail.example.org" in remedy


def test_the_reverse_name_is_not_what_we_call_ourselves(server: NameServer, tmp_path: Path) -> None:
    state, words, remedy = back(server, tmp_path, "203.0.113.7")
    assert (state, "other.example.org, but Waypost sends mail.example.org in EHLO" in words) == (State.WARN, True)
    assert 'hostname = "other.example.org"' in remedy


def test_nobody_knows_the_reverse_name(server: NameServer, tmp_path: Path) -> None:
    assert back(server, tmp_path, "198.51.100.1")[0] is State.NOT_KNOWN


def test_a_private_address_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reverse, "sources", lambda: ("10.0.0.5",))
    (finding,) = reverse.look(sample_host(tmp_path))
    assert finding.state is State.NOT_KNOWN
    assert "private" in finding.found


def test_the_kernel_names_our_addresses() -> None:
    for address in reverse.sources():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as mine:
            mine.bind((address, 0))  # it is an address of this host


# -- validation, for DANE

DANE = '[tls_policy."example.org"]\nlevel = "dane"\n'
TRANSPORT = '[transports.smtp]\ntls = "dane-only"\n'


@pytest.mark.parametrize("more", [DANE, TRANSPORT])
def test_a_server_that_does_not_validate_is_bad_with_dane(tmp_path: Path, more: str) -> None:
    with datagrams(0.0) as plain, datagrams(0.0, flags=dns.flags.AD) as validating:
        finding = found(names.look(named(tmp_path, plain, more=more)), "DNSSEC of 127.0.0.1")
        assert (finding.state, "no AD bit" in finding.found) == (State.BAD, True)
        assert finding.found.endswith("([tls_policy] example.org)" if more == DANE else "([transports.smtp])")
        assert "validating resolver" in finding.remedy
        assert found(names.look(named(tmp_path, validating, more=more)), "DNSSEC").state is State.GOOD
        assert not any("DNSSEC" in each.what for each in names.look(named(tmp_path, plain))), "no level needs it"


def test_with_dane_a_name_server_of_another_host_is_bad_if_there_is_none_here(tmp_path: Path) -> None:
    resolv_conf = tmp_path / "resolv.conf"
    resolv_conf.write_text("nameserver 192.0.2.53\n")
    findings = list(validation.look(sample_host(tmp_path, DANE, resolv_conf=resolv_conf)))
    assert [(each.state, each.found) for each in findings] == [
        (
            State.BAD,
            "no name server is on this host, so dane is as may, and dane-only defers ([tls_policy] example.org)",
        )
    ]


def test_with_dane_a_silent_name_server_here_is_bad_though_another_answers(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host is not asked for hosts with DANE."""
    monkeypatch.setattr(resolver, "TRY_S", 0.1)
    with datagrams(None) as silent:
        finding = found(names.look(named(tmp_path, f'{silent}", "{server.text}', more=DANE)), "DNSSEC of 127.0.0.1")
        assert (finding.state, "does not answer" in finding.found) == (State.BAD, True)
