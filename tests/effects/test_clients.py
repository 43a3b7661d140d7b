"""Which clients would be refused after a change, of messages that were accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.config.load import load_text
from mailcore.config.settings import Settings
from mailcore.effects.arrivals import Arrival
from mailcore.effects.clients import CLIENTS_MAX, ClientsCompared

MINE, ELSEWHERE = "a@mine.example", "a@elsewhere.example"
MX, SUBMISSION = "127.0.0.1:20025", "127.0.0.1:20587"
BOTH = f"""
[receiver]
listen = ["{MX}"]
tls_certificate = "{{certificate}}"
tls_key = "{{certificate}}"
[relay]
networks = ["192.0.2.0/24"]
domains = ["mine.example"]
[[listener]]
address = "{SUBMISSION}"
purpose = "submission"
"""


def settings(directory: Path, text: str) -> Settings:
    return load_text(directory / "waypost.toml", f'home = "{directory}/home"\n' + text.format(certificate="c.pem"))


def arrival(*recipients: str, address: str = "192.0.2.1", **more: Any) -> Arrival:
    made = Arrival(1.0, address, "", "", "s@client.example", 100, recipients, True)
    return made._replace(**more)


def refused(old: Settings, new: Settings, *arrivals: Arrival) -> list[tuple[str, bool, int]]:
    compared = ClientsCompared(old, new)
    for each in arrivals:
        compared.judge(each)
    return [(each.reason, each.certain, each.messages) for each in compared.clients()[0]]


def test_only_what_is_accepted_now_and_refused_then_counts(tmp_path: Path) -> None:
    old = settings(tmp_path, BOTH)
    new = settings(tmp_path, BOTH.replace('"192.0.2.0/24"', ""))
    compared = ClientsCompared(old, new)
    for each in (
        arrival(ELSEWHERE),
        arrival(MINE),
        arrival(ELSEWHERE, address="203.0.113.1"),
        arrival(ELSEWHERE, login="u", tls="x"),
    ):
        compared.judge(each)
    (client,), more = compared.clients()
    assert (client.client_address, client.example, client.messages, client.certain) == ("192.0.2.1", ELSEWHERE, 1, True)
    assert (compared.examined, compared.unexplained, more) == (
        4,
        1,
        0,
    )  # one was accepted by a rule that is not known here


@pytest.mark.parametrize(
    ("change", "message", "expected"),
    [
        (("purpose = ", 'tls = "starttls"\npurpose = '), arrival(MINE), []),
        (
            (f'listen = ["{MX}"]', 'listen = ["127.0.0.1:20026"]'),
            arrival(MINE, address="203.0.113.1"),
            [(f"nothing listens on {MX}", True, 1)],
        ),
        (
            ('purpose = "submission"', 'purpose = "mx"'),
            arrival(ELSEWHERE, login="u", tls="TLSv1.3 x", address="203.0.113.1"),
            [("no login is offered", True, 1)],
        ),
        (
            ("[relay]", "message_size_limit = 2048\n[relay]"),
            arrival(MINE, size_bytes=5000),
            [("the message is larger than 2048 bytes", True, 1)],
        ),
    ],
)  # fmt: skip
def test_each_reason(tmp_path: Path, change: tuple[str, str], message: Arrival, expected: list[Any]) -> None:
    assert refused(settings(tmp_path, BOTH), settings(tmp_path, BOTH.replace(*change)), message) == expected


def test_where_the_address_decides_and_is_not_known_the_client_is_refused_perhaps(tmp_path: Path) -> None:
    two = BOTH.replace(f'listen = ["{MX}"]', f'listen = ["{MX}", "127.0.0.1:20026"]')
    message = arrival(MINE, address="203.0.113.1")
    assert refused(settings(tmp_path, two), settings(tmp_path, BOTH), message, message) == [
        ("nothing listens on 127.0.0.1:20026", False, 2)
    ]


def test_many_clients_are_counted_in_bounded_memory(tmp_path: Path) -> None:
    compared = ClientsCompared(settings(tmp_path, BOTH), settings(tmp_path, BOTH.replace('"mine.example"', "")))
    for number in range(CLIENTS_MAX + 5):
        compared.judge(arrival(MINE, address=f"203.{number >> 16}.{number >> 8 & 255}.{number & 255}"))
    clients, more = compared.clients()
    assert len(clients) + more == CLIENTS_MAX + 5
