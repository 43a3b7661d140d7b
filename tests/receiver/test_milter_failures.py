"""Milters that fail, in each way and at each step; and clients and disks that fail while milters work."""

from __future__ import annotations

import errno
import random
import struct

import pytest

from mailcore.config.listeners import Listener
from mailcore.config.milters import Milter
from tests.eventually import eventually
from tests.milter.scripted import (
    CLOSE,
    CONTINUE,
    ENDLESS,
    SILENT,
    add_header,
    framed,
    milter,
    reply_code,
)
from tests.receiver.milters import MESSAGE, OK, send, session
from tests.receiver.server_in_process import serving

BROKEN = {
    "closes": CLOSE,
    "closes in a packet": b"\0\0\0\5h" + CLOSE,
    "hangs": SILENT,
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "empty packet": b"\0\0\0\0",
    "too large": b"\xff\xff\xff\xffc",
    "unknown code": framed("?"),
    "data behind continue": framed("c", b"x"),
    "no reply of SMTP": reply_code(b"hello"),
    "success as reply": reply_code(b"250 2.0.0 ok"),
}
SAYS = {
    "closes": "closed the connection",
    "hangs": "did not answer within 0.2 s",
    "garbage": "sent a packet of 1213486160 bytes",
    "too large": "sent a packet of 4294967295 bytes",
    "not negotiated": "wants REPLACE_BODY, which it has not negotiated",
    "endless body": "sent a body of more than 10000 bytes",
    "endless header": "wants more than 10000 changes or 4194304 bytes of them",
}
OF_THE_END = {
    "half of the changes": add_header("X-New", b"1") + framed("b", b"new") + CLOSE,
    "not negotiated": framed("b", b"new") + CONTINUE,
    "bare CR": framed("b", b"a\rb") + CONTINUE,
    "NUL": framed("b", b"a\0b") + CONTINUE,
    "a name with a colon": add_header("a:b", b"1") + CONTINUE,
    "no texts": framed("h", b"x") + CONTINUE,
    "bad recipient": framed("+", b"<no at sign>\0") + CONTINUE,
    "bad sender": framed("e", b"<a@b@c>\0") + CONTINUE,
    "endless body": 40 * framed("b", 30 * b"0123456789\r\n") + CONTINUE,
    "endless header": 6 * add_header("X", 900_000 * b"x") + CONTINUE,
}
ACTIONS = {
    "tempfail": b"451 4.7.1 Service unavailable - try again later\r\n",
    "reject": b"550 5.5.0 Service unavailable\r\n",
    "accept": OK,
    "quarantine": OK,
}


@pytest.mark.parametrize("step", ["M", "E"])
@pytest.mark.parametrize("action", ["tempfail", "accept"])
async def test_a_milter_that_asks_for_more_time_without_end_fails(step: str, action: str) -> None:
    async with milter(script={step: ENDLESS}) as filter_:
        settings = Milter(
            address=filter_.address,
            default_action=action,
            command_timeout_s=0.3,
            content_timeout_s=0.3,
            message_timeout_s=0.3,
        )
        async with session(filter_, milters=(settings,)) as (server, client):
            await client.hello()
            if step == "M" and action == "tempfail":
                assert await client.ask(b"MAIL FROM:<a@example.com>") == ACTIONS[action]
            else:
                assert await send(client) == ACTIONS[action]
            (failed,) = server.intake.milters_failed
            assert failed.what == "took more than 0.3 s for one message"

    async def is_left() -> bool:
        return not filter_.open

    await eventually(is_left, "the milter is left")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("what", [*BROKEN, *OF_THE_END])
async def test_a_milter_that_breaks_at_the_end_of_a_message(what: str, action: str) -> None:
    answer = {**BROKEN, **OF_THE_END}[what]
    actions = 0x1FF & ~0x2 if what == "not negotiated" else 0x1FF
    async with milter(script={"E": answer}, actions=actions) as filter_:
        settings = Milter(address=filter_.address, default_action=action, content_timeout_s=0.2)
        async with session(filter_, milters=(settings,), message_size_limit=10_000) as (server, client):
            await client.hello()
            assert await send(client) == ACTIONS[action]
            (failed,) = server.intake.milters_failed
            assert (failed.milter, failed.action, failed.stage) == (filter_.address, action, "END-OF-MESSAGE")
            assert SAYS.get(what, "") in failed.what
            assert failed.queue_id == "ID1"
            if ACTIONS[action] == OK:  # nothing of its changes stays
                assert server.intake.content == MESSAGE
                assert bool(server.intake.messages[0][0].held_because) is (action == "quarantine")
            else:
                assert server.intake.messages == []
            assert server.intake.failures == []
            assert all(each.closed for each in server.intake.scratches)
            await eventually(lambda: not filter_.open)


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("step", "OCHMRTLNB")
async def test_a_milter_that_breaks_at_any_other_step_refuses_by_default(step: str, what: str) -> None:
    script = {"script": {step: BROKEN[what]}} if step != "O" else {"negotiation": BROKEN[what]}
    async with milter(**script) as filter_:
        settings = Milter(address=filter_.address, connect_timeout_s=0.2, command_timeout_s=0.2, content_timeout_s=0.2)
        async with session(filter_, milters=(settings,)) as (server, client):
            await client.reply()
            await client.send(
                b"EHLO client.example\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n"
            )
            heard = [each[:3] for each in await client.replies(4)]
            refused_at = "OCH MRT".find(step) if step in "OCHMRT" else -1
            if refused_at < 0:
                assert heard == [b"250", b"250", b"250", b"354"]
                await client.send(MESSAGE + b".\r\n")
                assert await client.reply() == ACTIONS["tempfail"]
            else:
                assert b"451" in heard
                assert b"354" not in heard
            assert server.intake.messages == []
            assert len(server.intake.milters_failed) == 1
            assert server.intake.failures == []
            await eventually(lambda: not filter_.open)
            assert (await client.ask(b"NOOP")).startswith(b"250")  # the session lives


async def test_a_milter_that_cannot_be_reached_is_named_and_the_client_hears_it_at_mail() -> None:
    async with serving(rule=Listener(milters=("unix:/nonexistent/socket",))) as server:
        client = await server.client()
        await client.hello()
        assert await client.ask(b"MAIL FROM:<a@example.com>") == ACTIONS["tempfail"]
        (failed,) = server.intake.milters_failed
        assert failed.milter == "unix:/nonexistent/socket"
        assert "No such file" in failed.what


async def test_a_client_that_goes_leaves_nothing_behind() -> None:
    async with milter(script={"E": SILENT}) as filter_, session(filter_, inline_limit=10) as (server, client):
        await client.hello()
        await client.to_data()
        await client.send(MESSAGE + b".\r\n")
        await eventually(lambda: "E" in filter_.steps_seen())
        client.reset()
        await eventually(lambda: not filter_.open and not server.server.sessions)
        assert all(each.closed for each in server.intake.scratches)
        assert server.intake.messages == []
        assert server.intake.failures == []


@pytest.mark.parametrize("where", ["as it comes", "a new body"])
async def test_a_full_disk_is_452_and_the_session_lives(where: str) -> None:
    script = {} if where == "as it comes" else {"E": framed("b", 90_000 * b"x") + CONTINUE}
    limit = 10 if where == "as it comes" else 1000
    async with milter(script=script) as filter_, session(filter_, inline_limit=limit) as (server, client):
        server.intake.scratch_error = OSError(errno.ENOSPC, "no space")
        await client.hello()
        message = 2000 * MESSAGE if where == "as it comes" else MESSAGE
        assert (await send(client, message)).startswith(b"452 4.3.1 ")
        assert all(each.closed for each in server.intake.scratches)
        assert server.intake.messages == []
        server.intake.scratch_error = None
        filter_.script = {}
        if where == "as it comes":
            assert (await send(client)).startswith(b"250")
        else:  # the milter was left in the middle of its answer
            assert await client.ask(b"MAIL FROM:<a@example.com>") == ACTIONS["tempfail"]
            assert "our own disk" in server.intake.milters_failed[0].what


@pytest.mark.parametrize("hangs_at", ["O", "C"])
async def test_a_client_that_goes_while_a_milter_is_connected_leaves_nothing_behind(hangs_at: str) -> None:
    script = {"negotiation": SILENT} if hangs_at == "O" else {"script": {"C": SILENT}}
    async with milter(**script) as filter_, session(filter_) as (server, client):
        await eventually(lambda: filter_.open == 1)
        client.reset()
        await eventually(lambda: not filter_.open and not server.server.sessions)
        assert server.intake.failures == []


async def test_any_bytes_from_a_milter_are_a_failure_or_an_answer() -> None:
    chance = random.Random(14)
    codes = "abcdehimpqrsty+-2f4O?"
    for number in range(150):
        parts = []
        for _ in range(chance.randrange(1, 5)):
            data = chance.randbytes(chance.randrange(40))
            length = len(data) + 1 if chance.random() < 0.8 else chance.randrange(1 << 21)
            parts.append(struct.pack("!I", length) + chance.choice(codes).encode() + data)
        step = chance.choice("OCHMRTLNBE")
        garbage = b"".join(parts) + (CLOSE if number % 2 else b"")
        given = {"negotiation": garbage} if step == "O" else {"script": {step: garbage}}
        async with milter(**given) as filter_:
            settings = Milter(
                address=filter_.address, connect_timeout_s=0.1, command_timeout_s=0.1, content_timeout_s=0.1
            )
            async with session(filter_, milters=(settings,)) as (server, client):
                await client.send(
                    b"EHLO client.example\r\nMAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\nDATA\r\n"
                )
                heard = await client.replies(5)  # b"" once the session has ended
                if heard[-1].startswith(b"354"):
                    await client.send(MESSAGE + b".\r\n")
                    assert (await client.reply())[:1] in (b"2", b"4", b"5")
                assert server.intake.failures == [], (number, step, garbage)
                client.reset()
                await eventually(lambda: not server.server.sessions)
            await eventually(lambda: not filter_.open)


@pytest.mark.parametrize("action", ["accept", "tempfail"])
async def test_one_session_waits_for_a_milter_that_does_not_answer(action: str) -> None:
    async with milter(negotiation=SILENT) as filter_:
        settings = Milter(address=filter_.address, default_action=action, connect_timeout_s=0.3)
        async with session(filter_, milters=(settings,)) as (server, client):
            await client.hello()
            for _ in range(5):
                await (await server.client()).hello()
            assert filter_.connections == 1
            assert (await client.ask(b"MAIL FROM:<a@example.com>"))[:3] == (b"250" if action == "accept" else b"451")
    whats = [each.what for each in server.intake.milters_failed]
    assert whats[0] == "did not answer within 0.3 s"
    assert [each[:14] for each in whats[1:6]] == ["did not answer"] * 5
