"""[receiver] message_drop_headers: Bcc and the like of a client do not leave; what is stored is counted and summed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.listeners import Listener
from mailcore.envelope import DataPlace
from mailcore.log.data_blocks import sums_of
from tests.milter.scripted import CONTINUE, milter
from tests.receiver.server_in_process import serving
from tests.receiver.test_bdat import BINARY_ENVELOPE, chunk
from tests.receiver.test_header_checks import live

HEADER = (
    b"Return-Path: <a@b>\r\nSubject: x\r\nBCC: secret@out.example,\r\n secret2@out.example\r\nTo: b@example.org\r\n"
)
KEPT = b"Subject: x\r\nTo: b@example.org\r\n"
BODY = b"\r\nBcc: in the body\r\n"


@pytest.mark.parametrize("size", [0, 100_000])
@pytest.mark.parametrize("has_checks", [False, True])
async def test_a_client_s_bcc_does_not_leave(tmp_path: Path, size: int, has_checks: bool) -> None:
    body = BODY + b"0123456789\r\n" * (size // 12)
    async with serving(rewriting=live(tmp_path) if has_checks else None, inline_limit=10_000) as server:
        client = await server.ready()
        await client.to_data()
        for piece in (HEADER[:25], HEADER[25:60], HEADER[60:] + body[:10], body[10:] + b".\r\n"):
            await client.send(piece)
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert server.intake.content == KEPT + body
    assert envelope.size_bytes == len(data)
    assert envelope.data_sums == sums_of(data)
    assert (envelope.data is DataPlace.SPOOL) is bool(size)


@pytest.mark.parametrize("end", [b"", b"Bc"])
async def test_binary_data_that_ends_in_its_header_is_whole(end: bytes) -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(BINARY_ENVELOPE + chunk(HEADER[:70]) + chunk(HEADER[70:] + end, last=True))
        assert [reply[:3] for reply in await client.replies(4)] == [b"250"] * 4
    assert server.intake.content == KEPT + end


async def test_without_names_all_fields_pass() -> None:
    async with serving(message_drop_headers=()) as server:
        client = await server.ready()
        await client.to_data()
        assert (await client.ask(HEADER + BODY + b".")).startswith(b"250")
    assert server.intake.content == HEADER + BODY


async def test_milters_do_not_see_the_fields() -> None:
    async with (
        milter(script={"E": CONTINUE}) as filter_,
        serving(rule=Listener(milters=(filter_.address,))) as server,
    ):
        client = await server.ready()
        await client.to_data()
        assert (await client.ask(HEADER + BODY + b".")).startswith(b"250")
    assert [name for name, _ in filter_.headers()] == [b"Subject", b"To"]
    assert server.intake.content == KEPT + BODY
