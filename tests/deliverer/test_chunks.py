"""A transport that prefers BDAT (RFC 3030): the octets that DATA would bring, and a verdict for each reply that may come."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.config.load import load_text
from mailcore.config.protocol import chunked_transports
from mailcore.deliverer.chunks import AHEAD_MAX
from mailcore.deliverer.keyword_masks import KeywordMasks
from mailcore.deliverer.message_data import DamagedError
from mailcore.esmtp import BINARY
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from tests.deliverer.delivery import BODY, Sender, outcomes, words
from tests.deliverer.lmtp_server import LmtpServer, storing
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

CHUNKING = ("PIPELINING", "8BITMIME", "CHUNKING")
ONE_BY_ONE = CHUNKING[1:]
A, B, C = "a@example.org", "b@example.org", "c@example.org"
BIG = b"Subject: big\r\n\r\n" + b"x" * 998 + b"\r\n" * 5 * BLOCK_BYTES
DELIVERED = ("delivered", "2.0.0")
GONE = b"550 5.1.1 no\r\n"


def chunked(directory: Path, server: ScriptedServer, **changes: object) -> Sender:
    return Sender(directory, server.port, chunked=["smtp"], **changes)  # type: ignore[arg-type]


def destuffed(data: bytes) -> bytes:
    """What a server makes of data (RFC 5321 4.5.2)."""
    return (b"\r\n" + data).replace(b"\r\n.", b"\r\n")[2:]


def chunks_of(server: ScriptedServer) -> list[str]:
    return [line for session in server.sessions for line in session.lines if line.startswith("BDAT")]


@pytest.mark.parametrize("keywords", [CHUNKING, ONE_BY_ONE, CHUNKING[::2]], ids=["pipelining", "one by one", "7 bits"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        BODY,
        b"Subject: x\r\n\r\nno end",
        b"Subject: x\r\n\r\nHall\xc3\xb6\r\n..\r\n...\r\n.x\r\n..end\r\n",
        b"..\r\n",
        *(b"S: x\r\n\r\n" + b"y" * (BLOCK_BYTES - 8 - shift) + b"\r\n..dot\r\n.x\r\n" * 9_000 for shift in range(5)),
        *(b"S: x\r\n\r\n" + b"y" * (BLOCK_BYTES - 8 - shift) + b"\r\n" for shift in range(3)),
    ],
    ids=lambda body: f"{len(body)}",
)
async def test_the_octets_are_those_of_data(tmp_path: Path, keywords: tuple[str, ...], body: bytes) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        assert outcomes(await Sender(tmp_path, server.port).send(body=body)) == [DELIVERED]
        assert outcomes(await chunked(tmp_path, server).send(body=body)) == [DELIVERED]
        by_data, by_chunks = server.messages
    assert by_chunks.data == destuffed(by_data.data)
    lines = chunks_of(server)
    assert [line.endswith(" LAST") for line in lines] == [False] * (len(lines) - 1) + [True]
    assert all(int(line.split()[1]) <= BLOCK_BYTES + 3 for line in lines)  # what a block holds back of a line's end
    assert "DATA" not in server.sessions[1].verbs


async def test_the_first_chunk_waits_for_the_replies_to_rcpt(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=CHUNKING, refuse={B: GONE})) as server:
        result = await chunked(tmp_path, server).send(A, B, C)
    assert outcomes(result) == [DELIVERED, ("bounced", "5.1.1"), DELIVERED]
    assert [burst.count(b"\r\n") for burst in server.bursts[:2]] == [1, 4]  # EHLO; MAIL and RCPT together
    assert server.bursts[2].startswith(b"BDAT ")
    assert server.messages[0].recipients == [f"<{A}>", f"<{C}>"]
    assert result.verdicts[-1].reply == "250 2.0.0 Ok: queued as 4F"


@pytest.mark.parametrize("keywords", [CHUNKING, ONE_BY_ONE])
async def test_no_chunk_follows_when_all_were_refused_and_the_connection_is_used_again(
    tmp_path: Path, keywords: tuple[str, ...]
) -> None:
    async with serving(ScriptedServer(keywords=keywords, refuse={A: GONE, B: b"450 4.2.1 later\r\n"})) as server:
        sender = chunked(tmp_path, server)
        assert outcomes(await sender.send(A, B)) == [("bounced", "5.1.1"), ("deferred", "4.2.1")]
        assert not chunks_of(server)
        assert outcomes(await sender.send(C)) == [DELIVERED]
    assert len(server.sessions) == 1
    assert server.sessions[0].verbs[1:] == ["MAIL", "RCPT", "RCPT", "RSET", "MAIL", "RCPT", "BDAT"]
    assert server.messages[0].data == destuffed(BODY)


@pytest.mark.parametrize("keywords", [CHUNKING, ONE_BY_ONE])
@pytest.mark.parametrize("verb", ["BDAT", "LAST"])
@pytest.mark.parametrize(
    ("reply", "expected"),
    [(b"452 4.3.1 full\r\n", ("deferred", "4.3.1")), (b"552 5.3.4 too big\r\n", ("bounced", "5.3.4")),
     (b"503 5.5.1 no\r\n", ("bounced", "5.5.1")), (b"421 4.3.2 bye\r\n", ("deferred", "4.3.2"))],
)  # fmt: skip
async def test_a_refused_chunk_is_the_verdict_and_the_next_message_begins_afresh(
    tmp_path: Path, keywords: tuple[str, ...], verb: str, reply: bytes, expected: tuple[str, str]
) -> None:
    answers: dict[str, Answer | list[Answer]] = {verb: [reply, b"250 2.0.0 Ok\r\n"]}
    async with serving(ScriptedServer(answers, keywords=keywords, refuse={B: GONE})) as server:
        sender = chunked(tmp_path, server)
        result = await sender.send(A, B, C, body=BIG)
        assert outcomes(result) == [expected, ("bounced", "5.1.1"), expected]
        assert words(result).endswith(f"said: {reply.decode().strip()} (in reply to BDAT command)")
        assert any(line.endswith(" LAST") for line in chunks_of(server)) is (verb == "LAST")
        assert outcomes(await sender.send(A)) == [DELIVERED]
    assert server.messages[-1].data == destuffed(BODY)
    assert len(server.sessions) == (2 if reply.startswith(b"421") else 1)


@pytest.mark.parametrize("act", [Act.HANG_UP, Act.RESET, Act.SILENCE])
@pytest.mark.parametrize("verb", ["BDAT", "LAST"])
async def test_only_a_lost_last_chunk_leaves_it_open_whether_the_mail_was_taken(
    tmp_path: Path, verb: str, act: Act
) -> None:
    async with serving(ScriptedServer({verb: act}, keywords=CHUNKING)) as server:
        sender = chunked(tmp_path, server, data_timeout_s=0.3, final_timeout_s=0.3)
        result = await sender.send(body=BIG)
    assert outcomes(result) == [("deferred", "4.4.2")]
    assert ("message may be sent more than once" in words(result)) is (verb == "LAST")
    assert len(server.sessions) == 1 or verb == "BDAT"


@pytest.mark.parametrize("body", [BODY, BIG], ids=["small", "big"])
@pytest.mark.parametrize("verb", ["RCPT", "BDAT"])
async def test_a_success_before_the_last_chunk_is_no_delivery(tmp_path: Path, verb: str, body: bytes) -> None:
    twice = b"250 2.0.0 Ok\r\n" * 2
    async with serving(ScriptedServer({verb: twice, "LAST": Act.HANG_UP}, keywords=CHUNKING)) as server:
        result = await chunked(tmp_path, server).send(body=body)
        expected = "4.4.2" if (verb, body) == ("BDAT", BODY) else "4.5.0"
        assert outcomes(result) == [("deferred", expected)]
        assert not any(line.endswith(" LAST") for line in chunks_of(server)) or expected == "4.4.2"


@pytest.mark.parametrize("verb", ["BDAT", "LAST"])
async def test_354_for_a_chunk_is_out_of_step(tmp_path: Path, verb: str) -> None:
    async with serving(ScriptedServer({verb: b"354 go\r\n"}, keywords=CHUNKING)) as server:
        assert outcomes(await chunked(tmp_path, server).send(body=BIG)) == [("deferred", "4.5.0")]


@pytest.mark.parametrize("lmtp", [(), ("smtp",)], ids=["smtp", "lmtp"])
@pytest.mark.parametrize(
    ("reply", "expected"),
    [(b"500 5.5.1 what\r\n", "4.5.1"), (b"502 5.5.2 not implemented\r\n", "4.5.2"), (b"500 what\r\n", "4.0.0")],
)
@pytest.mark.parametrize("body", [BODY, BIG], ids=["small", "big"])
async def test_mail_waits_if_the_server_does_not_know_bdat_and_the_conversation_ends(
    tmp_path: Path, body: bytes, reply: bytes, expected: str, lmtp: tuple[str, ...]
) -> None:
    """Such a server reads the octets of the message as commands, so no more of them come, and no other mail."""
    scripted = LmtpServer if lmtp else ScriptedServer
    async with serving(scripted(answers={"BDAT": reply, "LAST": reply}, keywords=CHUNKING)) as server:
        result = await chunked(tmp_path, server, lmtp=lmtp).send(A, B, body=body)
        assert outcomes(result) == [("deferred", expected)] * 2
        for session in server.sessions:
            await session.ended.wait()
            assert "QUIT" not in session.verbs


@pytest.mark.parametrize("reply", [b"500 5.7.1 spam\r\n", b"502 5.7.1 spam\r\n"])
@pytest.mark.parametrize("body", [BODY, BIG], ids=["small", "big"])
async def test_500_about_the_mail_is_the_verdict_as_after_data(tmp_path: Path, body: bytes, reply: bytes) -> None:
    """The server may yet read the octets as commands, so no other mail follows."""
    answers: dict[str, Answer | list[Answer]] = {"BDAT": reply, "LAST": reply, "DOT": reply}
    async with serving(ScriptedServer(answers, keywords=CHUNKING)) as server:
        by_data = await Sender(tmp_path, server.port).send(A, B, body=body)
        by_chunks = await chunked(tmp_path, server).send(A, B, body=body)
        assert outcomes(by_chunks) == outcomes(by_data) == [("bounced", "5.7.1")] * 2
        assert words(by_chunks).endswith(f"said: {reply.decode().strip()} (in reply to BDAT command)")
        await server.sessions[1].ended.wait()
        assert len(server.sessions) == 2
        assert "QUIT" not in server.sessions[1].verbs


@pytest.mark.parametrize("keywords", [CHUNKING, ONE_BY_ONE])
@pytest.mark.parametrize("verb", ["BDAT", "LAST"])
async def test_500_after_a_chunk_that_was_taken_is_the_verdict(
    tmp_path: Path, keywords: tuple[str, ...], verb: str
) -> None:
    reply = b"500 5.5.1 no\r\n"
    answers: dict[str, Answer | list[Answer]] = {"BDAT": [b"250 Ok\r\n", reply], "LAST": [b"250 Ok\r\n"]}
    if verb == "LAST":
        answers = {"LAST": [reply, b"250 Ok\r\n"]}
    async with serving(ScriptedServer(answers, keywords=keywords)) as server:
        sender = chunked(tmp_path, server)
        assert outcomes(await sender.send(A, body=BIG)) == [("bounced", "5.5.1")]
        assert any(line.endswith(" LAST") for line in chunks_of(server)) is (verb == "LAST")
        assert outcomes(await sender.send(A)) == [("delivered", "2.0.0")]
    assert len(server.sessions) == 1


@pytest.mark.parametrize(("keywords", "count"), [(CHUNKING, AHEAD_MAX), (ONE_BY_ONE, 1)])
async def test_chunks_that_were_not_answered_are_few(tmp_path: Path, keywords: tuple[str, ...], count: int) -> None:
    async with serving(ScriptedServer({"BDAT": Act.SILENCE}, keywords=keywords)) as server:
        body = b"Subject: x\r\n\r\n" + (b"x" * 998 + b"\r\n") * 2_000
        result = await chunked(tmp_path, server, data_timeout_s=0.3).send(body=body)
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert server.sessions[0].verbs.count("BDAT") == count


@pytest.mark.parametrize("block", [1, 3, -1])
async def test_the_last_chunk_never_follows_a_block_that_does_not_match(tmp_path: Path, block: int) -> None:
    async with serving(ScriptedServer(keywords=CHUNKING)) as server:
        sender = chunked(tmp_path, server)
        work = sender.work(body=BIG)
        start = block * BLOCK_BYTES if block >= 0 else (len(BIG) - 1) // BLOCK_BYTES * BLOCK_BYTES
        sender.change(work, min(start + 1000, len(BIG) - 1))
        data = sender.open(work, sums_of(BIG))
        result, data_error = await sender.client.deliver(work, data)
        data.close()
        assert outcomes(result) == [("deferred", "4.3.0")]
        assert isinstance(data_error, DamagedError)
        await server.sessions[0].ended.wait()
        assert not any(line.endswith(" LAST") for line in chunks_of(server))
        assert outcomes(await sender.send()) == [DELIVERED]
        assert [message.data for message in server.messages] == [destuffed(BODY)]


@pytest.mark.parametrize("options", [(), (BINARY,)], ids=["text", "binary"])
@pytest.mark.parametrize("body", [BODY, BIG], ids=["small", "big"])
async def test_each_recipient_of_lmtp_has_a_reply_to_the_last_chunk(
    tmp_path: Path, options: tuple[tuple[str, str], ...], body: bytes
) -> None:
    fates: dict[str, Answer] = {A: b"452 4.2.2 Over quota\r\n", C: b"550 5.7.1 No\r\n"}
    async with storing(LmtpServer(fates, keywords=(*CHUNKING, "BINARYMIME"), refuse={"d@x.org": GONE})) as server:
        sender = chunked(tmp_path, server, lmtp=["smtp"])
        work = msgspec.structs.replace(sender.work(A, "d@x.org", B, C, body=body), options=options)
        result = await sender.deliver(work)
        assert outcomes(result) == [
            ("deferred", "4.2.2"), ("bounced", "5.1.1"), ("delivered", "2.1.5"), ("bounced", "5.7.1"),
        ]  # fmt: skip
        assert words(result).endswith("said: 452 4.2.2 Over quota (in reply to BDAT command)")
        assert outcomes(await sender.send(B)) == [("delivered", "2.1.5")]
        assert len(server.sessions) == 1
        assert server.messages[0].data == destuffed(body)


@pytest.mark.parametrize(
    ("body", "reply"),
    [(BODY, b"500 5.2.2 Full\r\n"), (BIG, b"500 5.2.2 Full\r\n"), (BIG, b"500 5.5.1 No\r\n"), (BIG, b"502 No\r\n")],
    ids=["small", "big", "of the protocol", "without enhanced code"],
)
async def test_500_for_one_recipient_of_lmtp_is_its_verdict_as_after_data(
    tmp_path: Path, body: bytes, reply: bytes
) -> None:
    async with storing(LmtpServer({A: reply}, keywords=CHUNKING)) as server:
        by_data = await Sender(tmp_path, server.port, lmtp=["smtp"]).send(A, B, body=body)
        by_chunks = await chunked(tmp_path, server, lmtp=["smtp"]).send(A, B, body=body)
        code = reply[4:9].decode() if reply[4:5] == b"5" else "5.0.0"
        assert outcomes(by_chunks) == outcomes(by_data) == [("bounced", code), ("delivered", "2.1.5")]
        assert server.delivered == [B, B]


async def test_a_reply_of_lmtp_that_does_not_come_takes_no_other_back(tmp_path: Path) -> None:
    async with storing(LmtpServer({B: Act.HANG_UP}, keywords=CHUNKING)) as server:
        result = await chunked(tmp_path, server, lmtp=["smtp"]).send(A, B, C)
    assert outcomes(result) == [("delivered", "2.1.5"), ("deferred", "4.4.2"), ("deferred", "4.4.2")]


async def test_data_is_used_unless_it_is_preferred_and_offered_and_not_discarded(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=CHUNKING)) as server:
        await Sender(tmp_path, server.port).send()
        masks = KeywordMasks({"smtp": ("CHUNKING",)}, {}, 25)
        await chunked(tmp_path, server, masks=masks).send()
        assert not chunks_of(server)
    async with serving(ScriptedServer(keywords=CHUNKING[:-1])) as server:
        await chunked(tmp_path, server).send()
        assert not chunks_of(server)
    text = "[transports.smtp]\nchunking = 'preferred'\n[transports.other]\n"
    assert chunked_transports(load_text(tmp_path / "waypost.toml", text).transports) == {"smtp"}
