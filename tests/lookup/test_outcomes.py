"""Outcomes by sender domain, and hosts in the clear: the same from the journal as from events, bounded, and of their time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.envelope import Status, Verdict
from mailcore.log.record import RecordType
from mailcore.lookup import outcomes
from mailcore.lookup.answers import MailOutcomes
from mailcore.lookup.outcomes import outcomes_since
from mailcore.lookup.tracing import Walk
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery
from tests.events.exported_lives import ExportedLives, unsynced

__all__ = ["unsynced"]

pytestmark = pytest.mark.usefixtures("unsynced")
TLS = "TLSv1.3 TLS_AES_256_GCM_SHA384"
FAILED, NONE = "may: sent in the clear: handshake failed", "may: sent in the clear: TLS not offered"


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[ExportedLives]:
    lives = ExportedLives(tmp_path)
    yield lives
    lives.close()


def deliver(
    lives: ExportedLives, domain: str, *statuses: Status, relay: str = "none", tls: str = "", level: str = ""
) -> None:
    verdicts = tuple(Verdict(number, status, "2.0.0", "said") for number, status in enumerate(statuses))
    delivery = Delivery(
        lives.ids.next(), 0, verdicts, lives.now, relay, tls, (0.0, 0.0, 0.1, 0.1), "smtp:x",
        sender_domain=domain, tls_level=level,
    )  # fmt: skip
    lives.say(RecordType.DELIVERY, delivery)


def counted(lives: ExportedLives, since: float, records_max: int = 1_000_000) -> MailOutcomes:
    found: MailOutcomes = lives.walked(Walk(outcomes_since(lives.browser, since, records_max, lives.archive)))
    return found


def test_recipients_that_ended_are_counted_by_sender_domain(lives: ExportedLives) -> None:
    began = lives.now
    deliver(lives, "old.example", Status.BOUNCED)
    lives.now += 100
    deliver(lives, "a.example", Status.DELIVERED, Status.BOUNCED, Status.DEFERRED, Status.EXPIRED, Status.DELETED)
    deliver(lives, "b.example", Status.DELIVERED)
    deliver(lives, "", Status.BOUNCED)
    deliver(lives, "c.example", Status.DEFERRED)
    found = counted(lives, began + 50)
    assert [(each.domain, each.ended, each.bounced) for each in found.senders] == [
        ("a.example", 3, 2),
        ("b.example", 1, 0),
    ]
    lives.export()
    lives.forget(JOURNAL)
    assert counted(lives, began + 50).senders == found.senders


def test_a_host_that_has_tls_and_got_mail_in_the_clear_is_named(lives: ExportedLives) -> None:
    began = lives.now
    for relay, tls, level in (
        ("failing[192.0.2.1]:25", "", FAILED),
        ("never[192.0.2.2]:25", "", NONE),
        ("changed[192.0.2.3]:25", TLS, "may"),
        ("changed[192.0.2.3]:25", "", NONE),
        ("good[192.0.2.4]:25", TLS, "may"),
        ("refused[192.0.2.5]:25", "", "encrypt: TLS not offered"),
        ("wanted[192.0.2.6]:25", "", "none"),
    ):
        deliver(lives, "a.example", Status.DELIVERED, relay=relay, tls=tls, level=level)
    found = counted(lives, began - 1)
    assert [(each.host, each.over_tls, each.failed, each.not_offered, each.reason) for each in found.hosts] == [
        ("changed[192.0.2.3]:25", 1, 0, 1, ""),
        ("failing[192.0.2.1]:25", 0, 1, 0, "handshake failed"),
    ]
    lives.export()
    lives.forget(JOURNAL)
    assert counted(lives, began - 1).hosts == found.hosts


def test_what_is_counted_is_bounded_and_what_is_left_out_is_said(
    lives: ExportedLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "DOMAINS_MAX", 5)
    monkeypatch.setattr(outcomes, "SHOWN_MAX", 3)
    for number in range(9):
        deliver(lives, f"d{number}.example", Status.BOUNCED)
    found = counted(lives, 0.0)
    assert (len(found.senders), found.senders_left_out, found.others_ended, found.others_bounced) == (3, 2, 4, 4)
    lives.now += 10
    deliver(lives, "new.example", Status.BOUNCED)
    assert counted(lives, 0.0, records_max=1).since >= lives.now - 10.0
