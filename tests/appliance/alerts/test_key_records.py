"""The DNS records of keys that sign mail, asked of a real name server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.alerts import key_records
from appliance.alerts.facts import KeyRecord, Unknown
from appliance.alerts.key_records import look_up
from tests.routing.nameserver import name_server

ZONE = """
good._domainkey.example.org. IN TXT "v=DKIM1; k=rsa; " "p=MIIB"
plain._domainkey.example.org. IN TXT "p=MIIB"
revoked._domainkey.example.org. IN TXT "v=DKIM1; p="
testing._domainkey.example.org. IN TXT "v=DKIM1; t=s : y; p=MIIB"
strict._domainkey.example.org. IN TXT "v=DKIM1; t=s; p=MIIB"
empty._domainkey.example.org. IN TXT "hello"
twice._domainkey.example.org. IN TXT "v=DKIM1; p=MIIB"
twice._domainkey.example.org. IN TXT "v=DKIM1; p=MIIC"
below.other._domainkey.example.org. IN TXT "p=MIIB"
"""
FAULTS = {
    "good": "",
    "plain": "",
    "strict": "",
    "revoked": "is revoked",
    "testing": "is marked as a test (t=y)",
    "empty": "has no key",
    "twice": "has several keys",
    "other": "is missing",
    "gone": "is missing",
}


def asking(settings: Any, *servers: str) -> None:
    deliverer = replace(settings.WAYPOST.deliverer, nameservers=servers)
    settings.WAYPOST = replace(settings.WAYPOST, deliverer=deliverer)


def test_what_other_servers_find(settings: Any, tmp_path: Path) -> None:
    names = {name: f"{name}._domainkey.example.org" for name in FAULTS}
    with name_server(tmp_path, {"org": ZONE}) as server:
        asking(settings, server.text)
        assert look_up(list(names.values())) == tuple(KeyRecord(names[name], fault) for name, fault in FAULTS.items())


def test_a_name_server_that_does_not_answer_is_unknown_and_not_asked_for_ever(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_records, "ONE_S", 0.2)
    monkeypatch.setattr(key_records, "ALL_S", 0.0)
    asking(settings, "127.0.0.1:9")
    first, second = look_up(["a.example", "b.example"])
    assert isinstance(first.fault, Unknown)
    assert isinstance(second.fault, Unknown)
    assert "too slow" in second.fault.why
