"""Every command in every phase of a session gets the reply it must get: the whole table, over a real socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from mailcore.receiver.command_table import TABLE, Gate, Phase, table_of
from mailcore.receiver.session import ACTIONS, COMMANDS, ServerSession
from tests.receiver.server_in_process import serving

# What brings a session into each phase.
WAY: dict[Phase, Sequence[bytes]] = {
    Phase.CONNECTED: (),
    Phase.GREETED: (b"EHLO client.example",),
    Phase.MAIL: (b"EHLO client.example", b"MAIL FROM:<a@example.com>"),
    Phase.REFUSED: (b"EHLO client.example", b"MAIL FROM:<a@example.com>", b"RCPT TO:<b@>"),
    Phase.RECIPIENT: (
        b"EHLO client.example",
        b"MAIL FROM:<a@example.com>",
        b"RCPT TO:<b@example.org>",
        b"RCPT TO:<b@>",
    ),
    Phase.CHUNKS: (b"EHLO client.example", b"MAIL FROM:<a@example.com>", b"RCPT TO:<b@example.org>", b"BDAT 0"),
}
ALL_PHASES = tuple(Phase)

# The command with a good argument: the code and enhanced code of the reply in each phase, in the order of Phase.
GOOD: dict[bytes, tuple[bytes, bytes, bytes, bytes, bytes, bytes]] = {
    b"HELO client.example": (b"250 mx",) * 6,
    b"EHLO client.example": (b"250-mx",) * 6,
    b"MAIL FROM:<a@example.com>": (b"503 5.5.1", b"250 2.1.0", *(b"503 5.5.1",) * 4),
    b"RCPT TO:<c@example.org>": (b"503 5.5.1", b"503 5.5.1", b"250 2.1.5", b"250 2.1.5", b"250 2.1.5", b"503 5.5.1"),
    b"DATA": (b"503 5.5.1", b"503 5.5.1", b"503 5.5.1", b"554 5.5.1", b"354 End", b"503 5.5.1"),
    b"BDAT 0": (b"503 5.5.1", b"503 5.5.1", b"503 5.5.1", b"554 5.5.1", b"250 2.0.0", b"250 2.0.0"),
    b"RSET": (b"250 2.0.0",) * 6,
    b"NOOP": (b"250 2.0.0",) * 6,
    b"NOOP anything": (b"250 2.0.0",) * 6,
    b"VRFY a@example.com": (b"252 2.0.0",) * 6,
    b"HELP": (b"214 2.0.0",) * 6,
    b"QUIT": (b"221 2.0.0",) * 6,
    b"QUIT x": (b"221 2.0.0",) * 6,
    b"STARTTLS": (b"503 5.5.1",) * 6,  # this server has no certificate
    b"AUTH PLAIN AGEAYg==": (b"503 5.5.1",) * 6,
    **dict.fromkeys(
        (b"XCLIENT ADDR=192.0.2.1", b"XFORWARD ADDR=192.0.2.1"),
        (b"550 5.7.0", b"550 5.7.0", *(b"503 5.5.1",) * 4),
    ),
    **dict.fromkeys((b"ETRN x", b"EXPN list", b"SAML", b"SEND", b"SOML", b"TURN"), (b"502 5.5.1",) * 6),
    **dict.fromkeys((b"CONNECT x:25", b"GET / HTTP/1.1", b"POST / HTTP/1.1"), (b"221 2.7.0",) * 6),
    b"WHAT": (b"500 5.5.2",) * 6,
    b"": (b"500 5.5.2",) * 6,
}
# A wrong argument is refused before the phase is looked at, but MAIL and RCPT parse theirs only where they are allowed.
BAD: dict[bytes, tuple[bytes, bytes, bytes, bytes, bytes, bytes]] = {
    b"HELO": (b"501 5.5.4 Syntax: HELO hostname",) * 6,
    b"EHLO a b": (b"501 5.5.4 Syntax: EHLO hostname",) * 6,
    b"MAIL": (b"503 5.5.1", b"501 5.5.4", *(b"503 5.5.1",) * 4),
    b"RCPT": (b"503 5.5.1", b"503 5.5.1", b"501 5.5.4", b"501 5.5.4", b"501 5.5.4", b"503 5.5.1"),
    b"DATA x": (b"501 5.5.4 Syntax: DATA",) * 6,
    b"RSET x": (b"501 5.5.4 Syntax: RSET",) * 6,
    b"VRFY": (b"501 5.5.4 Syntax: VRFY address",) * 6,
    b"STARTTLS x": (b"501 5.5.4 Syntax: STARTTLS",) * 6,
}


@pytest.mark.parametrize("phase", ALL_PHASES, ids=lambda phase: phase.name)
@pytest.mark.parametrize("command", [*GOOD, *BAD])
async def test_a_command_gets_its_reply_in_each_phase(command: bytes, phase: Phase) -> None:
    async with serving() as server:
        client = await server.client()
        await client.reply()
        for line in WAY[phase]:
            await client.ask(line)
        reply = await client.ask(command)
        session = cast(ServerSession | None, next(iter(server.server.sessions), None))
    expected = (GOOD.get(command) or BAD[command])[phase]
    assert reply.startswith(expected), reply
    if reply[:1] == b"5" and session is not None:  # a refused RCPT is remembered for DATA, any other leaves the phase
        assert session.phase is (Phase.REFUSED if (command, phase) == (b"RCPT", Phase.MAIL) else phase)


def test_the_tables_above_have_every_command() -> None:
    assert {line.partition(b" ")[0] for line in GOOD} == {*TABLE, b"WHAT", b""}


def test_every_command_that_is_allowed_somewhere_has_an_action_and_no_other_has_one() -> None:
    tables = [table_of(gate) for gate in Gate]
    allowed = {verb for table in tables for verb, rule in table.items() if not all(rule.replies)}
    assert set(ACTIONS) == allowed
    assert all(set(table) == set(TABLE) for table in tables)
    assert set(COMMANDS) == set(TABLE)
    assert all(len(rule.replies) == len(ALL_PHASES) for rule in TABLE.values())


@pytest.mark.parametrize("verb", sorted(verb for verb, rule in TABLE.items() if rule.is_junk))
async def test_junk_counts_as_errors_beyond_a_hundred(verb: bytes) -> None:
    line = verb + {b"VRFY": b" a@example.com", b"EHLO": b" c", b"HELO": b" c"}.get(verb, b"") + b"\r\n"
    async with serving(error_limit=2) as server:
        client = await server.ready()
        await client.send(line * 100)
        replies = await client.replies(100)
        assert {reply[:1] for reply in replies} == {b"2"}
        await client.send(line)
        assert (await client.replies(2))[1].startswith(b"421 4.7.0")
