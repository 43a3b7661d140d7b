"""A milter that leaves out MAIL (SMFIP_NOMAIL), or all steps before the header, hears of each message by its first step."""

from __future__ import annotations

import pytest

from mailcore.milter.connection import Connection
from tests.milter.scripted import REJECT, milter
from tests.receiver.milters import send, session

NO_MAIL, NO_ENVELOPE = 0x4, 0x4 | 0x8 | 0x200
WAIT_S = 55.0  # eleven waits of a milter are more than the 600 s of message_timeout_s


@pytest.mark.parametrize("steps", [0, NO_MAIL, NO_ENVELOPE])
async def test_the_time_of_a_message_is_not_that_of_the_session(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    wait = Connection._wait

    async def slow(connection: Connection, timeout_s: float) -> None:
        await wait(connection, timeout_s)
        connection._left_s -= WAIT_S

    monkeypatch.setattr(Connection, "_wait", slow)
    async with milter(steps=steps) as filter_, session(filter_) as (server, client):
        await client.hello()
        for _ in range(3):
            assert (await send(client)).startswith(b"250"), server.intake.milters_failed
            for _ in range(4):
                assert (await client.ask(b"EHLO client.example")).startswith(b"250")
        assert server.intake.milters_failed == []


@pytest.mark.parametrize(("steps", "seen"), [(NO_MAIL, "CHRTAH"), (NO_MAIL | 0x200, "CHRAH"), (NO_MAIL | 0x8, "CHTAH")])
async def test_without_mail_a_transaction_that_ends_early_is_aborted(steps: int, seen: str) -> None:
    async with milter(steps=steps) as filter_, session(filter_) as (_, client):
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RSET")
        assert filter_.steps_seen() == "CH"
        await client.ask(b"MAIL FROM:<a@example.com>")
        await client.ask(b"RCPT TO:<b@example.org>")
        await client.send(b"BDAT 3\r\na\r\n")
        assert (await client.reply()).startswith(b"250")
        await client.ask(b"RSET")
        await client.ask(b"EHLO again.example")
        assert filter_.steps_seen() == seen


async def test_without_an_envelope_a_message_that_is_refused_early_is_aborted() -> None:
    async with milter(steps=NO_ENVELOPE, script={"N": REJECT}) as filter_, session(filter_) as (_, client):
        await client.hello()
        assert (await send(client)).startswith(b"550")
        await client.ask(b"EHLO again.example")
        assert filter_.steps_seen() == "CHLLLLNAH"
