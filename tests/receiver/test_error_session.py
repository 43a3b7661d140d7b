"""Sessions that bring no mail: many errors are answered late, too many end the session; so do commands without an aim."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from mailcore.config.clients import Clients
from mailcore.config.listeners import Listener
from tests.eventually import eventually
from tests.receiver.logins import plain, submission, user
from tests.receiver.server_in_process import Client, serving

PAUSE_S = 0.3
SLOW = Clients(soft_error_limit=3, error_sleep_time_s=PAUSE_S)


async def timed(client: Client, command: bytes) -> tuple[bytes, float]:
    began = time.monotonic()
    return await client.ask(command), time.monotonic() - began


async def test_errors_beyond_the_soft_limit_are_answered_late() -> None:
    async with serving(clients=SLOW) as server:
        client = await server.ready()
        for _ in range(3):
            assert (await timed(client, b"WHAT"))[1] < PAUSE_S
        for command, reply in ((b"WHAT", b"500 5.5.2"), (b"RCPT TO:<x>", b"503 5.5.1"), (b"HELO", b"501 5.5.4")):
            said, took = await timed(client, command)
            assert said.startswith(reply)
            assert took >= PAUSE_S - 0.01, "a timer counts whole milliseconds"
        assert (await timed(client, b"NOOP"))[1] < PAUSE_S
        await client.to_data()
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        assert (await timed(client, b"WHAT"))[1] < PAUSE_S, "a message begins the count again"
    assert server.intake.failures == []


async def test_the_loop_and_other_sessions_do_not_wait() -> None:
    async with serving(clients=Clients(soft_error_limit=0, error_sleep_time_s=30)) as server:
        slow = [await server.ready() for _ in range(10)]
        for client in slow:
            await client.send(b"WHAT\r\n")
        other = await server.ready()
        began = time.monotonic()
        await other.to_data()
        await other.send(b"x\r\n.\r\n")
        assert (await other.reply()).startswith(b"250")
        assert time.monotonic() - began < 5
        for client in slow:
            client.reset()
        await eventually(lambda: len(server.server.sessions) == 1)
    assert server.intake.failures == []


async def test_what_is_sent_during_the_pause_is_read_after_it_and_in_order() -> None:
    async with serving(clients=SLOW, error_limit=20) as server:
        client = await server.ready()
        began = time.monotonic()
        await client.send(b"NOOP\r\nWHAT\r\n" * 6 + b"VRFY a@example.com\r\n")
        await asyncio.sleep(0.01)
        await client.send(b"HELP\r\n")
        replies = await client.replies(14)
        assert [reply[:3] for reply in replies] == [b"250", b"500"] * 6 + [b"252", b"214"]
        assert time.monotonic() - began >= 3 * PAUSE_S


async def flood(client: Client) -> None:
    while True:
        client.writer.write(b"NOOP\r\n" * 10_000)
        await client.writer.drain()


async def test_a_client_that_goes_on_sending_is_not_read_into_memory() -> None:
    async with serving(clients=Clients(soft_error_limit=0, error_sleep_time_s=30)) as server:
        client = await server.ready()
        await client.send(b"WHAT\r\n")
        flooding = asyncio.create_task(flood(client))
        await asyncio.sleep(0.5)
        flooding.cancel()
        (session,) = server.server.sessions
        assert len(session._buffer) < 1 << 20
        client.reset()


@pytest.mark.parametrize("pieces", [1, 2, 1_000])
async def test_lines_ended_by_a_bare_lf_keep_their_replies_in_the_tarpit(pieces: int) -> None:
    sent = b"WHAT\n" * 6 + b"NOOP\r\n" + b"a\nb\nNOOP\r\n" + b"NOOP\r\n"
    async with serving(clients=Clients(soft_error_limit=2, error_sleep_time_s=0.01), error_limit=20) as server:
        client = await server.ready()
        size = -(-len(sent) // pieces)
        for at in range(0, len(sent), size):
            await client.send(sent[at : at + size])
            if pieces > 1:
                await asyncio.sleep(0.002)
        codes = [(await client.reply())[:9] for _ in range(6 + 1 + 3 + 1)]
        assert codes == [b"500 5.5.2"] * 10 + [b"250 2.0.0"]
        client.writer.write_eof()
        assert await client.rest() == b""
    assert server.intake.failures == []


async def test_a_client_that_ends_during_the_pause_gets_its_reply() -> None:
    async with serving(clients=SLOW, error_limit=20) as server:
        client = await server.ready()
        await client.send(b"WHAT\r\n" * 4)
        client.writer.write_eof()
        assert (await client.rest()).count(b"500 5.5.2") == 4
        await eventually(lambda: not server.server.sessions)
    assert server.intake.failures == []


async def test_the_last_error_ends_the_session_at_once() -> None:
    async with serving(clients=SLOW, error_limit=5) as server:
        client = await server.ready()
        await client.send(b"WHAT\r\n" * 9)
        said = await client.rest()
        assert said.count(b"500 5.5.2") == 5
        assert said.endswith(b"421 4.7.0 mx.example.net Error: too many errors\r\n")


async def test_the_pause_is_not_idle_time() -> None:
    async with serving(clients=Clients(soft_error_limit=0, error_sleep_time_s=2), idle_timeout_s=1) as server:
        client = await server.ready()
        assert (await client.ask(b"WHAT")).startswith(b"500")


async def test_failed_logins_are_slowed_down(tmp_path: Path) -> None:
    async with submission(
        tmp_path, user("alice"), clients=Clients(soft_error_limit=0, error_sleep_time_s=PAUSE_S)
    ) as server:
        client = await server.client()
        assert (await client.ask(b"AUTH PLAIN " + plain("alice", "wrong"))).startswith(b"535")
        assert (await timed(client, b"NOOP"))[0].startswith(b"250")
        assert (await client.ask(b"AUTH PLAIN " + plain("alice"))).startswith(b"235")


@pytest.mark.parametrize("line", [b"EHLO c", b"HELO c", b"RSET", b"NOOP", b"VRFY a@example.com", b"HELP"])
async def test_a_session_of_commands_without_an_aim_ends(line: bytes) -> None:
    async with serving(clients=Clients(junk_command_limit=5, error_sleep_time_s=0), error_limit=3) as server:
        client = await server.client()
        await client.reply()
        for _ in range(5):
            assert (await client.ask(line))[:1] == b"2"
        for _ in range(3):
            await client.ask(line)
        assert await client.rest() == b"421 4.7.0 mx.example.net Error: too many errors\r\n"


async def test_mail_begins_the_count_of_such_commands_again() -> None:
    async with serving(clients=Clients(junk_command_limit=3, error_sleep_time_s=0), error_limit=1) as server:
        client = await server.client()
        await client.reply()
        for _ in range(6):
            assert (await client.ask(b"EHLO c")).startswith(b"250")
            assert (await client.ask(b"RSET")).startswith(b"250")
            await client.to_data()
            await client.send(b"x\r\n.\r\n")
            assert (await client.reply()).startswith(b"250")


USELESS = Clients(useless_command_limit=5, error_sleep_time_s=0)
TOO_MANY = b"421 4.7.0 mx.example.net Error: too many errors\r\n"


async def ends_after(client: Client, command: bytes, reply: bytes, count: int) -> None:
    for _ in range(count):
        assert (await client.ask(command)).startswith(reply)
    assert await client.rest() == TOO_MANY


async def test_a_recipient_repeated_without_end_ends_the_session() -> None:
    async with serving(clients=USELESS, error_limit=3) as server:
        client = await server.ready()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
        await ends_after(client, b"RCPT TO:<b@example.org>", b"250 2.1.5", 5 + 3)


async def test_recipients_refused_for_a_time_end_the_session_only_when_there_are_very_many() -> None:
    async with serving(clients=USELESS, error_limit=3, recipient_limit=1) as server:
        client = await server.ready()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
        await ends_after(client, b"RCPT TO:<c@example.org>", b"452 4.5.3", 5 + 3)


async def test_mail_refused_for_a_time_ends_the_session_when_there_is_very_much() -> None:
    async with serving(clients=USELESS, error_limit=3) as server:
        server.intake.mail_reply = b"452 4.3.1 Error: queue full"
        client = await server.ready()
        await ends_after(client, b"MAIL FROM:<a@example.com>", b"452 4.3.1", 5 + 3)


async def test_empty_chunks_end_the_session_when_there_are_very_many() -> None:
    async with serving(clients=USELESS, error_limit=3) as server:
        client = await server.ready()
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RCPT TO:<b@example.org>")
        await ends_after(client, b"BDAT 0", b"250 2.0.0", 5 + 3)
    assert server.intake.messages == []


async def test_a_command_that_fails_because_of_us_is_not_repeated_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(clients=USELESS, error_limit=3) as server:

        def broken(size_bytes: int) -> bytes:
            raise ValueError

        monkeypatch.setattr(server.intake, "unavailable", broken)
        client = await server.ready()
        await ends_after(client, b"MAIL FROM:<a@example.com>", b"451 4.3.0", 5 + 3)


async def test_starttls_refused_for_a_time_ends_the_session_when_it_is_repeated() -> None:
    async with serving(clients=USELESS, error_limit=3, rule=Listener(tls="required")) as server:
        client = await server.ready()
        await ends_after(client, b"STARTTLS", b"454 4.7.0", 5 + 3)


async def test_logins_refused_for_a_time_are_errors_from_the_second_on(tmp_path: Path) -> None:
    async with submission(
        tmp_path, user("alice"), clients=USELESS, error_limit=3, auth={"failures_per_user": 1}
    ) as server:
        client = await server.client()
        assert (await client.ask(b"AUTH PLAIN " + plain("alice", "wrong"))).startswith(b"535")
        await ends_after(client, b"AUTH PLAIN " + plain("alice", "wrong"), b"454 4.7.0", 3)


async def test_mail_begins_the_count_of_commands_without_effect_again() -> None:
    async with serving(clients=USELESS, error_limit=1) as server:
        client = await server.ready()
        for _ in range(3):
            await client.ask(b"MAIL FROM:<a@example.com>")
            for _ in range(5):
                assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
            assert (await client.ask(b"DATA")).startswith(b"354")
            await client.send(b"x\r\n.\r\n")
            assert (await client.reply()).startswith(b"250")


async def test_a_client_that_is_not_trusted_has_short_turns() -> None:
    flooded = Clients(useless_command_limit=1_000_000)
    async with serving(clients=flooded, networks=["127.0.0.1"], domains=["example.org"]) as server:
        server.intake.mail_reply = b"452 4.3.1 Error: queue full"
        ours = await server.client("127.0.0.1")
        await ours.hello()
        other = await server.client("127.0.0.2")
        await other.hello()
        other.writer.write(b"MAIL FROM:<a@example.com>\r\n" * 5_000)
        refusals = server.intake.refusals
        await eventually(lambda: refusals, look_every_s=0)
        before = len(refusals)
        ours.writer.write(b"MAIL FROM:<a@example.com>\r\n")
        await eventually(lambda: any(each.client_address == "127.0.0.1" for each in refusals), look_every_s=0)
        at = next(number for number, each in enumerate(refusals) if each.client_address == "127.0.0.1")
        assert at - before < 400, "a turn of a client in our networks is 500 commands"
        other.reset()
