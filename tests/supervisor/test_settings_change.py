"""What a changed configuration concerns: compared with what the source of each process reads."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.export import Export
from mailcore.config.load import load_text
from mailcore.config.settings import DIRECTORIES, SECTIONS, Settings
from mailcore.supervisor import settings_change
from mailcore.supervisor.settings_change import ROLES, changed_keys, concerned, not_while_running
from tests.supervisor.settings_used import read_by
from tests.test_tidy import ROOT

PLACES = {"home", *DIRECTORIES}


def moved_to(settings: Settings, name: str) -> Settings:
    changes: dict[str, Any] = {name: Path("/elsewhere")}
    return replace(settings, **changes)


def read(text: str = "") -> Settings:
    return load_text(Path("/etc/waypost/waypost.toml"), text)


def test_every_field_that_a_process_reads_is_in_the_table() -> None:
    """A process that reads a setting and does not start again would keep the old value without a sign."""
    table = settings_change._READ_BY
    missing = {role: sorted(field for field in read_by(role) - PLACES if role not in table[field]) for role in ROLES}
    assert missing == {role: [] for role in ROLES}
    assert table.keys() == {field.name for field in dataclasses.fields(Settings)} - PLACES
    assert SECTIONS.keys() <= table.keys()


@pytest.mark.parametrize(
    ("text", "keys", "roles"),
    [
        ("", [], set()),
        ("[relay]\ndomains = []", [], set()),
        ("[relay]\ndomains = ['a.example']", ["[relay] domains"], {"receiver", "manager", "control"}),
        ('[routes]\n"a.example" = "smtp:b.example"', ["[routes] a.example"], {"manager", "control"}),
        ("[scheduler]\nminimal_backoff_time = 301.0", ["[scheduler] minimal_backoff_time"], {"manager", "control"}),
        ("[scheduler]\nminimal_backoff_time = 300.0", [], {"manager"}),  # where the value comes from is shown
        (
            "[transports.smtp]\nprotocol = 'smtp'\ntls = 'none'",
            ["[transports.smtp] tls"],
            {"manager", "control", "deliverer"},
        ),
        ("[transports.smtp]\ncut_through = true", ["[transports.smtp] cut_through"], {*ROLES} - {"exporter"}),
        ("[transports.new]", ["[transports] new"], {"manager", "control", "deliverer"}),
        ("[tls]\nsts_timeout_s = 7.0", ["[tls] sts_timeout_s"], {"control", "deliverer"}),
        ("[portal]\nlisten = '127.0.0.1:1'", ["[portal] listen"], set()),
        ("[supervisor]\nsilent_s = 61.0", ["[supervisor] silent_s"], set()),
        (
            "[receiver]\ntls_certificate = '/c.pem'\ntls_key = '/k.pem'",
            ["[receiver] tls_certificate", "[receiver] tls_key"],
            {"receiver", "control"},
        ),
        ("[receiver]\nhostname = 'mx.example'", ["[receiver] hostname"], {*ROLES}),
        ("[[listener]]\naddress = '127.0.0.1:26'", ["[receiver] listen", "[[listener]]"], {*ROLES}),
    ],
)
def test_what_changed_and_whom_it_concerns(text: str, keys: list[str], roles: set[str]) -> None:
    old, new = read(), read(text)
    assert [each.key for each in changed_keys(old, new)] == keys
    assert concerned(old, new) == concerned(new, old) == roles


def test_receivers_that_ask_about_recipients_use_the_routes() -> None:
    asking = "[recipients]\nnext_hop_domains = ['a.example']\n[relay]\ndomains = ['a.example']\n"
    old, new = read(asking), read(asking + '[routes]\n"a.example" = "smtp:b.example"')
    assert "receiver" in concerned(old, new)


def test_what_needs_a_restart_is_named() -> None:
    old = read()
    assert not_while_running(old, old, sockets_are_given=True) == []
    for name in sorted(PLACES):
        (sentence,) = not_while_running(old, moved_to(old, name), sockets_are_given=False)
        assert sentence.startswith(f"{name} can't be changed")
    without = replace(old, export=Export(enabled=not old.export.enabled))
    assert "[export] enabled" in not_while_running(old, without, sockets_are_given=False)[0]
    moved = read("[receiver]\nlisten = ['127.0.0.1:26']")
    assert not_while_running(old, moved, sockets_are_given=False) == []
    (words,) = not_while_running(old, moved, sockets_are_given=True)
    assert "systemd has the sockets" in words
    assert "run waypost setup" in words


def test_no_process_but_receivers_and_control_reads_the_certificate_of_receiver() -> None:
    """It is changed without a restart of the others, which read the section for other keys."""
    rooms = (
        "manager",
        "deliverer",
        "events",
        "queue",
        "routing",
        "scheduler",
        "bounce",
        "dkim",
        "tls",
        "traces",
        "tlsrpt",
    )
    files = [path for room in rooms for path in (ROOT / "mailcore" / room).rglob("*.py")]
    found = [
        str(path) for path in files if re.search(r"\b(tls_certificate|tls_key|certificate_pairs)\b", path.read_text())
    ]
    assert found == []
