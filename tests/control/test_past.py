"""What control answers about what was: with real lanes, a real journal, real sockets; and with the whole daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import AsyncControlClient, Refused
from mailcore.control.past_data import fields_of
from mailcore.envelope import DataPlace, Envelope
from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.queue.records import append_envelope
from mailcore.queue.spool import DATA_AT, Spool
from tests.control.house import House
from tests.process.house import running
from tests.queue.cast import envelope

STUFFED = b"Subject: one\r\n\r\n..a dot\r\n...\r\nand \r\n....\r\n.\r.\n.\r\n..end"
PLAIN = b"Subject: one\r\n\r\n.a dot\r\n..\r\nand \r\n...\r\n\r.\n.\r\n.end"


def inline(house: House, data: bytes) -> Envelope:
    message = envelope(data=DataPlace.INLINE, size_bytes=len(data))
    lane = house.lane("incoming.0")
    append_envelope(lane.writer, message, data)
    lane.writer.sync()
    return message


def spooled(house: House, data: bytes) -> Envelope:
    message = envelope(data=DataPlace.SPOOL, data_offset=DATA_AT, size_bytes=len(data))
    Spool(Disk(), str(house.settings.spool_directory)).store(message, data)
    house.write("retry.300", message)
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
    house: House, control: AsyncControlClient, place: Any, length: int
) -> None:
    message = place(house, STUFFED)
    assert await all_data(control, message.queue_id, length) == PLAIN


async def test_long_data_is_the_same_in_any_pieces(house: House, control: AsyncControlClient) -> None:
    plain = b"".join(b"." * (number % 5) + b"x" * (number % 83) + b"\r\n" for number in range(6_000))
    stuffed = (b"\r\n" + plain).replace(b"\r\n.", b"\r\n..")[2:]
    message = spooled(house, stuffed)
    assert len(plain) > 200_000
    for length in (65_535, 100_001):
        assert await all_data(control, message.queue_id, length) == plain
    back = await control.call("data", {"queue_id": message.queue_id, "offset": 777, "length": 10})
    assert (back["data"], back["more"], back["size_bytes"]) == (plain[777:787], True, len(stuffed))
    beyond = await control.call("data", {"queue_id": message.queue_id, "offset": 10_000_000})
    assert (beyond["data"], beyond["more"]) == (b"", False)


async def test_headers_are_unfolded_and_decoded(house: House, control: AsyncControlClient) -> None:
    header = (
        b"Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe?= to\r\n =?utf-8?B?w6TD?= =?UTF-8?B?tg==?= all\r\n"
        b"From: =?iso-8859-1?q?J=F6rg?= <j@example.org>\r\nX-Raw: \xff\x1b[31m\r\nX-Wide: \xc3\xa9\r\nno field\r\n"
    )
    message = inline(house, header + b"\r\nbody =?utf-8?Q?x?=\r\n")
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


async def test_an_endless_header_is_cut(house: House, control: AsyncControlClient) -> None:
    message = spooled(house, b"X: y\r\n" * 50_000)
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


async def test_of_a_message_that_is_nowhere_there_is_no_data(house: House, control: AsyncControlClient) -> None:
    message = spooled(house, b"x\r\n")
    lane = house.lane("retry.300")
    lane.mark_garbage(4096)
    for operation in ("headers", "data"):
        with pytest.raises(Refused, match="there is no message"):
            await control.call(operation, {"queue_id": message.queue_id})
    assert message.queue_id in str(house.spool_files())


# -- the whole daemon


async def test_a_message_that_was_deferred_and_delivered_has_a_history(tmp_path: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0"]) as lab, running(tmp_path, lab) as house:
        queue_id = await house.send("a@example.org", "b@example.org")
        await house.until_removed(queue_id)
        history = await house.ask("history", queue_id=queue_id)
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
