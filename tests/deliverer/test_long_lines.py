"""Lines beyond the limit are broken as Postfix breaks them, wherever blocks are cut; others stay byte for byte."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import dkim
import msgspec
import pytest

from mailcore.config.load import ConfigError, load_text
from mailcore.config.protocol import line_limits
from mailcore.deliverer.deliverer import Deliverer
from mailcore.deliverer.long_lines import LineBreaker
from mailcore.dkim.key import new_key
from mailcore.envelope import Status
from mailcore.esmtp import BINARY
from mailcore.frames import Deliver, Delivered, NextHop
from mailcore.log.data_blocks import BLOCK_BYTES, sums_of
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.deliverer.test_deliverer import settings_in

KEYWORDS = ("PIPELINING", "SIZE 50000000", "8BITMIME", "CHUNKING")
HEADER = b"From: a@example.org\r\nSubject: x\r\n\r\n"
LONG = HEADER + b"x" * 3000 + b"\r\n..dot\r\n" + b"." * 2 + b"y" * 2000 + b"\r\nend\r\n"
BIG = HEADER + (b"z" * 2500 + b"\r\n..\r\n" + b"short\r\n" * 40) * 400
NORMAL = HEADER + (b"w" * 998 + b"\r\n.." + b"v" * 997 + b"\r\n") * 100


def expected(stored: bytes, limit: int = 998) -> bytes:
    """What Postfix sends: each line by itself, a stuffed dot not counted."""
    lines = []
    for line in stored.split(b"\r\n"):
        dot, rest = (line[:1], line[1:]) if line.startswith(b".") else (b"", line)
        pieces = [rest[:limit]]
        pieces += [b" " + rest[at : at + limit - 1] for at in range(limit, len(rest), limit - 1)]
        lines.append(dot + b"\r\n".join(pieces))
    return b"\r\n".join(lines)


def broken(blocks: list[bytes], limit: int) -> bytes:
    breaker = LineBreaker(limit)
    return b"".join(breaker.feed(block, is_last=at == len(blocks) - 1) for at, block in enumerate(blocks))


@pytest.mark.parametrize("seed", range(300))
def test_lines_are_broken_wherever_the_blocks_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    limit = chance.choice([4, 5, 10, 998])

    def line() -> bytes:
        begin = chance.choice([b"", b".", b"..", b"x", b"a\nb", b"\n", b"a\rb"])
        return begin + b"abcdefgh" * chance.choice([0, 1, 2, 125, 300])

    text = b"".join(line()[: chance.choice([limit, limit + 1, 5000])] + b"\r\n" for _ in range(chance.randrange(12)))
    text += chance.choice([b"", b"x" * limit, b"x" * (limit + 1)])
    cuts = sorted(chance.randrange(len(text) + 1) for _ in range(chance.randrange(8)))
    blocks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert broken(blocks, limit) == expected(text, limit)
    assert broken([text], limit) == expected(text, limit)
    assert broken([text[at : at + 1] for at in range(len(text))] or [b""], limit) == expected(text, limit)


def test_a_block_without_a_long_line_is_not_copied() -> None:
    breaker = LineBreaker(998)
    assert breaker.feed(NORMAL, is_last=True) is NORMAL


async def send(directory: Path, server: ScriptedServer, body: bytes, text: str = "", **changes: object) -> Delivered:
    settings = load_text(directory / "waypost.toml", text) if text else None
    ours = settings_in(directory)
    if settings is not None:
        ours = replace(ours, transports=settings.transports, dkim=settings.dkim)
    path = directory / "data"
    path.write_bytes(b"before" + body)
    work = Deliver(
        entry=1,
        queue_id="Q1",
        transport="smtp",
        next_hop=NextHop("127.0.0.1", server.port, False),
        sender="from@example.net",
        recipients=((1, "a@example.org"),),
        path=str(path),
        offset=6,
        length=len(body),
        eight_bit=False,
        smtputf8=False,
        data_sums=sums_of(body),
    )
    deliverer = Deliverer(ours, 1, asyncio.get_running_loop())
    try:
        return await deliverer.deliver(msgspec.structs.replace(work, **changes))
    finally:
        deliverer.close()


def delivered(result: Delivered) -> bool:
    return [verdict.status for verdict in result.verdicts] == [Status.DELIVERED]


def destuffed(data: bytes) -> bytes:
    return (b"\r\n" + data).replace(b"\r\n.", b"\r\n")[2:]


@pytest.mark.parametrize("body", [LONG, BIG, NORMAL, b"x" * 1500], ids=["small", "big", "normal", "no end"])
@pytest.mark.parametrize("chunking", ["needed", "preferred"])
async def test_a_next_hop_gets_no_long_line(tmp_path: Path, body: bytes, chunking: str) -> None:
    async with serving(ScriptedServer(keywords=KEYWORDS)) as server:
        result = await send(tmp_path, server, body, f'[transports.smtp]\nchunking = "{chunking}"\n')
    assert delivered(result)
    end = b"" if body.endswith(b"\r\n") else b"\r\n"
    wanted = expected(body) + end
    assert server.messages[0].data == (wanted if chunking == "needed" else destuffed(wanted))
    size = len(expected(body)) if len(body) <= BLOCK_BYTES else len(body)  # of big data, as Postfix, that of the queue
    (mail,) = [line for line in server.sessions[0].lines if line.startswith("MAIL")]
    assert mail == f"MAIL FROM:<from@example.net> SIZE={size}"


@pytest.mark.parametrize("limit", [0, 100, 5000])
async def test_the_limit_is_that_of_the_transport(tmp_path: Path, limit: int) -> None:
    async with serving(ScriptedServer(keywords=KEYWORDS)) as server:
        assert delivered(await send(tmp_path, server, LONG, f"[transports.smtp]\nline_length_limit = {limit}\n"))
    assert server.messages[0].data == (expected(LONG, limit) if limit else LONG)


@pytest.mark.parametrize("value", ["99", "-1", "1_000_001", "true", '"998"'])
def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="line_length_limit must be 0, or a whole number from 100 to 1000000"):
        load_text(tmp_path / "waypost.toml", f"[transports.smtp]\nline_length_limit = {value}\n")


def test_only_limits_that_differ_are_kept(tmp_path: Path) -> None:
    text = "[transports.smtp]\nline_length_limit = 998\n[transports.b]\nline_length_limit = 0\n"
    assert line_limits(load_text(tmp_path / "waypost.toml", text).transports) == {"b": 0}


async def test_binary_data_has_no_lines(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=(*KEYWORDS, "BINARYMIME"))) as server:
        assert delivered(await send(tmp_path, server, LONG, options=(BINARY,)))
    assert server.messages[0].data == destuffed(LONG)


async def test_damage_is_found_in_what_was_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=KEYWORDS)) as server:
        for body in (LONG, BIG):
            result = await send(tmp_path, server, body, data_sums=sums_of(body[:-3] + b"?" + body[-2:]))
            assert result.damage
    assert not server.messages


@pytest.mark.parametrize("body", [LONG, BIG], ids=["small", "big"])
@pytest.mark.parametrize("keywords", [KEYWORDS, KEYWORDS[:2]], ids=["8 bits", "7 bits"])
@pytest.mark.parametrize("octet", [b"", b"\xc3\xa4"], ids=["ASCII", "UTF-8"])
async def test_our_signature_is_of_the_broken_lines(
    tmp_path: Path, body: bytes, keywords: tuple[str, ...], octet: bytes
) -> None:
    key = new_key("rsa")
    path = tmp_path / "key.pem"
    path.write_bytes(key.pem)
    path.chmod(0o600)
    text = f'[[dkim]]\ndomain = "example.org"\nselector = "s"\nkey = "{path}"\n'
    body = body.replace(b"Subject: x", b"Subject: " + b"long " * 400).replace(b"end\r\n", octet + b"end\r\n")
    async with serving(ScriptedServer(keywords=keywords)) as server:
        assert delivered(
            await send(tmp_path, server, body + octet + b"\r\n", text, is_ours=True, eight_bit=bool(octet))
        )
    message = destuffed(server.messages[0].data)
    assert max(map(len, message.split(b"\r\n"))) <= 998
    assert dkim.verify(message, dnsfunc=lambda name, timeout=5: key.record.encode())
