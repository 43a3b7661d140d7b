"""Aliases over a running core: expanded before the 250, reloaded while a session lasts, and never replaced by a bad file."""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, Sections, recipients_of, running

MESSAGE = b"Subject: x\r\n\r\nx\r\n"


def sections(path: Path) -> Sections:
    return {"rewriting": {"virtual_alias_maps": [str(path)]}}


def logged(core: RunningCore, text: str, processes: int = 1) -> bool:
    return (core.home / "log" / "mail.log").read_text().count(text) >= processes


MAPPING = 2  # processes that read the files: the receiver and control, each when it looks at them


async def test_a_list_reaches_all_its_members_and_a_bounce_names_the_list(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("team@own.example kim@open.example robin@gone.example kim@open.example\n")
    async with Catcher() as author, Lab(["accept:127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
        host, port = lab.hops[1].address
        routes = {"gone.example": f"smtp:[{host}]:{port}"}
        async with running(tmp_path, lab, sections(aliases), routes=routes, author=author) as core:
            queue_id = await core.send("team@own.example", "kim@open.example")
            await core.until_removed(queue_id)
            await core.until_empty()
            assert recipients_of(lab.messages) == ["kim@open.example"]
            ((_, _, bounce),) = author.caught
            assert b"Final-Recipient: rfc822; robin@gone.example" in bounce
            assert b"Original-Recipient: rfc822;team@own.example" in bounce
            assert logged(core, "to=<robin@gone.example>, orig_to=<team@own.example>, relay=")
            assert logged(core, "to=<kim@open.example>, ")


async def test_a_change_is_in_force_within_one_session_and_a_bad_file_is_not(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("team@own.example one@open.example\n")
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        running(tmp_path, lab, sections(aliases)) as core,
        contextlib.AsyncExitStack() as stack,
    ):
        client = await asyncio.to_thread(smtplib.SMTP, "127.0.0.1", core.port, timeout=60)
        stack.callback(client.close)

        async def sent() -> list[str]:
            before = len(lab.messages)
            await asyncio.to_thread(client.sendmail, "author@sender.example", ["team@own.example"], MESSAGE)
            await core.eventually(lambda: _so(len(lab.messages) > before), "the message")
            return recipients_of(lab.messages)

        assert await sent() == ["one@open.example"]
        aliases.write_text("team@own.example two@open.example\n")
        await core.eventually(lambda: _so(logged(core, "1 file in use", MAPPING)), "the new file")
        assert await sent() == ["one@open.example", "two@open.example"]
        aliases.write_text("team@own.example three@open.example\nnonsense\n")
        fault = f"{aliases}:2: 'nonsense' has no address behind it; those read before stay in use"
        await core.eventually(lambda: _so(logged(core, fault, MAPPING)), "the fault in the log")
        assert await sent() == ["one@open.example", "two@open.example", "two@open.example"]
        await asyncio.to_thread(client.quit)


async def test_without_any_usable_file_mail_stays_with_the_client(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("nonsense\n")
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections(aliases)) as core:
        client = await asyncio.to_thread(smtplib.SMTP, "127.0.0.1", core.port, timeout=60)
        client.ehlo()
        for verb in ("MAIL FROM:<author@sender.example>", "RCPT TO:<team@own.example>"):
            assert client.docmd(verb)[0] == 250
        assert client.data(MESSAGE) == (451, b"4.3.0 Error: the recipients cannot be determined; try again later")
        aliases.write_text("team@own.example one@open.example\n")
        await core.eventually(lambda: _so(logged(core, "1 file in use", MAPPING)), "the file")
        await asyncio.to_thread(client.sendmail, "author@sender.example", ["team@own.example"], MESSAGE)
        await core.eventually(lambda: _so(bool(lab.messages)), "the message")
        assert recipients_of(lab.messages) == ["one@open.example"]
        await asyncio.to_thread(client.quit)


async def _so(true: bool) -> bool:
    return true
