"""Mistakes of trusted clients that are harmless, as Postfix lets them pass; and line ends, none of which smuggles a message."""

from __future__ import annotations

import itertools
import random
from dataclasses import fields, replace
from typing import Any

import pytest

from mailcore.config.lenient import STRICT, Lenient
from mailcore.receiver.bare_lf import RepairingReader
from mailcore.receiver.command import ReplyOf, parse_rcpt
from mailcore.receiver.data import DataReader
from mailcore.receiver.lenient_path import lenient_path
from tests.receiver.server_in_process import Client, serving

LENIENT = Lenient(domain="own.example")
ADDRESSES = [  # as written, what is stored, the one setting that lets it pass
    ("<a..b@e.org>", '"a..b"@e.org', "dots"),
    ("<a.@e.org>", '"a."@e.org', "dots"),
    ("<.a@e.org>", '".a"@e.org', "dots"),
    ("<a@e.org.>", "a@e.org", "dots"),
    ("<a>", "a@own.example", "without_domain"),
    ("a@e.org", "a@e.org", "without_brackets"),
]
NOT_LENIENT = [  # refused from everybody
    "<a b@e.org>", "<a@e..org>", "<a@.e.org>", "<a@e.org..>", "<a@>", "<@e.org>", "<a@b@c>", "<a,b@e.org>", "<a@e.org",
    "a@e.org>", "<<a@e.org>>", "<a@e.org>b", "<a;b>", "<a\x01@e.org>", "", "<", ">", "<>x",
    "<a..b@-e.org>", "<" + "a." * 200 + "b@e.org>",
]  # fmt: skip


@pytest.mark.parametrize(("text", "stored", "setting"), ADDRESSES)
def test_each_leniency_is_a_setting_of_its_own(text: str, stored: str, setting: str) -> None:
    parsed = lenient_path(text, 0, LENIENT, "mx.example.net")
    assert parsed is not None
    assert (parsed[0].address, parsed[1]) == (stored, "")
    only: dict[str, Any] = {
        each.name: each.name == setting for each in fields(Lenient) if isinstance(each.default, bool)
    }
    assert lenient_path(text, 0, replace(STRICT, **only, domain="own.example"), "") == parsed
    but: dict[str, Any] = {
        each.name: each.name != setting for each in fields(Lenient) if isinstance(each.default, bool)
    }
    assert lenient_path(text, 0, replace(STRICT, **but), "mx.example.net") is None


@pytest.mark.parametrize("text", NOT_LENIENT)
def test_what_could_mean_something_else_is_refused(text: str) -> None:
    found = parse_rcpt(f"TO:{text}".encode(), False, {}, lambda t, at: lenient_path(t, at, LENIENT, "mx.example.net"))
    assert isinstance(found, ReplyOf)


async def test_a_trusted_client_is_understood_and_another_is_held_to_the_rfc() -> None:
    async with serving(lenient=LENIENT) as server:
        client = await server.client()
        await client.reply()
        assert (await client.ask(b"HELO my computer")).startswith(b"250")
        await client.send(b"EHLO my computer\r\n")
        assert b"250 HELP" in await client.reply()
        for text, _, _ in ADDRESSES:
            assert (await client.ask(b"MAIL FROM: " + text.encode() + b" SIZE=10")).startswith(b"250"), text
            assert (await client.ask(b"RCPT TO:" + text.encode())).startswith(b"250"), text
            await client.ask(b"DATA")
            assert (await client.ask(b"Subject: x\r\n\r\nx\r\n.")).startswith(b"250")
        kept = [(stored.sender, stored.recipients[0].address) for stored, _, _ in server.intake.messages]
        assert kept == [(stored, stored) for _, stored, _ in ADDRESSES]
        assert {stored.helo for stored, _, _ in server.intake.messages} == {"my_computer"}
    async with serving(lenient=LENIENT, networks=(), domains=("e.org",)) as server:
        client = await server.client()
        await client.reply()
        assert (await client.ask(b"EHLO my computer")).startswith(b"501")
        assert (await client.ask(b"HELO c")).startswith(b"250")
        for text, _, _ in ADDRESSES:
            assert (await client.ask(b"MAIL FROM: " + text.encode())).startswith(b"501"), text
        await client.ask(b"MAIL FROM:<>")
        for text, _, _ in ADDRESSES:
            assert (await client.ask(b"RCPT TO:" + text.encode())).startswith(b"501"), text


# -- line ends

REFUSED, GREETED = b"500", b"250"
LINES = [  # bytes, and the first digits of the replies they must get
    (b"NOOP\r\n", [GREETED]),
    (b"NOOP\n", [REFUSED]),
    (b"\n", [REFUSED]),
    (b"\n\n\n", [REFUSED] * 3),
    (b"NOOP\nNOOP\r\n", [REFUSED] * 2),  # what begins behind a bare LF is not a command
    (b"NOOP\nNOOP\nNOOP\r\nNOOP\r\n", [REFUSED] * 3 + [GREETED]),
    (b"NOOP\n\r\nNOOP\r\n", [REFUSED] * 2 + [GREETED]),
    (b"NOOP\r\n\nNOOP\r\n", [GREETED] + [REFUSED] * 2),
    (b"NOOP\rNOOP\r\n", [REFUSED]),
    (b"NOOP\r\r\n", [REFUSED]),
    (b"NOOP\0\r\n", [REFUSED]),
    (b"RSET\nMAIL FROM:<x@e.org>\nRCPT TO:<y@e.org>\nDATA\nhello\n.\n", [REFUSED] * 6),
    (b"N" * 2_000 + b"\n", [REFUSED]),
    (b"N" * 2_000 + b"\nNOOP\r\nNOOP\r\n", [REFUSED] * 2 + [GREETED]),
    (b"NOOP\n" + b"N" * 2_000 + b"\r\nNOOP\r\n", [REFUSED] * 2 + [GREETED]),
]


@pytest.mark.parametrize(("sent", "replies"), LINES)
@pytest.mark.parametrize("pieces", ["at once", "in two", "byte by byte"])
async def test_each_line_end_has_its_reply_at_once_however_the_bytes_are_divided(
    sent: bytes, replies: list[bytes], pieces: str
) -> None:
    async with serving(error_limit=1_000) as server:
        client = await server.client()
        await client.hello()
        step = {"at once": len(sent), "in two": len(sent) // 2 or 1, "byte by byte": 1}[pieces]
        for at in range(0, len(sent), step):
            await client.send(sent[at : at + step])
        assert [(await client.reply())[:3] for _ in replies] == replies
        assert (await client.ask(b"\r\nHELP"))[:3] == REFUSED  # at most one line was left, and it ends here
        assert (await client.reply())[:3] == b"214"


SMUGGLED = b"MAIL FROM:<evil@e.org>\r\nRCPT TO:<victim@e.org>\r\nDATA\r\nevil\r\n.\r\n"
ENDS = [
    b"\n.\n",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r.\r",
    b"\r\n.\r",
    b"\r.\r\n",
    b"\n.\r",
    b"\r\n\x00.\r\n",
    b"\n\n.\n",
    b"\r\n.\r\r\n",
]


@pytest.mark.parametrize("repaired", [False, True], ids=["refused", "repaired"])
@pytest.mark.parametrize("end", ENDS)
async def test_nothing_but_crlf_dot_crlf_ends_a_message(end: bytes, repaired: bool) -> None:
    """What another server might take for the end is neither an end here nor sent on as one."""
    lenient = replace(LENIENT, bare_lf_networks=("127.0.0.0/8",) if repaired else ())
    async with serving(lenient=lenient) as server:
        client = await server.client()
        await client.hello()
        await begun(client)
        assert (await client.ask(b"Subject: x\r\n\r\nbody" + end + SMUGGLED[:-5] + b"\r\n."))[:3] == (
            b"250" if repaired and b"\r" not in end.replace(b"\r\n", b"") and b"\0" not in end else b"550"
        )
        assert (await client.ask(b"NOOP")).startswith(b"250")
        assert len(server.intake.messages) <= 1
        for _, _, data in server.intake.messages:
            assert data.count(b"\n") == data.count(b"\r\n") == data.count(b"\r")
            assert b"\r\n.\r\n" not in data
            assert b"MAIL FROM:<evil@e.org>" in data  # it is text of the one message


async def begun(client: Client) -> None:
    await client.ask(b"MAIL FROM:<a@e.org>")
    await client.ask(b"RCPT TO:<b@e.org>")
    assert (await client.ask(b"DATA")).startswith(b"354")


async def test_bare_lf_is_repaired_for_listed_networks_only() -> None:
    for network, reply in (("127.0.0.0/8", b"250"), ("192.0.2.0/24", b"550")):
        async with serving(lenient=replace(LENIENT, bare_lf_networks=(network,))) as server:
            client = await server.client()
            await client.hello()
            await begun(client)
            assert (await client.ask(b"Subject: x\n\n..dot\n.\nlast\r\n."))[:3] == reply
            assert [
                data.endswith(b"Subject: x\r\n\r\n..dot\r\n..\r\nlast\r\n") for _, _, data in server.intake.messages
            ] == ([True] if reply == b"250" else [])


def fed(reader: DataReader, pieces: list[bytes]) -> tuple[bytes, bytes, object]:
    stored = b""
    rest = b""
    for piece in pieces:
        if reader.finished:
            rest += piece
        else:
            stored += reader.feed(piece)
            rest += reader.rest
    return stored, rest, reader.fault


@pytest.mark.parametrize("seed", range(20))
def test_repairing_does_not_depend_on_how_the_bytes_were_divided(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        text = b"".join(chance.choices([b"\r\n", b"\n", b"\r", b".", b"x", b"\r\n.\r\n", b"\n.\n"], k=12))
        sent = text + b"\r\n.\r\nQUIT\n"
        whole = fed(RepairingReader(10_000), [sent])
        cuts = sorted(chance.sample(range(len(sent) + 1), 4))
        parts = [sent[a:b] for a, b in itertools.pairwise([0, *cuts, len(sent)]) if a < b]
        divided = fed(RepairingReader(10_000), parts)
        assert divided[1:] == whole[1:]
        if whole[2] is None:
            assert divided == whole
            assert b"\r\n.\r\n" not in b"\r\n" + whole[0]
        assert whole[1] == sent[(b"\r\n" + sent).index(b"\r\n.\r\n") + 3 :], "the end is that of the bytes as sent"
