"""[rewriting] local_header_rewrite_clients and always_add_missing_headers: who gets From, Date and Message-ID over SMTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.config.header_completion import HeaderCompletion
from mailcore.config.listeners import Listener
from mailcore.config.live_maps import LiveMaps
from mailcore.config.rewriting import Rewriting
from mailcore.envelope import DataPlace
from mailcore.log.data_blocks import sums_of
from mailcore.maillog import MailLog
from tests.eventually import eventually
from tests.milter.scripted import CONTINUE, milter
from tests.receiver.configured_receiver import OTHER, US, configured
from tests.receiver.server_in_process import serving
from tests.receiver.test_bdat import BINARY_ENVELOPE, chunk
from tests.rewriting.missing_field_cases import plain

HEADER = b"Subject: x\r\nTo: b@example.org\r\n"
ADDED = b"Message-ID: <id>\r\nDate: <date>\r\nFrom: a@example.com\r\n"


def completion(directory: Path, **settings: Any) -> HeaderCompletion:
    return HeaderCompletion(Rewriting(**settings), "own.example", "mx.own.example", MailLog(directory))


@pytest.mark.parametrize("size", [0, 100_000])
@pytest.mark.parametrize("cuts", [(), (5, 20, len(HEADER) + 1)])
async def test_a_local_client_s_message_gets_what_is_missing(tmp_path: Path, size: int, cuts: tuple[int, ...]) -> None:
    body = b"\r\n..\r\n" + b"0123456789\r\n" * (size // 12)
    sent = HEADER + body + b".\r\n"
    async with serving(rewriting=completion(tmp_path), inline_limit=10_000) as server:
        client = await server.ready()
        await client.to_data()
        for begin, end in zip((0, *cuts), (*cuts, len(sent)), strict=True):
            await client.send(sent[begin:end])
        assert (await client.reply()).startswith(b"250 ")
    ((envelope, _, data),) = server.intake.messages
    assert plain(server.intake.content) == HEADER + ADDED + body
    assert envelope.size_bytes == len(data)
    assert envelope.data_sums == sums_of(data)
    assert envelope.message_id.startswith("<20")
    assert envelope.message_id.endswith(f".{envelope.queue_id}@mx.own.example>")
    assert f"\r\nMessage-ID: {envelope.message_id}\r\n".encode() in data
    assert (envelope.data is DataPlace.SPOOL) is bool(size)


@pytest.mark.parametrize(
    ("settings", "is_added"),
    [
        ({}, True),
        ({"local_header_rewrite_clients": ("192.0.2.0/24",)}, False),
        ({"local_header_rewrite_clients": ("192.0.2.0/24",), "always_add_missing_headers": True}, True),
        ({"local_header_rewrite_clients": ()}, False),
        ({"local_header_rewrite_clients": ("networks",)}, True),
    ],
)
@pytest.mark.parametrize("has_files", [False, True])
async def test_only_these_clients_get_fields(
    tmp_path: Path, settings: dict[str, Any], is_added: bool, has_files: bool
) -> None:
    (tmp_path / "checks").write_text("/^x-none:/ IGNORE\n")
    text = "".join(f"{name} = {'true' if value is True else list(value)}\n" for name, value in settings.items())
    if has_files:
        text += f'header_checks = ["{tmp_path}/checks"]\n'
    async with configured(tmp_path, f"[rewriting]\n{text}") as server:
        if has_files:
            rewriting = server.receiving.reception.rewriting
            assert isinstance(rewriting, LiveMaps)
            await eventually(lambda: rewriting.files is not None)
        for source in (US, OTHER):
            client = await server.client(source)
            await client.to_data(b"a@example.com", b"b@example.org")
            assert (await client.ask(HEADER + b"\r\nx\r\n.")).startswith(b"250 ")
        for (envelope, data), source in zip(server.lane.messages, (US, OTHER), strict=True):
            is_its = is_added and (source == US or settings.get("local_header_rewrite_clients") != ("networks",))
            assert plain(data).endswith(b"\r\n" + HEADER + (ADDED if is_its else b"") + b"\r\nx\r\n"), source
            assert bool(envelope.message_id) is is_its


async def test_fields_that_are_always_added_come_without_a_change_of_addresses(tmp_path: Path) -> None:
    rewriting = completion(tmp_path, local_header_rewrite_clients=(), always_add_missing_headers=True)
    async with serving(rewriting=rewriting) as server:
        client = await server.ready()
        await client.to_data(b"")
        assert (await client.ask(b"To: root\r\n\r\nx\r\n.")).startswith(b"250 ")
        added = ADDED.replace(b"a@example.com", b"MAILER-DAEMON@own.example")
        assert plain(server.intake.content) == b"To: root\r\n" + added + b"\r\nx\r\n"


@pytest.mark.parametrize("end", [b"", b"Fro"])
async def test_binary_data_that_ends_in_its_header_is_completed(tmp_path: Path, end: bytes) -> None:
    async with serving(rewriting=completion(tmp_path)) as server:
        client = await server.ready()
        await client.send(BINARY_ENVELOPE + chunk(HEADER[:13]) + chunk(HEADER[13:] + end, last=True))
        assert [reply[:3] for reply in await client.replies(4)] == [b"250"] * 4
    ((envelope, _, data),) = server.intake.messages
    assert plain(server.intake.content) == HEADER + ADDED + (b"\r\n" + end if end else b"")
    assert envelope.data_sums == sums_of(data)


async def test_milters_see_the_fields(tmp_path: Path) -> None:
    async with (
        milter(script={"E": CONTINUE}) as filter_,
        serving(rewriting=completion(tmp_path), rule=Listener(milters=(filter_.address,))) as server,
    ):
        client = await server.ready()
        await client.to_data()
        assert (await client.ask(HEADER + b"\r\nx\r\n.")).startswith(b"250 ")
    assert [name for name, _ in filter_.headers()] == [b"Subject", b"To", b"Message-ID", b"Date", b"From"]
    assert plain(server.intake.content) == HEADER + ADDED + b"\r\nx\r\n"


async def test_a_whole_header_stays_byte_for_byte(tmp_path: Path) -> None:
    whole = b"Message-Id: <1@b>\r\nDate: x\r\n" + HEADER + b"From: a@example.com\r\n\r\nx\r\n"
    async with serving(rewriting=completion(tmp_path)) as server:
        client = await server.ready()
        await client.to_data()
        assert (await client.ask(whole + b".")).startswith(b"250 ")
    assert server.intake.content == whole
