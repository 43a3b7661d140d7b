"""One transaction with a server that answers as it is told: what becomes of every recipient, and what goes over the wire."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from mailcore.deliverer.message_data import DamagedError
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from tests.deliverer.delivery import BODY, Sender, outcomes, words
from tests.deliverer.scripted_server import Act, ScriptedServer, serving

PLAIN = ("SIZE", "8BITMIME")  # no PIPELINING
BIG = b"Subject: big\r\n\r\n" + (b"x" * 76 + b"\r\n") * 100_000


@pytest.fixture(params=["pipelining", "plain"])
def keywords(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("PIPELINING", *PLAIN) if request.param == "pipelining" else PLAIN


async def test_what_is_accepted_is_delivered_byte_for_byte(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        result = await Sender(tmp_path, server.port).send("a@example.org", "b@example.org")
        assert [(verdict.dsn, verdict.reply) for verdict in result.verdicts] == [
            ("2.0.0", "250 2.0.0 Ok: queued as 4F")
        ] * 2
        assert result.relay == f"mx.example.org[127.0.0.1]:{server.port}"
        assert (result.tls, result.site_failure) == ("", False)
        (message,) = server.messages
        assert message.sender == f"<from@example.net> SIZE={len(BODY)}"
        assert message.recipients == ["<a@example.org>", "<b@example.org>"]
        assert message.data == BODY


async def test_pipelined_commands_go_out_in_one_write(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        await Sender(tmp_path, server.port).send("a@example.org", "b@example.org")
        assert server.bursts[1].split(b"\r\n") == [
            b"MAIL FROM:<from@example.net> SIZE=%d" % len(BODY),
            b"RCPT TO:<a@example.org>",
            b"RCPT TO:<b@example.org>",
            b"DATA",
            b"",
        ]


async def test_without_pipelining_every_command_waits_for_its_reply(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=PLAIN)) as server:
        await Sender(tmp_path, server.port).send("a@example.org", "b@example.org")
        assert [burst.count(b"\n") for burst in server.bursts] == [1] * len(server.bursts)


async def test_each_recipient_gets_its_own_verdict(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    refuse = {
        "later@example.org": b"450 4.2.1 busy\r\n",
        "never@example.org": b"550-5.1.1 no\r\n550 5.1.1 such user\r\n",
        "full@example.org": b"452 4.5.3 Too many recipients\r\n",
        "old@example.org": b"552 5.5.3 Too many recipients\r\n",
        "plain@example.org": b"553 no code\r\n",
    }
    async with serving(ScriptedServer(keywords=keywords, refuse=refuse)) as server:
        result = await Sender(tmp_path, server.port).send("good@example.org", *refuse)
        assert outcomes(result) == [
            ("delivered", "2.0.0"),
            ("deferred", "4.2.1"),
            ("bounced", "5.1.1"),
            ("deferred", "4.5.3"),
            ("deferred", "4.5.3"),
            ("bounced", "5.0.0"),
        ]
        never = next(verdict for verdict in result.verdicts if verdict.number == 2)
        assert never.reply == (
            "host mx.example.org[127.0.0.1] said: 550-5.1.1 no 550 5.1.1 such user (in reply to RCPT TO command)"
        )
        assert server.messages[0].recipients == ["<good@example.org>"]
        assert not result.site_failure


async def test_when_all_are_refused_no_data_is_sent_and_the_next_message_begins_afresh(
    tmp_path: Path, keywords: tuple[str, ...]
) -> None:
    server = ScriptedServer({"DATA": [b"554 5.5.1 no valid recipients\r\n", b"354 go\r\n"]}, keywords=keywords)
    server.refuse["no@example.org"] = b"550 5.1.1 no\r\n"
    if keywords == PLAIN:
        del server.answers["DATA"]
    async with serving(server):
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send("no@example.org")) == [("bounced", "5.1.1")]
        assert server.messages == []
        assert outcomes(await sender.send("yes@example.org")) == [("delivered", "2.0.0")]
        assert len(server.sessions) == 1
        assert "RSET" in server.sessions[0].verbs
        assert len(server.messages) == 1


async def test_a_go_ahead_for_nobody_is_answered_with_a_lone_dot(tmp_path: Path) -> None:
    server = ScriptedServer({"DOT": [b"554 5.5.1 no valid recipients\r\n", b"250 2.0.0 Ok\r\n"]})
    server.refuse["no@example.org"] = b"550 5.1.1 no\r\n"
    async with serving(server):
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send("no@example.org")) == [("bounced", "5.1.1")]
        assert server.messages[0].data == b""
        assert outcomes(await sender.send("yes@example.org")) == [("delivered", "2.0.0")]
        assert server.messages[1].data == BODY


@pytest.mark.parametrize(
    ("verb", "command"), [("MAIL", "MAIL FROM"), ("RCPT", "RCPT TO"), ("DATA", "DATA"), ("DOT", "end of DATA")]
)
@pytest.mark.parametrize(
    ("reply", "expected"), [(b"451 4.3.0 later", ("deferred", "4.3.0")), (b"554 5.6.0 never", ("bounced", "5.6.0"))]
)
async def test_a_refusal_at_any_command_says_which(
    tmp_path: Path, keywords: tuple[str, ...], verb: str, command: str, reply: bytes, expected: tuple[str, str]
) -> None:
    answers: dict[str, list[bytes | Act]] = {verb: [reply + b"\r\n", *ok(verb)]}
    if verb in {"MAIL", "RCPT"}:  # a server that pipelines refuses the rest as well
        answers["DATA"] = [b"503 5.5.1 no\r\n", *ok("DATA")] if "PIPELINING" in keywords else ok("DATA")
    if verb == "MAIL" and "PIPELINING" in keywords:
        answers["RCPT"] = [b"503 5.5.1 no\r\n", *ok("RCPT")]
    async with serving(ScriptedServer(answers, keywords=keywords)) as server:  # type: ignore[arg-type]
        sender = Sender(tmp_path, server.port)
        result = await sender.send()
        assert outcomes(result) == [expected]
        text = f"host mx.example.org[127.0.0.1] said: {reply.decode()} (in reply to {command} command)"
        assert words(result) == text
        assert not result.site_failure
        assert outcomes(await sender.send()) == [("delivered", "2.0.0")]
        assert len(server.sessions) == 1  # the connection was good for the next message


def ok(verb: str) -> list[bytes | Act]:
    return [{"MAIL": b"250 Ok\r\n", "RCPT": b"250 Ok\r\n", "DATA": b"354 go\r\n", "DOT": b"250 2.0.0 Ok\r\n"}[verb]]


@pytest.mark.parametrize(
    ("verb", "stage"),
    [
        ("MAIL", "sending MAIL FROM"),
        ("RCPT", "sending RCPT TO"),
        ("DATA", "sending DATA command"),
        ("DOT", "sending end of data -- message may be sent more than once"),
    ],
)
@pytest.mark.parametrize("act", [Act.HANG_UP, Act.RESET])
async def test_a_lost_connection_defers_and_says_at_what(
    tmp_path: Path, keywords: tuple[str, ...], verb: str, stage: str, act: Act
) -> None:
    async with serving(ScriptedServer({verb: act}, keywords=keywords)) as server:
        result = await Sender(tmp_path, server.port).send()
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert words(result) == f"lost connection with mx.example.org[127.0.0.1] while {stage}"
        assert not result.site_failure


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
async def test_a_silent_server_is_given_up_after_the_time_out(
    tmp_path: Path, keywords: tuple[str, ...], verb: str
) -> None:
    async with serving(ScriptedServer({verb: Act.SILENCE}, keywords=keywords)) as server:
        sender = Sender(tmp_path, server.port, command_timeout_s=0.2, final_timeout_s=0.2)
        result = await sender.send()
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert words(result).startswith("conversation with mx.example.org[127.0.0.1] timed out while sending ")
        await server.sessions[0].ended.wait()


async def test_421_at_any_time_ends_the_connection_but_not_those_already_refused(tmp_path: Path) -> None:
    server = ScriptedServer({"RCPT": b"421 4.3.2 shutting down\r\n"}, keywords=PLAIN)
    server.refuse["no@example.org"] = b"550 5.1.1 no\r\n"
    async with serving(server):
        sender = Sender(tmp_path, server.port)
        result = await sender.send("no@example.org", "a@example.org", "b@example.org")
        assert outcomes(result) == [("bounced", "5.1.1"), ("deferred", "4.3.2"), ("deferred", "4.4.2")]
        await server.sessions[0].ended.wait()
        assert server.sessions[0].verbs.count("RCPT") == 2


async def test_nonsense_instead_of_a_reply_defers(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer({"DATA": b"come on in\r\n"}, keywords=keywords)) as server:
        result = await Sender(tmp_path, server.port).send()
        assert outcomes(result) == [("deferred", "4.5.0")]
        assert "protocol error" in words(result)


async def test_a_success_before_the_dot_is_no_delivery(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    server = ScriptedServer({"DATA": b"354 go\r\n250 2.0.0 Ok: queued already\r\n"}, keywords=keywords)
    async with serving(server):
        result = await Sender(tmp_path, server.port).send()
        assert outcomes(result) == [("deferred", "4.5.0")]
        assert server.messages == []


async def test_a_refusal_while_data_is_sent_counts_at_once(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        server.data_go_on.clear()
        sending = asyncio.create_task(Sender(tmp_path, server.port).send(body=BIG))
        await server.data_begun.wait()
        writer = server.sessions[0].writer
        assert writer is not None
        writer.write(b"552 5.3.4 enough\r\n")
        result = await sending
        assert outcomes(result) == [("bounced", "5.3.4")]
        server.data_go_on.set()
        await server.sessions[0].ended.wait()
        assert server.messages == []


async def test_big_data_arrives_byte_for_byte(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        assert outcomes(await Sender(tmp_path, server.port).send(body=BIG)) == [("delivered", "2.0.0")]
        assert server.messages[0].data == BIG


@pytest.mark.parametrize(
    "length", [0, 2, BLOCK_BYTES - 2, BLOCK_BYTES, BLOCK_BYTES + 1, BLOCK_BYTES + 2, 2 * BLOCK_BYTES]
)
async def test_sizes_around_the_block_arrive_whole(tmp_path: Path, length: int) -> None:
    body = b"x" * max(0, length - 2) + b"\r\n"[: min(2, length)]
    async with serving(ScriptedServer()) as server:
        assert outcomes(await Sender(tmp_path, server.port).send(body=body)) == [("delivered", "2.0.0")]
        assert server.messages[0].data == body


async def test_data_without_a_last_line_end_gets_one_for_the_dot(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        assert outcomes(await Sender(tmp_path, server.port).send(body=b"Subject: x\r\n\r\nno end")) == [
            ("delivered", "2.0.0")
        ]
        assert server.messages[0].data == b"Subject: x\r\n\r\nno end\r\n"


async def test_thirty_megabytes_to_a_slow_server_never_lie_in_memory(tmp_path: Path) -> None:
    body = (b"x" * 998 + b"\r\n") * 30_000
    async with serving(ScriptedServer(keep_data=False)) as server:
        sender = Sender(tmp_path, server.port)
        work = sender.work(body=body)
        size = len(body)
        del body
        tracemalloc.start()
        try:
            server.data_go_on.clear()
            sending = asyncio.create_task(sender.deliver(work))
            await server.data_begun.wait()
            for _ in range(20):  # time enough to read it all, if nothing held it back
                await asyncio.sleep(0.01)
            server.data_go_on.set()
            assert outcomes(await sending) == [("delivered", "2.0.0")]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert server.sessions[0].data_bytes == size + len(b".\r\n")
        assert peak < 2_000_000  # uvloop's own buffers, the server's streams, and two chunks


async def test_no_progress_of_the_data_is_a_time_out(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        server.data_go_on.clear()
        result = await Sender(tmp_path, server.port, data_timeout_s=0.3).send(body=BIG)
        assert outcomes(result) == [("deferred", "4.4.2")]
        assert words(result) == "conversation with mx.example.org[127.0.0.1] timed out while sending message body"


async def test_big_data_without_a_last_line_end_gets_one_for_the_dot(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        body = BIG + b"no end"
        assert outcomes(await Sender(tmp_path, server.port).send(body=body)) == [("delivered", "2.0.0")]
        assert server.messages[0].data == body + b"\r\n"


@pytest.mark.parametrize("block", [0, 1, -1])
async def test_a_block_that_does_not_match_is_not_sent_and_the_dot_never_follows(
    tmp_path: Path, keywords: tuple[str, ...], block: int
) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        sender = Sender(tmp_path, server.port)
        work = sender.work(body=BIG)
        start = block * BLOCK_BYTES if block >= 0 else (len(BIG) - 1) // BLOCK_BYTES * BLOCK_BYTES
        at = min(start + 1000, len(BIG) - 1)
        sender.change(work, at)
        data = sender.open(work, sums_of(BIG))
        result, data_error = await sender.client.deliver(work, data)
        data.close()
        assert outcomes(result) == [("deferred", "4.3.0")]
        assert isinstance(data_error, DamagedError)
        assert work.path in str(data_error)
        await server.sessions[0].ended.wait()
        assert server.sessions[0].data_bytes <= start  # no byte of the block went out
        assert outcomes(await sender.send()) == [("delivered", "2.0.0")]
        assert [message.data for message in server.messages] == [BODY]  # over another connection
        assert len(server.sessions) == 2


async def test_data_that_ends_too_early_is_never_completed(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        server.data_go_on.clear()
        sender = Sender(tmp_path, server.port)
        work = sender.work(body=BIG)
        data = sender.open(work)
        sending = asyncio.create_task(sender.client.deliver(work, data))
        await server.data_begun.wait()
        os.truncate(work.path, len(BIG) - 10)
        server.data_go_on.set()
        result, data_error = await sending
        assert outcomes(result) == [("deferred", "4.3.0")]
        assert isinstance(data_error, DamagedError)
        assert work.path in str(data_error)
        assert outcomes(await sender.send()) == [("delivered", "2.0.0")]
        assert [message.data for message in server.messages] == [BODY]  # over another connection


async def test_a_cancelled_delivery_never_gets_its_dot(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        server.data_go_on.clear()
        sending = asyncio.create_task(Sender(tmp_path, server.port).send(body=BIG))
        await server.data_begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        server.data_go_on.set()
        await server.sessions[0].ended.wait()
        assert server.messages == []


# Addresses and extensions


@pytest.mark.parametrize(
    "address",
    ["b>@example.org", "b\n@example.org", "b@example.org> SIZE=1", "b c@example.org", "nobody", "b@", "@example.org",
     "b@exa mple.org", 'b"@example.org', "b@example.org\r\nDATA", "x" * 300 + "@example.org"],
)  # fmt: skip
async def test_a_bad_address_never_reaches_the_wire(tmp_path: Path, address: str) -> None:
    async with serving(ScriptedServer()) as server:
        result = await Sender(tmp_path, server.port).send("good@example.org", address)
        assert outcomes(result) == [("delivered", "2.0.0"), ("bounced", "5.1.3")]
        assert [line for line in server.sessions[0].lines if line.startswith("RCPT")] == ["RCPT TO:<good@example.org>"]


async def test_a_quoted_local_part_is_sent_as_it_is(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        await Sender(tmp_path, server.port).send('"a b\\" <c>"@example.org', "x@[IPv6:2001:db8::1]", sender="")
        assert server.messages[0].recipients == ['<"a b\\" <c>"@example.org>', "<x@[IPv6:2001:db8::1]>"]
        assert server.messages[0].sender.startswith("<> ")


async def test_a_bad_sender_bounces_all(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        result = await Sender(tmp_path, server.port).send(sender="a> BODY=8BITMIME@example.net")
        assert outcomes(result) == [("bounced", "5.1.7")]
        assert "MAIL" not in server.sessions[0].verbs


async def test_what_the_server_offers_is_used(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server:
        sender = Sender(tmp_path, server.port)
        await sender.send("dé@example.org", eight_bit=True, smtputf8=True)
        assert server.messages[0].sender == f"<from@example.net> SIZE={len(BODY)} BODY=8BITMIME SMTPUTF8"
        assert server.messages[0].recipients == ["<dé@example.org>"]


async def test_what_the_server_does_not_offer_is_not_used(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=())) as server:
        result = await Sender(tmp_path, server.port).send(eight_bit=True, smtputf8=True)
        assert outcomes(result) == [("delivered", "2.0.0")]  # the header is ASCII: SMTPUTF8 was not needed
        assert server.messages[0].sender == "<from@example.net>"


async def test_who_needs_smtputf8_bounces_where_it_is_not_offered(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=("PIPELINING",))) as server:
        sender = Sender(tmp_path, server.port)
        assert outcomes(await sender.send("dé@example.org", "de@example.org")) == [
            ("bounced", "5.6.7"),
            ("delivered", "2.0.0"),
        ]
        assert outcomes(await sender.send(sender="dé@example.net")) == [("bounced", "5.6.7")]
        header = "Subject: ü\r\n\r\n".encode()
        assert outcomes(await sender.send(body=header, smtputf8=True)) == [("bounced", "5.6.7")]
        assert outcomes(await sender.send(body=b"Subject: u\r\n\r\n\xfc\r\n", smtputf8=True)) == [
            ("delivered", "2.0.0")
        ]


async def test_a_message_bigger_than_the_server_takes_bounces_without_being_sent(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=("SIZE 20",))) as server:
        assert outcomes(await Sender(tmp_path, server.port).send()) == [("bounced", "5.3.4")]
        assert "MAIL" not in server.sessions[0].verbs
