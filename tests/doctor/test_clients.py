"""The postmaster and the lists in the DNS, asked of a BIND with lists that work and lists that do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.doctor import clients
from mailcore.doctor.finding import State
from tests.doctor.sample_host import found, sample_host
from tests.routing.nameserver import NameServer, name_server

ZONES = {
    "good.example": "2.0.0.127 IN A 127.0.0.2\n",
    "closed.example": "* IN A 127.0.0.2\n",
    "refusing.example": "* IN A 127.255.255.254\n",
    "sold.example": "* IN A 192.0.2.1\n",
    "broken.example": "this is not a record at all\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with name_server(tmp_path_factory.mktemp("named"), ZONES) as server:
        yield server


def test_a_list_that_does_not_work_is_found(tmp_path: Path, server: NameServer) -> None:
    sites = ", ".join(f'"{domain}"' for domain in ZONES)
    text = f'[deliverer]\nnameservers = ["{server.text}"]\n[dnsbl]\nsites = [{sites}]\n'
    host = sample_host(tmp_path, text)
    findings = {each.what: each for each in clients.look(host)}
    assert {what: each.state for what, each in findings.items()} == {
        "postmaster": State.GOOD,
        "good.example": State.GOOD,
        "closed.example": State.WARN,
        "refusing.example": State.WARN,
        "sold.example": State.WARN,
        "broken.example": State.WARN,
    }
    assert findings["closed.example"].found.startswith("lists every client: it answered 127.0.0.2 for 127.0.0.1")
    assert findings["refusing.example"].found.startswith("refuses our queries: it answered 127.255.255.254")
    assert findings["broken.example"].found.startswith("answers SERVFAIL")


def test_without_lists_none_is_asked(tmp_path: Path) -> None:
    finding = found(clients.look(sample_host(tmp_path, "")), "lists in the DNS")
    assert finding.state is State.GOOD


def test_a_postmaster_who_gets_no_mail_is_found(tmp_path: Path) -> None:
    host = sample_host(tmp_path, '[receiver]\nhostname = "mx.example.net"\n[relay]\ndomains = ["example.org"]\n')
    finding = found(clients.look(host), "postmaster")
    assert finding.state is State.WARN
    assert finding.found.startswith("[clients] postmaster is not set")
    assert finding.remedy == "Set [clients] postmaster to an address that is read."
