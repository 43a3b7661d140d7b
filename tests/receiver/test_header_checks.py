"""Header checks and canonical addresses in the header of mail over SMTP: before the 250, and live."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from mailcore.authenticity.sender_check import SenderCheck
from mailcore.config.header_completion import HeaderCompletion
from mailcore.config.listeners import Listener
from mailcore.config.live_maps import LiveMaps
from mailcore.config.rewriting import Rewriting
from mailcore.envelope import DataPlace
from mailcore.log.data_blocks import sums_of
from mailcore.maillog import MailLog
from mailcore.receiver.milter_message import MilterMessage
from tests.eventually import eventually
from tests.milter.scripted import CONTINUE, insert_header, milter
from tests.receiver.configured_receiver import US, configured
from tests.receiver.server_in_process import Client, serving

CHECKS = """/^subject: no/     REJECT not here
/^subject: hold/   HOLD look at it
/^subject: away/   DISCARD
/^subject: other/  REDIRECT desk@in.example
/^subject: mark/   PREPEND X-Mark: yes
/^x-mine:/         IGNORE
/^subject: slow ((a|aa)+)+$/ REJECT
"""


def live(directory: Path, text: str = CHECKS, **settings: object) -> LiveMaps:
    checks, canonical = directory / "checks", directory / "canonical"
    checks.write_text(text)
    canonical.write_text("kim@in.example kim@out.example\n")
    made = Rewriting(header_checks=(str(checks),), canonical_maps=(str(canonical),), **settings)  # type: ignore[arg-type]
    return LiveMaps(made, MailLog(directory), ThreadPoolExecutor(1))


async def send(client: Client, subject: bytes, body: bytes = b"x\r\n") -> bytes:
    await client.to_data(b"kim@in.example")
    header = b"From: Kim <kim@in.example>\r\nX-Mine: 1\r\nSubject: " + subject
    return await client.ask(header + b"\r\n\r\n" + body + b".")


@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_check_refuses_holds_discards_redirects_and_changes_a_message(tmp_path: Path, size: int) -> None:
    body = b"0123456789\r\n" * (size // 12) + b"x\r\n"
    async with serving(rewriting=live(tmp_path), inline_limit=10_000) as server:
        client = await server.ready()
        assert await send(client, b"no", body) == b"550 5.7.1 not here\r\n"
        for subject in (b"away", b"hold", b"other", b"mark"):
            assert (await send(client, subject, body)).startswith(b"250 "), subject
        (held, _, _), (other, _, _), (marked, _, data) = server.intake.messages
        assert held.held_because == "look at it"
        assert [each.address for each in other.recipients] == ["desk@in.example"]
        assert b"\r\nX-Mark: yes\r\nSubject: mark\r\n\r\n" + body in data
        assert b"X-Mine" not in data
        assert b"From: Kim <kim@out.example>\r\n" in data  # a local client
        assert marked.size_bytes == len(data)
        assert marked.data_sums == sums_of(data)
        assert (marked.data is DataPlace.SPOOL) is bool(size)


async def test_a_header_whose_checks_do_not_end_stays_with_the_client(tmp_path: Path) -> None:
    async with serving(rewriting=live(tmp_path)) as server:
        client = await server.ready()
        reply = await send(client, b"slow " + b"a" * 200 + b"!")
        assert reply == b"451 4.3.0 Error: the header cannot be checked; try again later\r\n"
        assert (await send(client, b"mark")).startswith(b"250 ")
        assert len(server.intake.messages) == 1


async def test_a_client_that_sends_its_header_slowly_is_not_refused(tmp_path: Path) -> None:
    """The time for checks is that of the checks: it was over a second after DATA, for every client on a slow line."""
    rewriting = live(tmp_path, header_checks_time_ms=100)
    async with serving(rewriting=rewriting) as server:
        client = await server.ready()
        await client.to_data(b"kim@in.example")
        await client.send(b"Subject: mark\r\nX-B: ")
        await asyncio.sleep(0.3)
        assert (await client.ask(b"1\r\n\r\nx\r\n.")).startswith(b"250 ")


async def test_a_reason_with_bytes_of_the_message_is_stored(tmp_path: Path) -> None:
    checks = tmp_path / "checks"
    checks.write_text("/^subject: (.*)/ HOLD $1\n")
    async with configured(tmp_path, f'[rewriting]\nheader_checks = ["{checks}"]\n') as server:
        assert isinstance(server.receiving.reception.rewriting, LiveMaps)
        await eventually(lambda: server.receiving.reception.rewriting.files is not None)
        client = await server.client(US)
        assert (await send(client, b"a \xff\x1b")).startswith(b"250 ")
        ((envelope, _),) = server.lane.messages
        assert envelope.held_because == "a \ufffd?"


async def test_the_header_of_another_client_is_checked_and_not_rewritten(tmp_path: Path) -> None:
    rewriting = live(tmp_path, local_header_rewrite_clients=("192.0.2.0/24",))
    async with serving(rewriting=rewriting) as server:
        client = await server.ready()
        assert (await send(client, b"mark")).startswith(b"250 ")
        assert b"From: Kim <kim@in.example>\r\n" in server.intake.content
        assert b"X-Mine" not in server.intake.content


@pytest.mark.parametrize(
    ("check", "top"),
    [
        ("IGNORE", rb""),
        ("REPLACE Received: by us", rb"Received: by us\r\n"),
        ("PREPEND X-Top: 1", rb"X-Top: 1\r\nReceived: from [^\r]*(\r\n\t[^\r]*)*\r\n"),
    ],
)
async def test_a_check_of_our_own_received_field_hides_no_field_of_the_author(
    tmp_path: Path, check: str, top: bytes
) -> None:
    """Neither from milters, nor from our own check of the sender: a result that is forged there stayed in the mail."""
    seen: list[bytes] = []

    class Check:
        def is_for(self, purpose: str) -> bool:
            return True

        async def examine(self, message: MilterMessage, address: str, helo: str, *, is_ours: bool) -> bytes:
            seen.append(message.fields.of_client)
            assert message.fields.remove(b"x-forged", lambda field: True) == 1
            message.fields.insert(1, b"X-Ours", b"1", keep_space=False)
            return b""

    async with (
        milter(script={"E": insert_header(1, "X-Milter", b"1") + CONTINUE}) as filter_,
        serving(
            networks=("127.0.0.1/32",),
            domains=("example.org",),
            rewriting=live(tmp_path, f"/^Received:/ {check}\n"),
            rule=Listener(milters=(filter_.address,)),
            sender_check=cast(SenderCheck, Check()),
        ) as server,
    ):
        client = await server.client("127.0.0.9")
        await client.hello()
        await client.to_data(b"a@example.com")
        author = b"X-Forged: 1\r\nFrom: a@example.com\r\nSubject: x\r\n"
        assert (await client.ask(author + b"\r\nx\r\n.")).startswith(b"250 ")
        assert seen == [author]
        assert [name for name, _ in filter_.headers()] == [b"X-Ours", b"From", b"Subject"]
        ((_, _, data),) = server.intake.messages
        rest = rb"X-Milter: 1\r\nX-Ours: 1\r\nFrom: a@example\.com\r\nSubject: x\r\n\r\nx\r\n"
        assert re.fullmatch(top + rest, data)


async def test_a_changed_file_is_used_in_the_session_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    rewriting = live(tmp_path)

    async def changed(text: str, line: str) -> None:
        (tmp_path / "checks").write_text(text)
        async with asyncio.timeout(30):
            while line not in (tmp_path / "mail.log").read_text():
                rewriting.look()
                rewriting._log.flush()
                await asyncio.sleep(0.01)

    async with serving(rewriting=rewriting) as server:
        client = await server.ready()
        rewriting._log.flush()
        (tmp_path / "mail.log").touch()
        await changed("/^subject: new/ REJECT\n", "2 files in use")
        assert (await send(client, b"new")).startswith(b"550 ")
        await changed("/^subject: mark/ REJECT\nnonsense\n", "checks:2: must be /PATTERN/")
        assert (await send(client, b"new")).startswith(b"550 ")
        assert (await send(client, b"mark")).startswith(b"250 ")


@pytest.mark.parametrize("size", [0, 100_000])
async def test_addresses_without_a_domain_are_completed_for_local_clients_alone(tmp_path: Path, size: int) -> None:
    body = b"0123456789\r\n" * (size // 12) + b"x\r\n"
    header = b"From: root (Cron Daemon)\r\nTo: b@in.example\r\nDate: x\r\nMessage-ID: <1@b>\r\n\r\n"
    made = {"127.0.0.0/8": header.replace(b"root", b"root@own.example"), "192.0.2.0/24": header}
    for network, stored in made.items():
        rules = Rewriting(local_header_rewrite_clients=(network,))
        completion = HeaderCompletion(rules, "own.example", "mx.own.example", MailLog(tmp_path))
        async with serving(rewriting=completion, inline_limit=10_000) as server:
            client = await server.ready()
            await client.to_data(b"a@in.example")
            assert (await client.ask(header + body + b".")).startswith(b"250 ")
            ((envelope, _, data),) = server.intake.messages
            assert data.endswith(b"\r\n" + stored + body)
            assert envelope.size_bytes == len(data)
            assert envelope.data_sums == sums_of(data)


async def test_a_header_beyond_its_time_is_accepted_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.config.header_completion.TIME_S", 0.0)
    log = MailLog(tmp_path)
    async with serving(rewriting=HeaderCompletion(Rewriting(), "own.example", "mx.own.example", log)) as server:
        client = await server.ready()
        await client.to_data(b"a@in.example")
        assert (await client.ask(b"To: root\r\n\r\nx\r\n.")).startswith(b"250 ")
    assert server.intake.content.startswith(b"To: root\r\n")
    assert "take too long" in (tmp_path / "mail.log").read_text()
