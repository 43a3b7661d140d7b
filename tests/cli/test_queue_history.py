"""``waypost queue history`` and ``search``, for people and for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.log.record import RecordType
from mailcore.queue.records import Place, Replaced
from mailcore.terminal.times import shown
from tests.cli.running_control import Waypost
from tests.control.running_control import RunningControl
from tests.faults import OTHER_WORDS
from tests.lookup.recorded_lives import Life, RecordedLives

HOSTILE = "a\x1b[2J\u202e@example.org"
REPLY = "450 \x1b]0;owned\x07\r\nfake line"


class Past:
    """A message that was deferred, held by an operator, released and delivered; in lanes that control reads."""

    def __init__(self, running: RunningControl) -> None:
        self.recorded = RecordedLives(running.settings.queue_directory)
        self.recorded.lanes = running.lanes
        self.life: Life = self.recorded.arrive(
            [HOSTILE, "b@example.org"], sender=HOSTILE, message_id="<1@example.org>", client_address="192.0.2.9",
            helo="client\x1b",
        )  # fmt: skip
        self.life.start()
        self.life.attempt(Status.DELIVERED, 1)
        self.life.attempt(Status.DEFERRED, 0, reply=REPLY)
        self.life.order("hold", why="look\x1b")
        self.life.replace("hold", 0)
        self.life.start()
        self.life.attempt(Status.DELIVERED, 0)
        self.life.finish()


@pytest.fixture
async def past(running: RunningControl) -> AsyncIterator[Past]:
    past = Past(running)
    yield past
    past.recorded.journal.close()


async def test_a_history_for_people(past: Past, waypost: Waypost) -> None:
    said = await waypost("queue", "history", past.life.queue_id.lower())
    assert (said.status, said.err) == (0, "")
    lines = said.out.splitlines()
    assert [line[21:].split(":")[0] for line in lines if line[:2] == "20"] == [
        "accepted from 192.0.2.9 (client\\x1b)",
        "attempt for smtp",
        "attempt for smtp",
        "hold by alice (uid 7)",
        "moved to hold",
        "attempt for smtp",
        "finished",
    ]
    assert "    delivered  b@example.org: 250 OK" in lines
    assert "    relay mx[192.0.2.1]:25, delays 1/2/0.25/0.5 s" in lines


async def test_a_deletion_is_no_attempt(past: Past, waypost: Waypost) -> None:
    life = past.recorded.arrive(["a@example.org"])
    life.start()
    life.settle(Status.DELETED, 0)
    life.finish("deleted")
    lines = (await waypost("queue", "history", life.queue_id)).out.splitlines()
    assert [line[21:] for line in lines[1:]] == [
        "ended without a delivery attempt", lines[2][21:], "finished (deleted)",
    ]  # fmt: skip
    assert lines[2] == "    deleted  a@example.org: deleted"


@pytest.mark.parametrize(
    ("operation", "arguments", "text"),
    [
        ("add_recipients", {"recipients": ["e@x.example"]}, "add-recipient of e@x.example"),
        (
            "add_recipients",
            {"recipients": [f"{n}@x.example" for n in range(40)]},
            "add-recipient of 0@x.example, 1@x.example, 2@x.example and 37 more",
        ),
        ("add_recipients", {"as written": "[" * 9}, "add-recipient"),
        (
            "reroute",
            {"route": "smtp:[192.0.2.7]:26", "numbers": [[0, 1]]},
            "reroute of 2 recipients to smtp:[192.0.2.7]:26",
        ),
        ("delay", {"until": 1_795_000_900.0}, f"delay until {shown(1_795_000_900.0)}"),
        ("hold", {"numbers": [[4, 4]]}, "hold of 1 recipient"),
        ("hold", {"numbers": [[2 * n, 2 * n] for n in range(12)]}, "hold of 12 recipients"),
        ("hold", {}, "hold"),
        ("hold", {"numbers": "\x1b"}, "hold"),
    ],
)
async def test_a_change_says_what_its_record_has(
    past: Past, waypost: Waypost, operation: str, arguments: dict[str, Any], text: str
) -> None:
    life = past.recorded.arrive(["a@example.org"])
    life.start()
    life.order(operation, why="asked for", arguments=arguments)
    (line,) = (await waypost("queue", "history", life.queue_id)).out.splitlines()[1:]
    assert line[21:] == f"{text} by alice (uid 7): asked for"


async def test_a_time_of_the_lane_alone_is_not_called_the_next_attempt(past: Past, waypost: Waypost) -> None:
    life = past.recorded.arrive(["a@example.org"])
    life.start()
    place, at = Place("retry.60", 1 << 30), past.recorded.now
    past.recorded.say(RecordType.REPLACED, Replaced(life.queue_id, 0, place, None, at))
    lines = (await waypost("queue", "history", life.queue_id)).out.splitlines()
    assert lines[-1][21:] == f"moved to retry.60, where it waits until {shown(at + 60)}"


async def test_a_history_for_programs(past: Past, waypost: Waypost) -> None:
    history = (await waypost("queue", "history", past.life.queue_id, "--json")).json
    assert history["complete"] is True
    assert history["queue_id"] == past.life.queue_id
    assert history["events"][2]["verdicts"][0]["reply"] == REPLY
    assert "done" not in history


async def test_what_nobody_knows_is_status_1(past: Past, waypost: Waypost) -> None:
    said = await waypost("queue", "history", "1K0RDGV4BE9ZZ")
    assert (said.status, said.out) == (1, "")
    assert said.err == f"waypost: {OTHER_WORDS}\n"
    assert (await waypost("queue", "history", "1K0RDGV4BE9ZZ", "--json")).json["events"] == []


async def test_a_search_finds_what_is_finished(past: Past, waypost: Waypost) -> None:
    for option, text in (("--message-id", "1@example.org"), ("--recipient", "B@*"), ("--sender", "a*")):
        said = await waypost("queue", "search", option, text)
        lines = said.out.splitlines()
        assert lines[0].split()[:2] == [past.life.queue_id, "delivered"]
        assert lines[2].startswith("  finished 20")
        assert lines[3] == "-- 1 message"
        (item,) = (await waypost("queue", "search", option, text, "--json")).items
        assert item["state"] == "delivered"


async def test_a_search_says_which_events_it_could_not_read(
    past: Past, running: RunningControl, waypost: Waypost
) -> None:
    damaged = running.settings.events_directory / "dt=2026-11-18" / "incoming.7.0.parquet"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"\x1b[2J no such file")
    said = await waypost("queue", "search", "--sender", "a*")
    assert said.out.splitlines()[0].split()[0] == past.life.queue_id
    assert said.err == f"waypost: {OTHER_WORDS}\n"
    assert said.status == 1, "messages may be missing"
    told = await waypost("queue", "search", "--sender", "a*", "--json")
    assert (told.status, told.end["complete"], told.end["unread_files"]) == (1, False, 1)


async def test_nothing_hostile_reaches_the_terminal(past: Past, waypost: Waypost) -> None:
    for command in (("history", past.life.queue_id), ("search", "--sender", "a*")):
        for form in ((), ("--json",)):
            said = await waypost("queue", *command, *form)
            assert not set(said.out) & {"\x1b", "\u202e", "\x07", "\r"}
            assert "\nfake line" not in said.out


async def test_a_search_for_nothing_is_wrong_usage(past: Past, waypost: Waypost) -> None:
    said = await waypost("queue", "search")
    assert (said.status, said.out) == (2, "")
    assert said.err == "waypost: queue search: give --message-id, --sender or --recipient\n"
