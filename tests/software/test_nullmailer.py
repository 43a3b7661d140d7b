"""Debian's nullmailer with its queue as a client: it hands in, waits after a 4xx, and tells its user of a 5xx."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.software.core import core_with, exact
from tests.software.nullmailer import nullmailer
from tests.software.programs import open_directory

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

TEXT = "From: a@sender.example\nTo: b@example.org\nSubject: Gruß\n\nHällo.\n.a dot\n..two\n".encode()
# The client is not one of our networks, so that it can be put off.
OUTSIDE: dict[str, dict[str, object]] = {
    "relay": {"networks": ["192.0.2.0/24"], "domains": ["example.org", "sender.example"]}
}


@pytest.mark.parametrize("put_off", [False, True], ids=["at once", "greylisted"])
async def test_its_queue_is_emptied_into_ours(tmp_path: Path, put_off: bool) -> None:
    """Also if the first answers are 450: it keeps the message and tries again."""
    sections: dict[str, dict[str, object]] = {**OUTSIDE, "greylist": {"enabled": put_off, "delay_s": 2}}
    with open_directory() as directory:
        async with (
            serving(ScriptedServer()) as hop,
            core_with(tmp_path, hop.port, Authority(tmp_path), sections) as core,
            nullmailer(directory, f"127.0.0.1 smtp --port={core.port}") as client,
        ):
            await client.inject("-f", "a@sender.example", message=TEXT)
            await eventually(lambda: hop.messages, lambda: client.log)
            await eventually(lambda: not client.kept(), lambda: client.log)
            assert not client.kept("failed")
            assert ("450 4.2.0" in client.log) is put_off
        (message,) = hop.messages
    assert (message.sender.split()[0], message.recipients) == ("<a@sender.example>", ["<b@example.org>"])
    assert exact(message.data, TEXT.partition(b"\n\n")[2].replace(b"\n", b"\r\n")), message.data


async def test_what_we_refuse_comes_back_to_its_user(tmp_path: Path) -> None:
    """It makes a report of our 554, and hands that in with an empty sender."""
    with open_directory() as directory:
        async with (
            serving(ScriptedServer()) as hop,
            core_with(tmp_path, hop.port, Authority(tmp_path), OUTSIDE) as core,
            nullmailer(directory, f"127.0.0.1 smtp --port={core.port}") as client,
        ):
            await client.inject("-f", "a@sender.example", "b@elsewhere.example", message=TEXT)
            await eventually(lambda: hop.messages, lambda: client.log)
            await eventually(lambda: not client.kept(), lambda: client.log)
            assert len(client.kept("failed")) == 1
        (report,) = hop.messages
    assert (report.sender.split()[0], report.recipients) == ("<>", ["<a@sender.example>"])
    assert b"554 5.7.1" in report.data
    assert b"Relay access denied" in report.data
