"""Mail in chunks (BDAT, RFC 3030) from us to Debian's Postfix, Exim and Dovecot: what arrives is what arrives by DATA."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.running.running_core import RunningCore
from tests.software.core import core_with, exact, smtp_session, tls_files
from tests.software.exim import Exim, exim
from tests.software.postfix import Postfix, postfix
from tests.software.programs import open_directory
from tests.software.test_dovecot import dovecot
from tests.software.test_postfix import KEYWORDS, MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

HEADER = MESSAGE.partition(b"\r\n\r\n")[0] + b"\r\n"
MESSAGES = [
    HEADER + b"\r\n",  # no body
    MESSAGE,  # 8-bit, and lines that begin with dots
    HEADER + b"\r\n" + ".Zeile mit Umlaut: ä\r\n..\r\n...\r\n".encode() * 12_000,  # in the spool, many chunks
]
TRANSPORTS: dict[str, dict[str, object]] = {
    "transports.chunks": {"chunking": "preferred"},
    "transports.plain": {},
    "queue": {"inline_limit": 20_000},
}
POSTFIX = {
    "smtpd_recipient_restrictions": "check_recipient_access inline:{{gone@ = 550 5.1.1 no such user}}",
    "debug_peer_list": "127.0.0.1",  # commands in its log
    "debug_peer_level": "1",
}


DOMAINS = ("plain.example", "chunks.example")


def arrived(behind: ScriptedServer, domain: str) -> list[bytes]:
    """The messages with two recipients in the domain, without the trace fields in front of them, in the order of MESSAGES."""
    found = [
        message.data[message.data.index(b"From: a@sender.example") :]
        for message in behind.messages
        if [each.partition(">")[0] for each in message.recipients] == [f"<b@{domain}", f"<c@{domain}"]
    ]
    return sorted(found, key=lambda data: (len(data) > len(HEADER) + 2, len(data)))


async def send_each_way(core: RunningCore) -> None:
    for message in MESSAGES:
        for domain in DOMAINS:
            recipients = [f"{name}@{domain}" for name in ("b", "gone", "c")]
            mail = ["BODY=8BITMIME"]
            await in_thread(smtp_session, core.port, "a@sender.example", recipients, message, mail, [])


def statuses(core: RunningCore) -> list[tuple[str, str]]:
    log = [line for line in core.log() if line["event"] == "delivery"]
    return sorted((line["recipient"], line["status"]) for line in log if "@sender" not in line["recipient"])


@pytest.mark.parametrize("kind", ["postfix", "exim"])
async def test_mail_in_chunks_is_the_same_mail(tmp_path: Path, kind: str) -> None:
    with open_directory() as directory:
        authority = Authority(directory)
        async with serving(ScriptedServer(keywords=KEYWORDS)) as behind, serving(ScriptedServer()) as author:
            hop: contextlib.AbstractAsyncContextManager[Exim | Postfix]
            if kind == "exim":
                hop = exim(directory, behind.port, tls_files(directory, authority, "exim.example.test"))
            else:
                hop = postfix(directory, {"default_transport": f"smtp:[127.0.0.1]:{behind.port}", **POSTFIX})
            async with hop as running:
                routes = {f"{name}.example": f"{name}:[127.0.0.1]:{running.port}" for name in ("plain", "chunks")}
                async with core_with(tmp_path, author.port, authority, TRANSPORTS, routes) as core:
                    await send_each_way(core)
                    await eventually(lambda: len(behind.messages) == 2 * len(MESSAGES), lambda: running.log)
                    await core.until_empty()
                    found = statuses(core)
                log = running.log
    plain, chunks = (arrived(behind, domain) for domain in DOMAINS)
    assert len(chunks) == len(MESSAGES)
    assert chunks == plain
    assert all(exact(data, message) for data, message in zip(chunks, MESSAGES, strict=True))
    fates = {"b": "sent", "gone": "bounced", "c": "sent"}
    assert found == sorted((f"{name}@{domain}", fates[name]) for name in fates for domain in DOMAINS for _ in MESSAGES)
    if kind == "postfix":
        chunk = re.findall(r"< .*\[127\.0\.0\.1\]: BDAT \d+( LAST)?$", log, re.MULTILINE)
        assert chunk.count(" LAST") == len(MESSAGES) < len(chunk)
    else:
        came = [line for line in log.splitlines() if " <= a@sender.example" in line]
        assert [" K " in line for line in came].count(True) == len(MESSAGES) == len(came) // 2, came


async def test_mail_in_chunks_over_lmtp_is_the_same_mail(tmp_path: Path) -> None:
    """Dovecot offers CHUNKING; each recipient has a reply to the last chunk."""
    lmtp = {name: {**values, "protocol": "lmtp"} for name, values in TRANSPORTS.items() if name != "queue"}
    with open_directory() as directory:
        async with serving(ScriptedServer()) as author, dovecot(directory, "b", "c") as (mail, port):
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(b"LHLO x\r\n")
                await eventually(lambda: b"CHUNKING" in connection.recv(4096), "its keywords")
            routes = {f"{name}.example": f"{name}:[127.0.0.1]:{port}" for name in ("plain", "chunks")}
            async with core_with(tmp_path, author.port, Authority(tmp_path), {**TRANSPORTS, **lmtp}, routes) as core:
                await send_each_way(core)
                await eventually(lambda: len(author.messages) == 2 * len(MESSAGES), (directory / "log").read_text)
                await core.until_empty()
                found = statuses(core)
            stored = {user: sorted(path.read_bytes() for path in (mail / user / "new").iterdir()) for user in "bc"}
    fates = {"b": "sent", "gone": "bounced", "c": "sent"}
    assert found == sorted((f"{name}@{domain}", fates[name]) for name in fates for domain in DOMAINS for _ in MESSAGES)
    assert {user: len(found) for user, found in stored.items()} == {"b": 6, "c": 6}
    twice = [message.replace(b"\r\n", b"\n") for message in MESSAGES for _ in DOMAINS]
    for kept in stored.values():
        assert sorted((data[data.index(b"From: a@sender.example") :] for data in kept), key=len) == twice
