"""Hostile clients: each gets the reply it must get, nothing of its is stored that must not be, and others are served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.clients import Clients
from mailcore.config.lenient import Lenient
from mailcore.config.listeners import Listener
from tests.deliverer.scripted_server import server_tls
from tests.receiver.hostile_case import Case, Do, End
from tests.receiver.hostile_cases import COMMAND_CASES
from tests.receiver.hostile_message_cases import MESSAGE_CASES
from tests.receiver.logins import submission, user
from tests.receiver.server_in_process import Client, Serving, any_certificate, serving, without_trace

CASES = (*COMMAND_CASES, *MESSAGE_CASES)
QUICK = Clients(error_sleep_time_s=0)
HEADER_TIMEOUT_S = 0.2
ENCRYPTED = ("submission", "scram")  # from the first byte
OUTSIDE: dict[str, Any] = {"networks": ["192.0.2.0/24"], "domains": ["example.org"]}
SMALL: dict[str, Any] = {
    "command_line_limit": 512,
    "message_size_limit": 1024,
    "recipient_limit": 3,
    "error_limit": 5,
    "clients": Clients(error_sleep_time_s=0, junk_command_limit=5),
}


@contextlib.asynccontextmanager
async def _submission(directory: Path, rule: Listener, *, scram: bool = False) -> AsyncIterator[Serving]:
    async with submission(directory, user(scram=scram), rule=rule) as running:
        yield running.server


STARTTLS = Listener(purpose="submission", tls="required", auth="required")
IMPLICIT = Listener(purpose="submission", tls="implicit", auth="required")
KINDS: dict[str, Callable[[Path], contextlib.AbstractAsyncContextManager[Serving]]] = {
    "mx": lambda _: serving(clients=QUICK),
    "small": lambda _: serving(**SMALL),
    "patient": lambda _: serving(clients=QUICK, error_limit=1000),
    "outside": lambda _: serving(clients=QUICK, error_limit=5, **OUTSIDE),
    "tls": lambda directory: serving(tls=server_tls(directory)),
    "impatient": lambda directory: serving(tls=server_tls(directory), idle_timeout_s=0.2),
    "repairing": lambda _: serving(lenient=Lenient(bare_lf_networks=("127.0.0.0/8",))),
    "named": lambda _: serving(
        networks=["127.0.0.0/8"], domains=["example.org"], clients=Clients(xclient_networks=("127.0.0.0/8",))
    ),
    "proxy": lambda _: serving(rule=Listener(proxy=("127.0.0.1/32",)), domains=["example.org"]),
    "submission": lambda directory: _submission(directory, IMPLICIT),
    "scram": lambda directory: _submission(directory, IMPLICIT, scram=True),
    "starttls": lambda directory: _submission(directory, STARTTLS),
}


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 120


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_hostile_client_gets_the_reply_it_must_get(case: Case, tmp_path: Path) -> None:
    async with KINDS[case.at](tmp_path) as server:
        server.server.header_timeout_s = HEADER_TIMEOUT_S
        client = await (server.client_tls() if case.at in ENCRYPTED else server.client())
        if case.at != "proxy":
            assert (await client.reply()).startswith(b"220 mx.example.net ")
        for sent, expected in case.steps:
            await _send(client, sent)
            beginnings = expected.split(" / ") if expected else []
            replies = [(await client.reply()).decode() for _ in beginnings]
            for reply, beginning in zip(replies, beginnings, strict=True):
                assert reply.startswith(beginning), (sent, replies)
        await _check_end(case, client, server)
        await _serves_others(server, case)
        assert server.intake.failures == []
        stored = [
            without_trace(data) for envelope, _, data in server.intake.messages if envelope.sender != "good@example.com"
        ]
        assert stored == list(case.stored)


async def _send(client: Client, sent: bytes | Do) -> None:
    if isinstance(sent, bytes):
        with contextlib.suppress(ConnectionError):  # the server may have had enough
            await client.send(sent)
    elif sent is Do.TLS:
        await client.writer.start_tls(any_certificate())
    elif sent is Do.CLOSE_WRITING:
        client.writer.write_eof()


async def _check_end(case: Case, client: Client, server: Serving) -> None:
    if case.end is End.CLOSED:
        with contextlib.suppress(ConnectionError):
            assert await client.rest() == b""
    elif case.end is End.OPEN:
        assert (await client.ask(b"NOOP")).startswith(b"250 2.0.0")
    else:
        await _serves_others(server, case)  # there was time for a reply
        client.writer.write_eof()
        assert await client.rest() == b""


async def _serves_others(server: Serving, case: Case) -> None:
    """A good client delivers a message, where clients may without more ado."""
    if case.at in ("proxy", "starttls", *ENCRYPTED):
        other = await (server.client_tls() if case.at in ENCRYPTED else server.client())
        if case.at == "proxy":
            await other.send(b"PROXY TCP4 203.0.113.9 192.0.2.25 40001 25\r\n")
        await other.hello()
        return
    other = await server.ready()
    count = len(server.intake.messages)
    await other.to_data(b"good@example.com")
    await other.send(b"x\r\n.\r\n")
    assert (await other.reply()).startswith(b"250")
    assert len(server.intake.messages) == count + 1
