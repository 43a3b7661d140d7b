"""A message that a milter makes 8-bit is marked so: otherwise a next hop without 8BITMIME would get it unconverted."""

from __future__ import annotations

import pytest

from tests.milter.scripted import CONTINUE, add_header, framed, milter
from tests.receiver.milters import OK, send, session

MESSAGE = b"Subject: x\r\n\r\nplain\r\n"


@pytest.mark.parametrize("inline_limit", [10_000, 10])
@pytest.mark.parametrize(
    ("change", "eight_bit"),
    [
        (framed("b", b"gr\xc3\xbcn\r\n"), True),
        (add_header("X-New", b"gr\xc3\xbcn"), True),
        (framed("b", b"green\r\n"), False),
    ],
)
async def test_what_a_milter_writes_decides_whether_a_message_is_eight_bit(
    change: bytes, eight_bit: bool, inline_limit: int
) -> None:
    async with (
        milter(script={"E": change + CONTINUE}) as filter_,
        session(filter_, inline_limit=inline_limit) as (server, client),
    ):
        await client.hello()
        assert await send(client, MESSAGE) == OK
        ((envelope, _, _),) = server.intake.messages
        assert envelope.eight_bit == eight_bit
