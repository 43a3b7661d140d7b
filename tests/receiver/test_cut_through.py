"""What a receiver offers to be passed on, that each offer ends once, and what the client hears."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import pytest

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.frames import Fate, Offer, Offered
from mailcore.receiver.cut_through import REPLY_OCTETS_MAX, CutThrough, passed_on_reply
from tests.lookup.sample_messages import envelope

HOSTILE = "250 ok\r\n250 2.0.0 forged\x1b[31m \u202e" + 2_000 * "\u00e4"


@dataclass
class Link:
    """A manager that reads, or not."""

    is_open: bool = True
    offers: list[Offer] = field(default_factory=list)

    def offer(self, frame: Offer) -> None:
        self.offers.append(frame)


def inline(**fields: Any) -> Envelope:
    return envelope(**({"data": DataPlace.INLINE} | fields))


def rcpt(*options: tuple[str, str]) -> tuple[Recipient, ...]:
    return (Recipient(0, "a@example.org", options=options),)


@pytest.mark.parametrize(
    ("fields", "is_taken"),
    [
        ({}, True),
        ({"recipients": rcpt(("NOTIFY", "FAILURE,DELAY"))}, True),
        ({"recipients": rcpt(("NOTIFY", "NEVER"))}, True),
        ({"options": (("REQUIRETLS", ""), ("ENVID", "x"))}, True),
        ({"recipients": rcpt(("NOTIFY", "SUCCESS,FAILURE"))}, False),
        ({"options": (("BY", "120;R"),)}, False),
        ({"data": DataPlace.SPOOL}, False),
        ({"held_because": "a milter"}, False),
        ({"not_before": 1.0}, False),
        ({"recipients": ()}, False),
    ],
)
def test_a_message_that_must_wait_or_may_owe_a_report_is_not_offered(fields: dict[str, Any], is_taken: bool) -> None:
    assert CutThrough(Link()).takes(inline(**fields), ()) == is_taken


def test_nothing_is_offered_to_a_manager_that_does_not_read_and_no_list_beyond_a_record() -> None:
    assert not CutThrough(Link(is_open=False)).takes(inline(), ())
    assert not CutThrough(Link()).takes(inline(), rcpt())


def test_each_offer_ends_once() -> None:
    link = Link()
    cut_through = CutThrough(link)
    ended: list[tuple[str, Fate, str]] = []

    def end(name: str, fate: Fate, reply: str) -> None:
        ended.append((name, fate, reply))

    for name in "abc":
        cut_through.offer(inline(), b"data", functools.partial(end, name))
    first, _, _ = link.offers
    cut_through.answered(Offered(first.number, Fate.REFUSED))
    cut_through.answered(Offered(first.number, Fate.PASSED_ON, "again"))
    cut_through.lost()
    cut_through.lost()
    cut_through.answered(Offered(link.offers[1].number, Fate.PASSED_ON, "late"))
    assert ended == [("a", Fate.REFUSED, ""), ("b", Fate.UNCERTAIN, ""), ("c", Fate.UNCERTAIN, "")]


def test_the_words_of_a_next_hop_stay_on_one_line_of_a_reply() -> None:
    reply = passed_on_reply("1QUEUEID", HOSTILE)
    assert reply.startswith(b"250 2.0.0 Ok: passed on as 1QUEUEID: 250 ok??250 2.0.0 forged?[31m ??")
    assert len(reply) <= REPLY_OCTETS_MAX
    assert all(0x20 <= octet < 0x7F for octet in reply)
