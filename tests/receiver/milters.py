"""A server with milters, a client of it, and the message that it sends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from mailcore.config.listeners import Listener
from tests.milter.scripted import ScriptedMilter
from tests.receiver.server_in_process import Client, Serving, serving

__all__ = ["BODY", "MESSAGE", "OK", "send", "session"]

MESSAGE = (
    b"From: a@example.com\r\nSubject: one\r\n\ttwo\r\nX-Spam: 1\r\nx-spam:2\r\n\r\n"
    b"Hello\r\n..dot\r\n...two dots\r\n\r\nend\r\n"
)
BODY = b"Hello\r\n.dot\r\n..two dots\r\n\r\nend\r\n"  # as a milter sees it
OK = b"250 2.0.0 Ok: queued as ID1\r\n"


@contextlib.asynccontextmanager
async def session(*milters: ScriptedMilter, **settings: Any) -> AsyncIterator[tuple[Serving, Client]]:
    addresses = tuple(each.address for each in milters)
    sections = settings.pop("milters", ())
    async with serving(rule=Listener(milters=addresses), milters=sections, **settings) as server:
        yield server, await server.client()


async def send(client: Client, message: bytes = MESSAGE) -> bytes:
    await client.to_data()
    await client.send(message + b".\r\n")
    return await client.reply()
