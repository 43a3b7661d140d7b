"""Debian's Postfix and Waypost add the same missing fields to mail over SMTP of local clients, and to no other mail."""

from __future__ import annotations

import asyncio
import smtplib
from pathlib import Path

import pytest

from mailcore.config.rewriting import Rewriting
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import PATIENCE_S, eventually
from tests.receiver import server_in_process
from tests.receiver.server_in_process import without_trace
from tests.receiver.test_missing_fields import completion
from tests.rewriting.missing_field_cases import CASES, SENDER, plain
from tests.software.postfix import postfix
from tests.software.programs import open_directory

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

OTHER = "127.0.0.9"  # not an address of an interface, which are Postfix's local clients


def send(port: int, messages: list[bytes], source: str) -> None:
    """Sends each message in a transaction of its own; ``messages`` are dot-stuffed."""
    with smtplib.SMTP("127.0.0.1", port, "client.example", PATIENCE_S, (source, 0)) as client:
        client.ehlo()
        for message in messages:
            assert client.mail(SENDER)[0] == 250
            assert client.rcpt("b@example.net")[0] == 250
            assert client.docmd("DATA")[0] == 354
            client.send(message + b".\r\n")
            assert client.getreply()[0] == 250


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("source", ["127.0.0.1", OTHER])
async def test_postfix_adds_the_same(tmp_path: Path, source: str, always: bool) -> None:
    sent = [message for message, _ in CASES]
    arrived: list[bytes] = []
    with open_directory() as directory:
        async with serving(ScriptedServer()) as hop:
            settings = {
                "default_transport": f"smtp:[127.0.0.1]:{hop.port}",
                "always_add_missing_headers": "yes" if always else "no",
                "default_destination_concurrency_limit": "1",
            }
            async with postfix(directory, settings) as theirs:
                for number, message in enumerate(sent):  # one by one: several may be delivered in another order
                    await asyncio.to_thread(send, theirs.port, [message], source)
                    await eventually(lambda: len(hop.messages) > number, lambda: theirs.log)  # noqa: B023
        arrived = [without_trace(each.data) for each in hop.messages]
    local = Rewriting().local_header_rewrite_clients if source != OTHER else ()
    rewriting = completion(tmp_path, local_header_rewrite_clients=local, always_add_missing_headers=always)
    async with server_in_process.serving(rewriting=rewriting) as ours:
        await asyncio.to_thread(send, ours.address[1], sent, source)
    stored = [without_trace(data) for _, _, data in ours.intake.messages]
    if source == OTHER and not always:
        assert stored == sent
        assert not any(b"<id>" in plain(each) or b"From: a@s.example" in each for each in arrived)
    else:
        assert list(map(plain, arrived)) == list(map(plain, stored))
