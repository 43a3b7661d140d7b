"""Data: kept byte for byte or refused, in memory or through the spool, and never more of it in memory than allowed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc

import pytest

from mailcore.envelope import DataPlace
from mailcore.receiver.session import ServerSession
from tests.eventually import eventually
from tests.receiver.server_in_process import serving, without_trace

BIG = b"Subject: big\r\n\r\n" + b"0123456789abcdef0123456789abcdef\r\n" * 20_000  # 680 kB


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b"..\r\n",
        b"...\r\n..\r\n",
        b"no header, no end\r\n",
        b"\xe4\xf6\xfc\x01\x7f\xff\r\n",
        b"Subject: long\r\n\r\n" + b"x" * 50_000 + b"\r\n",
        b"A: b\r\n\r\n" + bytes(set(range(1, 256)) - {10, 13}) + b"\r\n",
    ],
)
async def test_data_is_kept_byte_for_byte(content: bytes) -> None:
    async with serving() as server:
        client = await server.ready()
        await client.to_data()
        await client.send(content + b".\r\n")
        assert (await client.reply()).startswith(b"250")
    assert server.intake.content == content


@pytest.mark.parametrize("bad", [b"bare\nLF", b"bare\rCR", b"\n.\r\nx", b"\r.\r\nx", b"NUL\0", b"\n.\nx", b"\r\r\n"])
@pytest.mark.parametrize("inline_limit", [0, 65_536])
async def test_what_could_smuggle_is_refused_and_the_session_goes_on(bad: bytes, inline_limit: int) -> None:
    async with serving(inline_limit=inline_limit) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(b"Subject: x\r\n\r\n" + bad + b"\r\nMAIL FROM:<evil@example.com>\r\n.\r\n")
        assert (await client.reply()).startswith(b"550 5.6.0 Message refused")
        assert (await client.ask(b"NOOP")).startswith(b"250")
    assert server.intake.messages == []
    assert server.intake.spooled == {}
    assert server.intake.refusals[0].stage == "END-OF-MESSAGE"


async def test_big_data_goes_to_the_spool_as_it_comes() -> None:
    async with serving(inline_limit=1000) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(BIG + b".\r\nNOOP\r\n")
        assert (await client.reply()).startswith(b"250 2.0.0 Ok: queued")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.data, envelope.data_offset, envelope.size_bytes) == (DataPlace.SPOOL, 32, len(data))
    assert server.intake.content == BIG
    assert server.intake.longest_write < len(BIG)


@pytest.mark.parametrize(("size", "place"), [(0, DataPlace.INLINE), (1, DataPlace.SPOOL)])
async def test_the_inline_limit_is_exact(size: int, place: DataPlace) -> None:
    async with serving(inline_limit=1000) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(b".\r\n")
        await client.reply()
        trace = len(server.intake.messages[0][2])
        await client.to_data()
        await client.send(b"x" * (1000 - trace - 2 + size) + b"\r\n.\r\n")
        await client.reply()
        assert server.intake.messages[1][0].data is place


async def test_a_slow_disk_stops_the_reading() -> None:
    async with serving(inline_limit=1000) as server:
        server.intake.hold_uploads = True
        client = await server.ready()
        await client.to_data()
        client.writer.write(b"x" * 64_000_000 + b"\r\n.\r\n")
        await eventually(lambda: server.intake.uploads and server.intake.uploads[0].held)
        assert len(server.intake.uploads[0].data) < 1_000_000
        (session,) = server.server.sessions
        assert isinstance(session, ServerSession)
        assert session._incoming is not None
        assert session._incoming._block_bytes < 1_000_000
        assert len(session._buffer) < 1_000_000
        client.reset()
        upload = server.intake.uploads[0]
        assert upload.held is not None
        server.intake.hold_uploads = False
        upload.held(b"")  # nothing is read, so nothing is known of the client, before the disk has answered
        await eventually(lambda: not server.server.sessions)
        assert server.intake.abandoned == ["ID1"]


async def test_a_client_that_leaves_in_the_middle_leaves_nothing() -> None:
    async with serving(inline_limit=1000) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(BIG)
        await eventually(lambda: server.intake.uploads)
        client.reset()
        await eventually(lambda: server.intake.abandoned)
        assert server.intake.messages == []


async def test_a_client_that_leaves_while_the_disk_works_has_its_message_kept() -> None:
    async with serving() as server:
        server.intake.hold = True
        client = await server.ready()
        await client.to_data()
        await client.send(b"x\r\n.\r\n")
        await eventually(lambda: server.intake.held)
        client.reset()
        await eventually(lambda: not server.server.sessions)
        server.intake.release()
    assert len(server.intake.messages) == 1


async def test_half_a_connection_still_hears_its_reply() -> None:
    """printf ... | nc"""
    async with serving() as server:
        server.intake.hold = True
        client = await server.ready()
        await client.to_data()
        await client.send(b"x\r\n.\r\n")
        client.writer.write_eof()
        await eventually(lambda: server.intake.held)
        server.intake.release()
        assert (await client.rest()).startswith(b"250 2.0.0 Ok: queued")


@pytest.mark.parametrize("inline_limit", [0, 1 << 20])
async def test_a_message_over_the_limit_is_refused_at_its_end(inline_limit: int) -> None:
    async with serving(message_size_limit=100_000, inline_limit=inline_limit) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(b"x" * 99_998 + b"\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        await client.to_data()
        await client.send(b"x" * 99_999 + b"\r\n.\r\n")
        assert (await client.reply()).startswith(b"552 5.3.4")
        await client.to_data()
        await client.send(b"..\r\n" * 33_333 + b".\r\n")  # 99 999 without the stuffed dots
        assert (await client.reply()).startswith(b"250")


@pytest.mark.parametrize("piece", [b"x" * 65_536, b"Header: x\r\n" * 6_000, b"no colon " * 7_000])
async def test_endless_data_costs_fixed_memory_and_ends(piece: bytes) -> None:
    async with serving(message_size_limit=10_000_000, inline_limit=65_536) as server:
        server.intake.upload = lambda queue_id: Discarding()  # type: ignore[method-assign,assignment,return-value]
        client = await server.ready()
        await client.to_data()
        answer = asyncio.create_task(client.reply())
        gc.collect()
        tracemalloc.start()
        try:
            while not answer.done():
                with contextlib.suppress(ConnectionError):
                    await client.send(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3_000_000
        assert (await answer).startswith(b"552 5.3.4")


class Discarding:
    def write(self, blocks: object, done: object) -> None:
        done(b"")  # type: ignore[operator]

    complete = write

    def abandon(self) -> None:
        pass


async def test_a_full_spool_is_452() -> None:
    async with serving(inline_limit=1000) as server:
        server.intake.upload_reply = b"452 4.3.1 Insufficient system storage"
        client = await server.ready()
        await client.to_data()
        await client.send(BIG + b".\r\n")
        assert (await client.reply()).startswith(b"452 4.3.1")
        assert (await client.ask(b"NOOP")).startswith(b"250")
    assert server.intake.abandoned == ["ID1"]


@pytest.mark.parametrize(("hops", "code"), [(3, b"250 2.0.0"), (4, b"554 5.4.6")])
@pytest.mark.parametrize("inline_limit", [0, 65_536])
async def test_a_loop_is_broken(hops: int, code: bytes, inline_limit: int) -> None:
    async with serving(received_limit=3, inline_limit=inline_limit) as server:
        client = await server.ready()
        await client.to_data()
        await client.send(
            b"received: from x\r\n\tby y\r\n" * hops + b"\r\n" + b"Received: in the body\r\n" * 9 + b".\r\n"
        )
        assert (await client.reply()).startswith(code)


async def test_a_message_behind_another_in_the_same_packet_is_its_own() -> None:
    message = b"MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n%d\r\n.\r\n"
    async with serving() as server:
        client = await server.ready()
        await client.send(b"".join(message % number for number in range(20)))
        replies = await client.replies(80)
        assert [reply[:3] for reply in replies] == [b"250", b"250", b"354", b"250"] * 20
    assert [without_trace(data) for _, _, data in server.intake.messages] == [b"%d\r\n" % n for n in range(20)]
