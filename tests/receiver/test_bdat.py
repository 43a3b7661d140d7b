"""BDAT (RFC 3030): no octet lost or doubled, whatever is cut where; what a client still sends after an error is no command."""

from __future__ import annotations

import random

import pytest

from mailcore.config.lenient import Lenient
from mailcore.receiver.chunk_reader import ChunkReader
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, serving, without_trace

TEXT = b"Subject: x\r\n\r\n.dot\r\n..two\r\nend\r\n.\r\n"
STUFFED = b"Subject: x\r\n\r\n..dot\r\n...two\r\nend\r\n..\r\n"
BINARY = b"Subject: b\r\n\r\n\x00\r\n.\r\n\n.\r\r\n..\xff\r"
ENVELOPE = b"MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\n"
BINARY_ENVELOPE = b"MAIL FROM:<a@example.com> BODY=binarymime\r\nRCPT TO:<b@example.org>\r\n"


def chunk(data: bytes, last: bool = False) -> bytes:
    return b"BDAT %d%b\r\n%b" % (len(data), b" LAST" if last else b"", data)


def unstuffed(stored: bytes) -> bytes:
    """The inverse of what is stored, written another way: line by line."""
    lines = stored.split(b"\r\n")
    return b"\r\n".join(line[1:] if line[:1] == b"." else line for line in lines)


async def codes(client: Client, count: int) -> list[bytes]:
    return [reply[:9] for reply in await client.replies(count)]


@pytest.mark.parametrize("seed", range(40))
def test_any_octets_cut_anywhere_are_stored_once(seed: int) -> None:
    draw = random.Random(seed)
    alphabet = [b"\r", b"\n", b".", b"\r\n", b"\r\n.", b"a", b"\0"]
    for _ in range(200):
        data = b"".join(draw.choice(alphabet) for _ in range(draw.randrange(30)))
        reader = ChunkReader(1000, is_binary=True)
        stored, at = b"", 0
        while at < len(data):
            size = draw.randint(1, 5)
            stored += reader.feed(data[at : at + size])
            at += size
        stored += reader.finish()
        assert unstuffed(stored) == data
        assert (reader.fault, reader.size_bytes) == (None, len(data))
        assert b"\r\n.\r\n" not in b"\r\n" + stored, "nothing that could be taken for an end"


@pytest.mark.parametrize("cuts", [(), (5,), (13, 14, 15, 16), tuple(range(1, len(TEXT))), (0,), (len(TEXT),)])
async def test_a_message_in_chunks_is_stored_as_after_data(cuts: tuple[int, ...]) -> None:
    ends = [*cuts, len(TEXT)]
    pieces = [TEXT[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]
    async with serving() as server:
        client = await server.ready()
        await client.send(ENVELOPE + b"".join(chunk(piece, at == len(cuts)) for at, piece in enumerate(pieces)))
        replies = await client.replies(2 + len(pieces))
        assert {reply[:3] for reply in replies} == {b"250"}
        assert replies[-1].startswith(b"250 2.0.0 Ok: queued as")
        assert replies[2:-1] == [b"250 2.0.0 Ok: %d octets\r\n" % len(piece) for piece in pieces[:-1]]
        assert (await client.ask(b"NOOP")).startswith(b"250")
    assert server.intake.content == STUFFED
    ((envelope, _, data),) = server.intake.messages
    assert envelope.size_bytes == len(data)
    assert envelope.options == ()


async def test_byte_by_byte_it_is_the_same() -> None:
    async with serving() as server:
        client = await server.ready()
        for byte in ENVELOPE + chunk(TEXT[:7]) + chunk(TEXT[7:]) + chunk(b"", True) + b"QUIT\r\n":
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert (await client.rest()).count(b"250 2.0.0") == 3
    assert server.intake.content == STUFFED


@pytest.mark.parametrize("last", [b"", b"no end"])
async def test_an_empty_last_chunk_and_text_without_an_end(last: bytes) -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(ENVELOPE + chunk(b"A: b\r\n\r\n") + chunk(last) + chunk(b"", True))
        assert {reply[:3] for reply in await client.replies(5)} == {b"250"}
    assert server.intake.content == b"A: b\r\n\r\n" + (last + b"\r\n" if last else b"")


async def test_binary_data_is_stored_exactly_and_only_by_bdat() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(BINARY_ENVELOPE)
        await client.replies(2)
        assert (await client.ask(b"DATA")).startswith(b"503 5.5.1")
        await client.send(chunk(BINARY[:17]) + chunk(BINARY[17:], True))
        assert await codes(client, 2) == [b"250 2.0.0"] * 2
    ((envelope, _, data),) = server.intake.messages
    assert unstuffed(without_trace(data)) == BINARY
    assert (envelope.options, envelope.eight_bit) == ((("BODY", "BINARYMIME"),), False)


@pytest.mark.parametrize(
    ("bad", "reply"),
    [(b"a\nb\r\n", b"550 5.6.0"), (b"a\rb\r\n", b"550 5.6.0"), (b"a\r", b"550 5.6.0"), (b"\0\r\n", b"550 5.6.0"),
     (b"x" * 3000, b"552 5.3.4"), (b"Received: x\r\n" * 5, b"554 5.4.6")],
)  # fmt: skip
async def test_a_chunk_that_is_refused_ends_the_transaction_and_its_rest_is_no_command(
    bad: bytes, reply: bytes
) -> None:
    async with serving(message_size_limit=2000, received_limit=3) as server:
        client = await server.ready()
        inside = b"MAIL FROM:<evil@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n"
        await client.send(
            ENVELOPE + chunk(b"A: b\r\n") + chunk(bad, bad[-1:] == b"\r") + chunk(inside, True) + b"NOOP\r\n"
        )
        replies = await codes(client, 6)
        assert replies == [b"250 2.1.0", b"250 2.1.5", b"250 2.0.0", reply, b"503 5.5.1", b"250 2.0.0"]
        await client.send(ENVELOPE + chunk(TEXT, True))
        assert (await codes(client, 3))[-1] == b"250 2.0.0", "the session goes on"
    assert server.intake.content == STUFFED


async def test_the_limit_counts_all_chunks_without_the_stuffed_dots() -> None:
    data = b"A: b\r\n\r\n" + b".\r\n" * 400
    async with serving(message_size_limit=len(data)) as server:
        client = await server.ready()
        await client.send(ENVELOPE + chunk(data[:700]) + chunk(data[700:], True))
        assert (await codes(client, 4))[-1] == b"250 2.0.0"
        await client.send(ENVELOPE + chunk(data[:700]) + chunk(data[700:] + b"x", True))
        assert (await codes(client, 4))[-1] == b"552 5.3.4"
    assert len(server.intake.messages) == 1


@pytest.mark.parametrize(
    "argument", [b"", b"x", b"-1", b"+1", b"1 LAS", b"1 LAST LAST", b"1 2", b"1.5", b"9" * 21, b"0x10", "٣".encode()]
)
async def test_where_a_chunk_ends_must_be_known(argument: bytes) -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(ENVELOPE + b"BDAT " + argument + b"\r\nMAIL FROM:<evil@example.com>\r\n")
        assert (await codes(client, 3))[-1] == b"501 5.5.4"
        assert await client.rest() == b""
    assert server.intake.messages == []


async def test_a_chunk_without_a_transaction_is_thrown_away_and_an_endless_one_ends_the_session() -> None:
    async with serving(message_size_limit=2000) as server:
        client = await server.ready()
        await client.send(
            chunk(b"MAIL FROM:<x@y.example>\r\n", True) + b"NOOP\r\n" + chunk(b"") + ENVELOPE[:27] + chunk(b"QUIT\r\n")
        )
        assert await codes(client, 5) == [b"503 5.5.1", b"250 2.0.0", b"503 5.5.1", b"250 2.1.0", b"503 5.5.1"]
        await client.send(b"RCPT TO:<b@example.org>\r\nBDAT 99999999999\r\nx")
        assert await codes(client, 2) == [b"250 2.1.5", b"552 5.3.4"]
        assert await client.rest() == b""
    assert server.intake.messages == []


@pytest.mark.parametrize("verb", [b"RSET", b"EHLO again.example"])
async def test_rset_between_chunks_forgets_the_message(verb: bytes) -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(ENVELOPE + chunk(b"X-Lost: y\r\n"))
        await client.replies(3)
        for other in (b"DATA", b"RCPT TO:<c@example.org>", b"MAIL FROM:<c@example.com>"):
            assert (await client.ask(other)).startswith(b"503 5.5.1")
        assert (await client.ask(verb)).startswith(b"250")
        await client.send(chunk(b"Subject: z\r\n", True) + ENVELOPE + chunk(TEXT, True))
        assert await codes(client, 4) == [b"503 5.5.1", b"250 2.1.0", b"250 2.1.5", b"250 2.0.0"]
    assert server.intake.content == STUFFED


async def test_a_big_message_goes_to_the_spool_and_each_chunk_waits_for_it() -> None:
    line = b"x" * 998 + b"\r\n"
    data = b"A: b\r\n\r\n" + line * 700
    async with serving() as server:
        client = await server.ready()
        server.intake.hold_uploads = True
        pieces = [data[at : at + 150_000] for at in range(0, len(data), 150_000)]
        sent = ENVELOPE + b"".join(chunk(piece) for piece in pieces) + chunk(b"", True) + b"NOOP\r\n"
        client.writer.write(sent)
        released = 0

        def release() -> bool:
            nonlocal released
            for upload in server.intake.uploads:
                if upload.held is not None:
                    held, upload.held = upload.held, None
                    released += 1
                    held(b"")
            return bool(server.intake.messages)

        await eventually(release)
        replies = await codes(client, 2 + len(pieces) + 2)
        assert set(replies[2:]) == {b"250 2.0.0"}
        assert released > 1
    ((_, _, stored),) = server.intake.messages
    assert without_trace(stored) == data


async def test_a_client_that_goes_away_leaves_nothing() -> None:
    async with serving() as server:
        client = await server.ready()
        await client.send(ENVELOPE + b"BDAT 900000\r\n" + b"x" * 500_000)
        await eventually(lambda: server.intake.uploads)
        client.reset()
        await eventually(lambda: not server.server.sessions)
    assert server.intake.messages == []
    assert server.intake.abandoned == ["ID1"]
    assert server.intake.failures == []


async def test_where_bare_lf_is_repaired_after_data_a_chunk_is_still_taken_as_it_is() -> None:
    async with serving(lenient=Lenient(bare_lf_networks=("127.0.0.0/8",))) as server:
        client = await server.ready()
        await client.send(ENVELOPE + chunk(TEXT[:20]) + chunk(TEXT[20:], True))
        assert (await codes(client, 4))[-1] == b"250 2.0.0"
    assert server.intake.content == STUFFED
