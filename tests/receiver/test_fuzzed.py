"""Fuzzed command streams: they end no process, raise nothing, and grow no memory."""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
from pathlib import Path

import pytest

from mailcore.config.clients import Clients
from mailcore.config.lenient import Lenient
from tests.deliverer.scripted_server import server_tls
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.logins import plain, submission, user
from tests.receiver.server_in_process import Serving, any_certificate, serving

SHORT, LONG = 5_000, 1_000_000  # commands that are answered
SHORT_LOGINS, LONG_LOGINS = 2_000, 100_000  # each password that is looked at costs 5 ms
SEEDS = (1, 2, 3, 4)
AT_ONCE = 10  # sessions
REPLIES_S = 0.01  # for the replies to a burst
BURST = 50  # commands that are sent before the replies are read
GROWTH_KIB_MAX = 24 * 1024  # of the process, after a tenth of the commands

VERBS = [
    b"EHLO c", b"HELO c", b"RSET", b"NOOP", b"VRFY a", b"HELP", b"AUTH PLAIN", b"EXPN x",
    b"XCLIENT ADDR=::1", b"XFORWARD NAME=x", b"ETRN x", b"", b"DATA",
    b"BDAT 3 LAST\r\nab", b"BDAT 0 LAST", b".",
]  # fmt: skip
ENDS = [b"QUIT", b"STARTTLS", b"GET /", b"BDAT x", b"BDAT 5\r\nabcd"]  # of the session, or of its commands
ADDRESSES = [
    b"<a@example.com>", b"<b@example.org>", b"<>", b"<postmaster>", b'<"a b"@example.com>', b"<@h:b@example.org>",
    b"<b@[127.0.0.1]>",
    b"a@example.com", b"<a@@b>", b"<a..b@c>", "<é@example.org>".encode(), b"<\xc0\xaf@x>",
    b"<" + b"x" * 300 + b"@y>",
]  # fmt: skip
PARAMETERS = [
    b"SIZE=10", b"SIZE=99999999999", b"BODY=8BITMIME", b"BODY=BINARYMIME", b"SMTPUTF8", b"RET=HDRS", b"ENVID=a+2Bb", b"AUTH=<>",
    b"NOTIFY=NEVER", b"ORCPT=rfc822;a", b"BY=100;R", b"MT-PRIORITY=3", b"FROB", b"=", b"SIZE",
]  # fmt: skip
BODIES = [
    b"Subject: x\r\n\r\nbody\r\n.", b".", b"x\n.\r\ny\r\n.", b"\0\r\n.", b"x" * 5000 + b"\r\n.",
    b"Received: x\r\n" * 60 + b".", b"x\r.\r\n.",
]  # fmt: skip
REPLY = re.compile(rb"(?m)^[2-5][0-9][0-9] ")
OCTETS = [b"\0", b"\r", b"\n", b"\r\n", b"\xff", b" ", b"<", b">", b"\x80", b"A" * 3000]


LOGINS = [
    b"AUTH PLAIN " + plain(), b"AUTH PLAIN " + plain(password="wrong"), b"AUTH PLAIN\r\n" + plain(), b"AUTH PLAIN\r\n*",
    b"AUTH LOGIN\r\nYWxpY2U=\r\n", b"AUTH LOGIN", b"AUTH LOGIN =", b"AUTH SCRAM-SHA-256", b"AUTH X", b"AUTH PLAIN \xff",
    b"AUTH SCRAM-SHA-256 biwsbj1hbGljZSxyPWFiYw==", b"YWxpY2U=", b"*",
    b"AUTH SCRAM-SHA-256 biwsbj1hbGljZSxyPWFiYw==\r\nYz1iaXdzLHI9eCxwPWFiYw==",
]  # fmt: skip


def command(draw: random.Random, *, logins: bool = False) -> bytes:
    """One command of the grammar with its CRLF; now and then with a mutation."""
    kind = draw.random()
    if kind < 0.25:
        line = b"MAIL FROM:" + draw.choice(ADDRESSES) + _parameters(draw)
    elif kind < 0.55:
        line = b"RCPT TO:" + draw.choice(ADDRESSES) + _parameters(draw)
    elif kind < 0.65:
        line = b"DATA\r\n" + draw.choice(BODIES)
    elif logins and kind < 0.75:
        line = draw.choice(LOGINS)
    else:
        line = draw.choice(VERBS if draw.random() < 0.995 else ENDS)
    line += b"\r\n"
    if draw.random() < 0.15:
        at = draw.randrange(len(line))
        line = line[:at] + draw.choice(OCTETS) + line[at + draw.randint(0, 2) :]
    return line


def _parameters(draw: random.Random) -> bytes:
    return b"".join(b" " + draw.choice(PARAMETERS) for _ in range(draw.choice((0, 0, 0, 1, 2))))


def test_the_grammar_makes_every_verb() -> None:
    draw = random.Random(0)
    made = b"".join(command(draw) for _ in range(20_000))
    for part in (b"MAIL FROM:", b"RCPT TO:", b"DATA\r\n", *VERBS, *ENDS, *PARAMETERS, *BODIES):
        assert part in made


class Fuzzer:
    """Sessions, one after the other, until enough commands were sent. Never waits for a particular reply."""

    def __init__(self, server: Serving, draw: random.Random, commands: int, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.draw = draw
        self.left = commands
        self.replies = 0  # except those to what begins a session
        self._tls = tls  # from the first byte, with logins

    async def run(self) -> None:
        while self.left > 0:
            reader, writer = await asyncio.open_connection(*self.server.address, ssl=self._tls)
            self.replies -= 2  # the greeting, and that to EHLO
            try:
                await self._session(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"EHLO c\r\n")
        if self._tls is not None and self.draw.random() < 0.5:
            while not (await reader.readline()).startswith(b"250 "):
                pass
            writer.write(b"AUTH PLAIN " + plain() + b"\r\n")
            assert (await reader.readline()).startswith(b"235 ")
        for _ in range(self.draw.randint(1, 20)):
            count = self.draw.randint(1, BURST)
            burst = b"".join(command(self.draw, logins=self._tls is not None) for _ in range(count))
            self.left -= count
            cut = self.draw.randrange(len(burst))
            if writer.transport.is_closing():
                return
            writer.write(burst[:cut])
            writer.write(burst[cut:])
            # What comes is thrown away. A server that waits for the end of the data, or for a handshake, says nothing.
            try:
                async with asyncio.timeout(REPLIES_S):
                    while found := await reader.read(65_536):
                        self.replies += len(REPLY.findall(found))
                return  # the server has closed
            except TimeoutError:
                if writer.transport.get_write_buffer_size():
                    return  # it does not read any more
            if self.left <= 0:
                return


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


async def fuzzed(directory: Path, seed: int, commands: int) -> tuple[int, int]:
    """Returns as ``feed``."""
    print(f"seed {seed}")
    async with serving(
        tls=server_tls(directory),
        clients=Clients(
            error_sleep_time_s=0,
            junk_command_limit=1_000_000,
            useless_command_limit=1_000_000,
            xclient_networks=("192.0.2.0/24",),
        ),
        lenient=Lenient(bare_lf_networks=("127.0.0.0/8",) if seed % 2 else ()),
        error_limit=1000,
        message_size_limit=4096,
        command_line_limit=512,
        recipient_limit=5,
        connections_per_client_max=1000,
    ) as server:
        grown_kib, taken = await feed(server, random.Random(seed), commands)
        client = await server.ready()
        await client.to_data()
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        return grown_kib, taken


async def feed(
    server: Serving, draw: random.Random, commands: int, tls: ssl.SSLContext | None = None
) -> tuple[int, int]:
    """Sends commands until this many were answered: what is sent behind the end of a session does not count.

    Returns how many KiB the process has grown after the first tenth of them, and how many messages were taken.
    """
    warm, taken, replies = 0, 0, 0
    part = max(commands // 10, AT_ONCE)
    while replies < commands:
        fuzzers = [Fuzzer(server, random.Random(draw.random()), part // AT_ONCE, tls) for _ in range(AT_ONCE)]
        async with asyncio.timeout(PATIENCE_S + part / 100):
            await asyncio.gather(*(each.run() for each in fuzzers))
        answered = sum(each.replies for each in fuzzers)
        assert answered > 0, "commands are run"
        replies += answered
        await eventually(lambda: not server.server.sessions)
        assert server.intake.failures == []
        taken += len(server.intake.messages)
        for kept in (
            server.intake.messages,
            server.intake.refusals,
            server.intake.uploads,
            server.intake.abandoned,
        ):
            kept.clear()  # of the test's own intake
        server.intake.spooled.clear()
        warm = warm or resident_kib()
    return resident_kib() - warm, taken


async def fuzzed_logins(directory: Path, seed: int, commands: int) -> tuple[int, int]:
    """Returns as ``feed``."""
    print(f"seed {seed}")
    limits = {
        "failures_per_network": 1_000_000,
        "failures_per_user": 1_000_000,
        "messages_per_hour": 0,
        "recipients_per_hour": 0,
    }
    async with submission(
        directory,
        user(scram=True),
        auth=limits,
        clients=Clients(error_sleep_time_s=0, junk_command_limit=1_000_000, useless_command_limit=1_000_000),
        error_limit=1000,
        message_size_limit=4096,
        connections_per_client_max=1000,
    ) as running:
        found = await feed(running.server, random.Random(seed), commands, any_certificate())
        await running.logged_in()
        return found


async def test_two_thousand_commands_with_logins_end_nothing(tmp_path: Path) -> None:
    _, taken = await fuzzed_logins(tmp_path, 0, SHORT_LOGINS)
    assert taken, "some sessions log in"


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_many_commands_with_logins_end_nothing_and_grow_no_memory(tmp_path: Path) -> None:
    grown_kib, taken = await fuzzed_logins(tmp_path, 1, LONG_LOGINS)
    print(f"{grown_kib} KiB grown, {taken} messages taken")
    assert grown_kib < GROWTH_KIB_MAX
    assert taken


async def test_five_thousand_commands_end_nothing(tmp_path: Path) -> None:
    _, taken = await fuzzed(tmp_path, 0, SHORT)
    assert taken, "the grammar makes messages that are taken"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_million_commands_end_nothing_and_grow_no_memory(tmp_path: Path, seed: int) -> None:
    grown_kib, taken = await fuzzed(tmp_path, seed, LONG // len(SEEDS))
    print(f"{grown_kib} KiB grown, {taken} messages taken")
    assert grown_kib < GROWTH_KIB_MAX
    assert taken
