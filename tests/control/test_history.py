"""What control answers about what was: with real lanes, a real journal, real sockets; and with the whole daemon."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import Refused
from mailcore.control.message_data import fields_of
from mailcore.envelope import DataPlace, Envelope
from mailcore.lab.lab import Lab
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.queue.records import append_envelope
from mailcore.queue.spool import DATA_AT, Spool
from tests.control.running_control import RunningControl
from tests.lookup.sample_messages import envelope
from tests.running.running_core import RunningCore, route_to
from tests.running.running_core import running as running_core

STUFFED = b"Subject: one\r\n\r\n..a dot\r\n...\r\nand \r\n....\r\n.\r.\n.\r\n..end"
PLAIN = b"Subject: one\r\n\r\n.a dot\r\n..\r\nand \r\n...\r\n\r.\n.\r\n.end"


def inline(running: RunningControl, data: bytes) -> Envelope:
    message = envelope(data=DataPlace.INLINE, size_bytes=len(data))
    lane = running.lane("incoming.0")
    append_envelope(lane.writer, message, data)
    lane.writer.sync()
    return message


def spooled(running: RunningControl, data: bytes) -> Envelope:
    message = envelope(data=DataPlace.SPOOL, data_offset=DATA_AT, size_bytes=len(data), data_sums=sums_of(data))
    message = Spool(Disk(), str(running.settings.spool_directory)).store(message, data)
    running.write("retry.300", message)
    return message


async def all_data(control: AsyncControlClient, queue_id: str, length: int) -> bytes:
    data, more = b"", True
    while more:
        piece = await control.call("data", {"queue_id": queue_id, "offset": len(data), "length": length})
        assert piece["offset"] == len(data)
        data, more = data + piece["data"], piece["more"]
    return data


# -- headers and data


@pytest.mark.parametrize("place", [inline, spooled])
@pytest.mark.parametrize("length", [1, 7, 256 << 10])
async def test_data_comes_as_it_was_received(
    running: RunningControl, control: AsyncControlClient, place: Any, length: int
) -> None:
    message = place(running, STUFFED)
    assert await all_data(control, message.queue_id, length) == PLAIN


async def test_long_data_is_the_same_in_any_pieces(running: RunningControl, control: AsyncControlClient) -> None:
    plain = b"".join(b"." * (number % 5) + b"x" * (number % 83) + b"\r\n" for number in range(6_000))
    stuffed = (b"\r\n" + plain).replace(b"\r\n.", b"\r\n..")[2:]
    message = spooled(running, stuffed)
    assert len(plain) > 200_000
    for length in (65_535, 100_001):
        assert await all_data(control, message.queue_id, length) == plain
    back = await control.call("data", {"queue_id": message.queue_id, "offset": 777, "length": 10})
    assert (back["data"], back["more"], back["size_bytes"]) == (plain[777:787], True, len(stuffed))
    beyond = await control.call("data", {"queue_id": message.queue_id, "offset": 10_000_000})
    assert (beyond["data"], beyond["more"]) == (b"", False)


def change(running: RunningControl, message: Envelope, at: int, *, longer: bool = False) -> None:
    """Changes one byte of a message's data, or makes its spool file longer."""
    path = Path(Spool(Disk(), str(running.settings.spool_directory)).path(message.queue_id))
    content = bytearray(path.read_bytes())
    if longer:
        content += b"x"
    else:
        content[DATA_AT + at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("longer", [False, True])
async def test_damaged_data_is_shown_and_reported(
    running: RunningControl, control: AsyncControlClient, longer: bool
) -> None:
    data = b"Subject: one\r\n\r\n" + b"a line\r\n" * 30_000
    message = spooled(running, data)
    whole = await control.call("headers", {"queue_id": message.queue_id})
    change(running, message, 100_000, longer=longer)
    shown = bytearray(data)
    if not longer:
        shown[100_000] ^= 1
    assert await all_data(control, message.queue_id, 256 << 10) == shown
    damage = {}
    for offset in (0, 100_000, 200_000):
        piece = await control.call("data", {"queue_id": message.queue_id, "offset": offset, "length": 10})
        assert piece["data"] == shown[offset : offset + 10]
        damage[offset] = bool(piece["damage"])
    assert damage[100_000]
    assert damage == dict.fromkeys(damage, True) if longer else not damage[0]
    answer = await control.call("headers", {"queue_id": message.queue_id})
    assert bool(answer.pop("damage")) == longer  # the header is in another block
    assert answer == {name: value for name, value in whole.items() if name != "damage"}
    assert not whole["damage"]


async def test_headers_are_unfolded_and_decoded(running: RunningControl, control: AsyncControlClient) -> None:
    header = (
        b"Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?= to\r\n =?utf-8?B?w6TD?= =?UTF-8?B?tg==?= all\r\n"
        b"From: =?iso-8859-1?q?J=F6rg?= <j@example.org>\r\nX-Raw: \xff\x1b[31m\r\nX-Wide: \xc3\xa9\r\nno field\r\n"
    )
    message = inline(running, header + b"\r\nbody =?utf-8?Q?x?=\r\n")
    answer = await control.call("headers", {"queue_id": message.queue_id})
    assert answer["headers"] == [
        ["Subject", "Grüße to äö all"],
        ["From", "Jörg <j@example.org>"],
        ["X-Raw", "ÿ\x1b[31m"],
        ["X-Wide", "é"],
        ["", "no field"],
    ]
    assert answer["raw"].startswith("Subject: =?utf-8?Q?Gr=C3")
    assert answer["raw"].endswith("no field\r\n")
    assert not answer["truncated"]


async def test_an_endless_header_is_cut(running: RunningControl, control: AsyncControlClient) -> None:
    message = spooled(running, b"X: y\r\n" * 50_000)
    answer = await control.call("headers", {"queue_id": message.queue_id})
    assert answer["truncated"]
    assert len(answer["raw"]) == 64 << 10


@pytest.mark.parametrize(
    "value",
    [
        "=?punycode?Q?" + "a" * 1_000 + "?=",
        "=?zlib?B?eJw=?=",
        "=?x-none?Q?a?=",
        "=?unicode_escape?Q?=5Cu0041?=",
        "=?utf-8?Z?a?=",
        "=?utf-8?B?a?=" + "=?" * 3_000,
        "=?" + "?" * 5_000,
    ],
)
def test_words_that_cannot_be_decoded_stay(value: str) -> None:
    ((name, shown),) = fields_of(f"Subject: {value}")
    assert (name, shown.endswith(value[-10:])) == ("Subject", True)


def test_a_charset_that_writes_half_a_character_can_still_be_sent() -> None:
    ((_, shown),) = fields_of("Subject: =?utf-7?Q?+2AA-?=")
    shown.encode()


async def test_of_a_message_that_is_nowhere_there_is_no_data(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = spooled(running, b"x\r\n")
    lane = running.lane("retry.300")
    lane.mark_garbage(4096)
    for operation in ("headers", "data"):
        with pytest.raises(Refused, match="there is no message"):
            await control.call(operation, {"queue_id": message.queue_id})
    assert message.queue_id in str(running.spool_files())


# -- the whole daemon


async def until_finished(core: RunningCore, queue_id: str) -> dict[str, Any]:
    """Its history, when its end is on the disk."""

    async def told() -> dict[str, Any] | None:
        history: dict[str, Any] = await core.ask("history", queue_id=queue_id)
        events = history["events"]
        return history if events and events[-1]["event"] == "finished" else None

    history: dict[str, Any] = await core.eventually(told, f"the end of {queue_id}")
    return history


async def test_after_a_kill_a_history_is_whole_or_says_that_it_is_not(tmp_path: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0"]) as lab, running_core(tmp_path, lab) as core:
        queue_id = await core.send("a@example.org")
        await core.until_in(queue_id, "retry.")
        await core.kill("manager")
        history = await until_finished(core, queue_id)
        kinds = [event["event"] for event in history["events"]]
        assert (kinds[0], kinds[-2:]) == ("accepted", ["attempt", "finished"])
        # A start opens a new segment; the one before goes as soon as nothing is being worked on that began in it.
        assert history["complete"] == ("deferred_until" in kinds)
        assert bool(history["note"]) != history["complete"]


async def test_a_message_that_was_deferred_and_delivered_has_a_history(tmp_path: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0"]) as lab, running_core(tmp_path, lab) as core:
        queue_id = await core.send("a@example.org", "b@example.org")
        history = await until_finished(core, queue_id)
        kinds = [event["event"] for event in history["events"]]
        assert kinds[0] == "accepted"
        assert kinds[-1] == "finished"
        assert kinds[1] == "attempt"
        assert "deferred_until" in kinds
        assert history["complete"], history["note"]
        accepted = history["events"][0]
        assert (accepted["sender"], accepted["recipients"], accepted["helo"]) == (
            "author@sender.example", 2, "client.example",
        )  # fmt: skip
        assert accepted["message_id"] == "<one@sender.example>"
        attempts = [event for event in history["events"] if event["event"] == "attempt"]
        first, last = attempts[0], attempts[-1]
        assert {verdict["status"] for verdict in first["verdicts"]} == {"deferred"}
        assert " said: 450 4.2.0 Greylisted" in first["verdicts"][0]["reply"]
        assert sum(first["delays"]) > 0
        assert first["relay"].endswith(f":{lab.hops[0].address[1]}")
        assert {(v["address"], v["status"]) for v in last["verdicts"]} == {
            ("a@example.org", "delivered"), ("b@example.org", "delivered"),
        }  # fmt: skip
        assert sorted(event["at"] for event in history["events"]) == [event["at"] for event in history["events"]]
        assert history["events"][-1] == {
            "at": history["events"][-1]["at"], "event": "finished", "how": "", "bounce": None
        }  # fmt: skip


# -- searching


async def search(control: AsyncControlClient, **arguments: Any) -> list[dict[str, Any]]:
    """All pages."""
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        async with contextlib.aclosing(control.parts("search", {**arguments, "cursor": cursor})) as parts:
            async for part in parts:
                items += part["items"]
        assert part["done"]
        cursor = part["cursor"]
    return items


async def test_a_search_finds_what_rests(running: RunningControl, control: AsyncControlClient) -> None:
    wanted = envelope(["a@example.org", "b@example.net"], sender="x@example.com", message_id="<one@example.com>")
    running.write("incoming.0", envelope(), wanted, envelope())
    running.write("retry.300", envelope(sender="y@example.com", message_id="<two@example.com>"))
    both = ["a@example.org", "b@example.net"]
    for question in (
        {"queue_id": wanted.queue_id},
        {"message_id": "one@example.com"},
        {"message_id": "<ONE@*>"},
        {"sender": "x@*"},
        {"recipient": "B@example.net", "sender": "x@example.com"},
    ):
        (item,) = await search(control, **question)
        assert item == {
            "queue_id": wanted.queue_id,
            "at": wanted.arrived_at,
            "sender": "x@example.com",
            "recipients": both[::-1] if "recipient" in question else both,  # the one that was asked for is in front
            "recipient_count": 2,
            "message_id": "<one@example.com>",
            "size_bytes": 1000,
            "state": "queued",
            "finished_at": None,
        }
    assert await search(control, sender="x@*", recipient="user@example.org") == []
    assert await search(control, queue_id=wanted.queue_id, sender="y@*") == []


async def test_a_search_goes_on_at_its_cursor(running: RunningControl, control: AsyncControlClient) -> None:
    messages = [envelope(f"u{number}@example.org") for number in range(30)]
    running.write("incoming.0", *messages[:14])
    running.write("retry.300", *messages[14:])
    for limit in (1, 7, 30, 200):
        items = await search(control, limit=limit, recipient="u*")
        assert [item["queue_id"] for item in items] == [message.queue_id for message in messages]


async def test_a_bad_cursor_is_an_error(running: RunningControl, control: AsyncControlClient) -> None:
    with pytest.raises(Refused, match="'nonsense' is not a cursor"):
        await control.call("search", {"cursor": "nonsense"})


async def test_without_the_manager_the_past_is_still_known(
    running: RunningControl, control: AsyncControlClient
) -> None:
    message = inline(running, STUFFED)
    await running.lose_the_manager()
    assert (await control.call("history", {"queue_id": message.queue_id}))["complete"]
    assert await all_data(control, message.queue_id, 1000) == PLAIN
    answer = await control.call("search", {"queue_id": message.queue_id})
    assert [item["queue_id"] for item in answer["items"]] == [message.queue_id]
    assert answer["note"].startswith("the manager is not running; as of ")


async def test_times_of_deliveries_are_answered_in_one_last_part(
    running: RunningControl, control: AsyncControlClient
) -> None:
    answer = await control.call("service_times", {"since_s": 60})
    assert (answer["times"]["destinations"], answer["times"]["examined"], answer["done"]) == ({}, 0, True)


async def test_the_daemon_finds_what_it_delivered_bounced_and_deleted(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
        routes = {
            "bad.example": route_to(lab, 1),
            "slow.example": "smtp:[127.0.0.1]:1",
            "sender.example": route_to(lab, 0),
        }
        async with running_core(tmp_path, lab, routes=routes) as core:
            good = await core.send("a@example.org", "b@example.org")
            bad = await core.send("c@bad.example", sender="other@sender.example")
            gone = await core.send("d@slow.example")
            await until_finished(core, good)
            history = await until_finished(core, bad)
            kinds = [event["event"] for event in history["events"]]
            assert kinds == ["accepted", "attempt", "bounce", "finished"]
            assert history["events"][2]["queue_id"] == f"{bad}B0"
            assert history["events"][1]["verdicts"][0]["status"] == "bounced"
            await core.until_in(gone, "retry")
            await core.order("delete", gone, why="nobody wants it")
            await core.until_in(gone, "deleted", deleted=True)
            (item,) = await search(core.control, recipient="d@slow.example")
            assert (item["state"], item["finished_at"]) == ("deleted", None)
            by_id = {item["queue_id"]: item for item in await search(core.control, message_id="one@sender.example")}
            assert by_id.keys() == {good, bad, gone}
            assert [by_id[each]["state"] for each in (good, bad, gone)] == ["delivered", "bounced", "deleted"]
            assert by_id[gone]["finished_at"] is None
            assert all(by_id[each]["finished_at"] >= by_id[each]["at"] for each in (good, bad))
            (item,) = await search(core.control, recipient="B@EXAMPLE.org")
            assert item["queue_id"] == good
            assert [each["queue_id"] for each in await search(core.control, sender="<>")] == [f"{bad}B0"]
            (item,) = await search(core.control, queue_id=gone)
            assert item["state"] == "deleted"

            history = await core.ask("history", queue_id=gone)
            (order,) = [event for event in history["events"] if event["event"] == "administrative"]
            assert (order["operation"], order["why"]) == ("delete", "nobody wants it")
            assert f"uid {os.getuid()}" in order["who"]
            last = history["events"][-1]
            assert (last["event"], last["lane"]) == ("replaced", "deleted")
            assert last["due_at"] > last["at"] + 60
            assert history["complete"], history["note"]
            times = (await core.ask("service_times"))["times"]
            row = times["destinations"][route_to(lab, 0)]
            assert (row["recipients"], row["bounced"], row["site_failures"]) == (3, 0, 0)  # two, and a bounce
            assert times["destinations"][route_to(lab, 1)]["bounced"] == 1
            assert "550" in times["destinations"][route_to(lab, 1)]["replies"][0]["reply"]
            history = await core.ask("history", queue_id="1K0RDGV4BE9ZZ")
            assert (history["events"], history["complete"]) == ([], False)
            assert history["note"].startswith("nothing is known about 1K0RDGV4BE9ZZ; the journal goes back to ")
