"""Keywords that are not offered to some clients, and whose commands and parameters are then refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mailcore.config.clients import Clients
from mailcore.config.listeners import MX
from mailcore.routing.networks import ByNetwork
from tests.deliverer.scripted_server import server_tls
from tests.receiver.server_in_process import serving

SOME = ("CHUNKING", "DSN", "8BITMIME")


def offered(reply: bytes) -> set[str]:
    return {line[4:].split(b" ")[0].decode() for line in reply.splitlines()[1:]}


async def test_a_discarded_keyword_is_neither_offered_nor_understood(tmp_path: Path) -> None:
    rule = replace(MX, discard_ehlo_keywords=(*SOME, "STARTTLS"))
    async with serving(rule=rule, tls=server_tls(tmp_path)) as server:
        client = await server.client()
        await client.reply()
        found = offered(await client.ask(b"EHLO c"))
        assert not found & {*rule.discard_ehlo_keywords}
        assert {"PIPELINING", "SIZE", "SMTPUTF8", "HELP"} <= found
        assert (await client.ask(b"STARTTLS")).startswith(b"502 5.5.1")
        assert (await client.ask(b"MAIL FROM:<a@e.org> BODY=8BITMIME")).startswith(b"555 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@e.org> RET=HDRS")).startswith(b"555 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@e.org> SIZE=3")).startswith(b"250")
        assert (await client.ask(b"RCPT TO:<b@e.org> NOTIFY=NEVER")).startswith(b"555 5.5.4")
        assert (await client.ask(b"RCPT TO:<b@e.org>")).startswith(b"250")
        await client.send(b"BDAT 4 LAST\r\nab\r\n")
        assert (await client.reply()).startswith(b"502 5.5.1")
        assert (await client.ask(b"NOOP")).startswith(b"250")


@pytest.mark.parametrize("keyword", ["CHUNKING", "BINARYMIME"])
async def test_binary_data_is_neither_offered_nor_understood_without_its_keywords(keyword: str) -> None:
    async with serving(rule=replace(MX, discard_ehlo_keywords=(keyword,))) as server:
        client = await server.client()
        await client.reply()
        assert not {keyword, "BINARYMIME"} & offered(await client.ask(b"EHLO c"))
        assert (await client.ask(b"MAIL FROM:<a@e.org> BODY=BINARYMIME")).startswith(b"555 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@e.org> BODY=8BITMIME")).startswith(b"250")


async def test_an_entry_for_the_client_replaces_the_list_of_the_listener() -> None:
    entries = {"127.0.0.2/32": frozenset(("SIZE", "XCLIENT")), "127.0.0.0/8": frozenset[str]()}
    xclient = Clients(xclient_networks=("127.0.0.0/8",))
    async with serving(
        rule=replace(MX, discard_ehlo_keywords=SOME), client_keywords=ByNetwork(entries), clients=xclient
    ) as server:
        client = await server.client("127.0.0.2")
        await client.reply()
        found = offered(await client.ask(b"EHLO c"))
        assert {*SOME} <= found
        assert not {"SIZE", "XCLIENT"} & found
        assert (await client.ask(b"XCLIENT NAME=x")).startswith(b"550")
        proxy = await server.client("127.0.0.3")
        await proxy.reply()
        assert {*SOME, "SIZE", "XCLIENT"} <= offered(await proxy.ask(b"EHLO c"))
        assert (await proxy.ask(b"XCLIENT ADDR=127.0.0.2")).startswith(b"220")
        assert "SIZE" not in offered(await proxy.ask(b"EHLO c"))
        other = await proxy.ask(b"MAIL FROM:<a@e.org> SIZE=3")
        assert other.startswith(b"555")


async def test_a_client_in_no_entry_has_the_list_of_the_listener() -> None:
    entries = ByNetwork({"192.0.2.0/24": frozenset[str]()})
    async with serving(rule=replace(MX, discard_ehlo_keywords=SOME), client_keywords=entries) as server:
        client = await server.client()
        await client.reply()
        assert not {*SOME} & offered(await client.ask(b"EHLO c"))
