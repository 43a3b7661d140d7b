"""Recipients that we refuse: shown to a milter only if it negotiated that, and whatever it answers, they stay refused."""

from __future__ import annotations

import pytest

from tests.milter.scripted import ACCEPT, CLOSE, CONTINUE, DISCARD, REJECT, milter
from tests.receiver.milters import OK, send, session

REFUSED_RECIPIENTS = 0x800
NO_ANSWER = 0x8000


@pytest.mark.parametrize("answer", [CONTINUE, ACCEPT, REJECT, DISCARD])
@pytest.mark.parametrize("steps", [REFUSED_RECIPIENTS, REFUSED_RECIPIENTS | NO_ANSWER])
async def test_a_refused_recipient_is_shown_with_its_reason_and_stays_refused(answer: bytes, steps: int) -> None:
    async with (
        milter(steps=steps, script={"R": [answer, CONTINUE]}) as filter_,
        session(filter_, networks=(), domains=("example.org",)) as (server, client),
    ):
        await client.hello()
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
        refusal = await client.ask(b"RCPT TO:<b@elsewhere.example> NOTIFY=NEVER")
        assert refusal.startswith(b"554 5.7.1 <b@elsewhere.example>: ")
        assert (await client.ask(b"RCPT TO:<no at sign")).startswith(b"501")  # a mistake is no recipient
        assert (await client.ask(b"RSET")).startswith(b"250")
        assert filter_.steps_seen() == "CHMRA"
        assert filter_.seen[-2][1] == b"<b@elsewhere.example>\0NOTIFY=NEVER\0"
        assert filter_.macros["R"] == {
            "{rcpt_addr}": refusal.partition(b": ")[2].decode().strip(),
            "{rcpt_host}": "5.7.1",
            "{rcpt_mailer}": "error",
        }
        assert [each.milter for each in server.intake.refusals if each.reply.startswith("554")] == [""]
        assert (await send(client)).startswith(OK[:16])  # the next message is not the one that was decided on
        assert filter_.macros["R"]["{rcpt_mailer}"] == "smtp"


async def test_a_milter_that_did_not_ask_for_it_does_not_see_it() -> None:
    async with (
        milter() as filter_,
        session(filter_, networks=(), domains=("example.org",)) as (_, client),
    ):
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@elsewhere.example>")).startswith(b"554")
        assert filter_.steps_seen() == "CHM"
        assert filter_.offer[2] & REFUSED_RECIPIENTS


async def test_a_milter_that_fails_there_is_a_failure_of_the_session_and_the_reply_is_ours() -> None:
    async with (
        milter(steps=REFUSED_RECIPIENTS, script={"R": CLOSE}) as filter_,
        session(filter_, networks=(), domains=("example.org",)) as (server, client),
    ):
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.com>")
        assert (await client.ask(b"RCPT TO:<b@elsewhere.example>")).startswith(b"554")
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"451")
        assert len(server.intake.milters_failed) == 1
