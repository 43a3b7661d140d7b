"""A disk on which no time can be reserved for queue ids: the message is refused, and no part of it taken for another."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.receiver.running_receiver import receiving
from tests.receiver.server_in_process import Client
from tests.receiver.test_reception import MESSAGE, send

HOUR_S = 3600.0
REFUSED = b"451 4.3.0 Error: queue file write error\r\n"


async def to_rcpt(client: Client) -> None:
    assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
    assert (await client.ask(b"RCPT TO:<b@example.com>")).startswith(b"250")


async def test_data_and_chunks_are_refused_and_a_later_chunk_is_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, ahead_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: wall() + ahead_s[0])
    async with receiving(tmp_path) as receiver:
        assert (await send(await receiver.ready())).startswith(b"250")
        receiver.disk.failing = "ids"
        ahead_s[0] = HOUR_S  # nothing is reserved for that time
        client = await receiver.ready()
        await to_rcpt(client)
        assert await client.ask(b"DATA") == REFUSED
        assert (await client.ask(b"RSET")).startswith(b"250")
        await to_rcpt(client)
        await client.send(b"BDAT 6\r\nRSET\r\nBDAT %d LAST\r\n" % len(MESSAGE) + MESSAGE + b"NOOP\r\n")
        replies = [await client.reply() for _ in range(3)]
        assert replies[0] == REFUSED
        assert replies[1].startswith(b"503")
        assert replies[2].startswith(b"250 2.0.0 Ok")
        assert len(receiver.lane.messages) == 1
        assert "incoming.0/ids" in receiver.mail_log
        receiver.disk.failing = ""
        assert (await send(await receiver.ready())).startswith(b"250")
        first, second = [envelope.queue_id for envelope, _ in receiver.lane.messages]
        assert second > first
