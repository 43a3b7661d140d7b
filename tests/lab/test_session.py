"""A next hop speaks SMTP, takes data byte for byte, and does in each stage what its behaviour says."""

import asyncio
import hashlib

import pytest

from mailcore.lab.lab import Lab
from mailcore.lab.session import Session
from tests.eventually import eventually
from tests.lab.conversation import Conversation


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("wire", "content"),
    [
        (b"Subject: x\r\n\r\nbody\r\n.\r\n", b"Subject: x\r\n\r\nbody\r\n"),
        (b".\r\n", b""),
        (b"\r\n.\r\n", b"\r\n"),
        (b"..\r\n...\r\n....x\r\n.\r\n", b".\r\n..\r\n...x\r\n"),
        (b".x\r\n.\r\n", b"x\r\n"),  # a forgotten stuffing shows as an altered message
        (b"a\n.\nb\r.\r\r\n.\r\n", b"a\n.\nb\r.\r\r\n"),
        (bytes(range(256)) * 3 + b"\r\n.\r\n", bytes(range(256)) * 3 + b"\r\n"),
    ],
)
async def test_data_is_taken_byte_for_byte(wire: bytes, content: bytes) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        await smtp.mail()
        assert (await smtp.data(wire)).startswith("250")
        assert (await smtp.ask("QUIT")).startswith("221")
        (arrival,) = lab.hops[0].messages
        assert (arrival.sha256, arrival.size_bytes) == (sha(content), len(content))


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7])
async def test_it_does_not_matter_how_the_bytes_come(piece: int) -> None:
    wire = b"Received: x\r\n y\r\nX-Ledger-Id: 9\r\n..\r\n\r\n.\r\r\n..\r\n\r\n...\n.\r\n.\r\n"
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        await smtp.mail()
        await smtp.ask("DATA")
        for at in range(0, len(wire), piece):
            smtp.send(wire[at : at + piece])
            await asyncio.sleep(0.001)
        assert (await smtp.reply()).startswith("250")
        (arrival,) = lab.hops[0].messages
        assert arrival.id == "9"
        assert arrival.sha256 == sha(b"X-Ledger-Id: 9\r\n.\r\n\r\n\r\r\n.\r\n\r\n..\n.\r\n")


@pytest.mark.parametrize("line", [b"x" * 76 + b"\r\n", b"..\r\n", b"\r\n", b"\r\n.\r", b"\r", b".", b"\r\n..\r\r\n.x"])
async def test_a_big_message_is_digested_in_pieces(line: bytes) -> None:
    wire = line * (600_000 // len(line)) + b"\r\n"
    # What RFC 5321 4.5.2 says, line by line; none of these lines is the end of data.
    content = b"\r\n".join(each[1:] if each[:1] == b"." else each for each in wire.split(b"\r\n"))
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        await smtp.mail()
        assert (await smtp.data(wire + b".\r\n")).startswith("250")
        (arrival,) = lab.hops[0].messages
        assert (arrival.sha256, arrival.size_bytes) == (sha(content), len(content))


async def test_pipelined_commands_are_answered_in_order() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        smtp.send(b"EHLO me\r\nMAIL FROM:<a@b> BODY=8BITMIME SIZE=9\r\nRCPT TO:<c@d>\r\nRCPT TO:<e@f>\r\nDATA\r\n")
        replies = [(await smtp.reply())[:3] for _ in range(5)]
        assert replies == ["250", "250", "250", "250", "354"]
        smtp.send(b'1\r\n.\r\nMAIL FROM:<>\r\nRCPT TO:<"a b>"@d>\r\nDATA\r\n')
        assert [(await smtp.reply())[:3] for _ in range(4)] == ["250", "250", "250", "354"]
        smtp.send(b"2\r\n.\r\nQUIT\r\n")
        assert [(await smtp.reply())[:3] for _ in range(2)] == ["250", "221"]
        first, second = lab.hops[0].messages
        assert (first.sender, first.recipients) == ("a@b", ("c@d", "e@f"))
        assert (first.parameters, first.helo, first.transaction) == ("BODY=8BITMIME SIZE=9", "me", 1)
        assert (second.sender, second.recipients, second.transaction) == ("", ('"a b>"@d',), 2)


async def test_commands_out_of_order_are_refused() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        answers = [await smtp.ask(line) for line in ("RCPT TO:<a@b>", "DATA", "MAIL a@b", "HELP", "NOOP", "VRFY a")]
        assert [answer[:3] for answer in answers] == ["503", "503", "501", "502", "250", "252"]
        assert lab.hops[0].counters.refused == {"503": 2, "501": 1, "502": 1}


async def test_an_endless_command_line_is_cut_off() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        smtp.send(b"x" * 70_000)
        assert (await smtp.reply()).startswith("500")
        assert await smtp.reply() == ""


class _Socket(asyncio.Transport):
    """Takes everything and tells nobody when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


async def test_a_session_counts_no_more_once_it_was_ended_though_its_socket_is_still_there() -> None:
    async with Lab(["limit(1):127.0.0.1:0"]) as lab:
        hop, sockets = lab.hops[0], [_Socket() for _ in range(3)]
        first, second, third = (Session(hop) for _ in sockets)
        first.connection_made(sockets[0])
        second.connection_made(sockets[1])
        assert sockets[1].written.startswith(b"421")
        assert hop.connections == 1
        first.data_received(b"QUIT\r\n")
        assert hop.connections == 0
        third.connection_made(sockets[2])
        assert sockets[2].written.startswith(b"220")
        for session in (first, second, third):
            session.connection_lost(None)


async def test_a_limit_greets_the_next_one_with_421() -> None:
    async with Lab(["limit(1):127.0.0.1:0"]) as lab:
        async with Conversation(lab.hops[0]) as first, Conversation(lab.hops[0]) as second:
            assert first.greeting.startswith("220")
            assert second.greeting.startswith("421")
            assert await second.reply() == ""
        await eventually(lambda: lab.hops[0].counters.connections_now == 0)
        async with Conversation(lab.hops[0]) as third:
            assert third.greeting.startswith("220")


@pytest.mark.parametrize(
    ("behaviour", "stage", "code"),
    [
        ("reject(1, 554, connect)", "connect", "554"),
        ("reject(1, 421, ehlo)", "ehlo", "421"),
        ("reject(*@example.org, 451, mail)", "mail", "451"),
        ("reject(b@*)", "rcpt", "550"),
        ("greylist(60)", "rcpt", "450"),
        ("reject(1, 552, final)", "final", "552"),
        ("reject(c@*)", "final", "250"),
    ],
)
async def test_a_refusal_comes_at_its_stage(behaviour: str, stage: str, code: str) -> None:
    async with Lab([f"{behaviour}:127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        if stage == "connect":
            answer = smtp.greeting
        elif stage == "ehlo":
            answer = await smtp.ask("EHLO me")
        else:
            answer = await smtp.mail()
            if stage == "final":
                assert answer.startswith("250")
                answer = await smtp.data(b"x\r\n.\r\n")
        assert answer.startswith(code)
        assert len(lab.hops[0].messages) == (code == "250")


async def test_a_421_ends_the_session_at_any_stage() -> None:
    async with Lab(["reject(1, 421, mail):127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        assert (await smtp.mail()).startswith("421")
        assert await smtp.reply() == ""


async def test_after_a_refused_message_the_session_goes_on() -> None:
    async with Lab(["reject(1, 452, final):127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        for _ in range(2):
            await smtp.mail()
            assert (await smtp.data(b"x\r\n.\r\n")).startswith("452")
        assert lab.hops[0].counters.messages == 0


@pytest.mark.parametrize("deed", ["rst", "close"])
@pytest.mark.parametrize("stage", ["connect", "ehlo", "mail", "rcpt", "data", "body", "final", "quit"])
async def test_a_connection_ends_at_its_stage(deed: str, stage: str) -> None:
    lines = {
        "connect": b"",
        "ehlo": b"EHLO me\r\n",
        "mail": b"MAIL FROM:<a@b>\r\n",
        "rcpt": b"RCPT TO:<c@d>\r\n",
        "data": b"DATA\r\n",
        "body": b"half",
        "final": b"\r\n.\r\n",
        "quit": b"QUIT\r\n",
    }
    async with Lab([f"{deed}({stage}):127.0.0.1:0"]) as lab, Conversation(lab.hops[0], greeted=False) as smtp:
        ended = False
        for name, line in lines.items():
            smtp.send(line)
            if name == "body" and stage != "body":
                continue
            try:
                ended = await smtp.reply() == ""
            except ConnectionResetError:
                assert deed == "rst"
                ended = True
            assert ended == (name == stage)
            if ended:
                break
        assert ended
        counters = lab.hops[0].counters
        assert (counters.resets, counters.closes) == ((1, 0) if deed == "rst" else (0, 1))
        assert counters.messages == (stage == "quit")


async def test_a_silent_hop_says_nothing_and_bounds_what_it_holds() -> None:
    async with Lab(["silent:127.0.0.1:0"]) as lab, Conversation(lab.hops[0], greeted=False) as smtp:
        smtp.send(b"EHLO me\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(smtp.reply(), 0.1)
        assert lab.hops[0].counters.silences == 1


async def test_a_slow_hop_counts_a_message_only_with_its_reply() -> None:
    async with Lab(["slow(0.2):127.0.0.1:0"]) as lab, Conversation(lab.hops[0]) as smtp:
        await smtp.mail()
        await smtp.ask("DATA")
        smtp.send(b"x\r\n.\r\nMAIL FROM:<next@b>\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(smtp.reply(), 0.05)
        assert lab.hops[0].messages == []
        assert (await smtp.reply()).startswith("250")
        assert len(lab.hops[0].messages) == 1
        assert (await smtp.reply()).startswith("250")


async def test_a_client_that_leaves_a_slow_hop_has_delivered_nothing() -> None:
    async with Lab(["slow(0.05):127.0.0.1:0"]) as lab:
        async with Conversation(lab.hops[0]) as smtp:
            await smtp.mail()
            await smtp.ask("DATA")
            smtp.send(b"x\r\n.\r\n")
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert lab.hops[0].counters.messages == 0


async def test_a_keyword_can_be_left_out() -> None:
    async with Lab(["without(PIPELINING, size):127.0.0.1:0", "without(ehlo):127.0.0.1:0"]) as lab:
        async with Conversation(lab.hops[0]) as smtp:
            answer = await smtp.ask("EHLO me")
            assert "8BITMIME" in answer
            assert "PIPELINING" not in answer
            assert "SIZE" not in answer
        async with Conversation(lab.hops[1]) as smtp:
            assert (await smtp.ask("EHLO me")).startswith("502")
            assert (await smtp.ask("HELO me")).startswith("250")
