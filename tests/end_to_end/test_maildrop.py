"""Mail of local programs on the real core: submitted while it is down, while it runs, and while control is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.pickup.dropped import names_of
from tests.bounce.test_verified import parsed
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, Sections, recipients_of, running

COMMAND = [sys.executable, "-m", "mailcore.cli.postfix.main", "sendmail", "-oi", "-f", "author@sender.example"]


async def submit(core: RunningCore, *recipients: str, text: bytes = b"Subject: x\n\nbody\n.\nmore\n") -> None:
    program = await asyncio.create_subprocess_exec(
        *COMMAND, *recipients, stdin=asyncio.subprocess.PIPE, env={**os.environ, "WAYPOST_CONFIG": str(core.config)}
    )
    await program.communicate(text)
    assert program.returncode == 0


async def test_what_sendmail_took_is_delivered_once_whatever_is_killed(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        drop = core.home / "maildrop"

        async def gone() -> bool:
            return not names_of(os.listdir(drop))

        async def opened() -> bool:
            return drop.exists()

        await core.eventually(opened, "the maildrop")
        assert drop.stat().st_mode & 0o7777 == 0o3733
        assert not list((core.home / "queue").glob("incoming.1021")), "a maildrop that is not used costs no lane"
        core.stop()
        await core.control.close()
        wanted = [f"down{number}@example.net" for number in range(3)]
        for recipient in wanted:
            await submit(core, recipient)
        big = b"Subject: big\nBcc: secret@example.net\n\n" + b"0123456789\n" * 20_000
        await submit(core, "big1@example.net", "big2@example.net", text=big)
        (drop / "0123456789abcdef0123456789abcdef").write_bytes(b"no message of ours")
        await core.start()
        await core.eventually(gone, "an empty maildrop")
        for number in range(4):
            await submit(core, f"up{number}@example.net")
            wanted.append(f"up{number}@example.net")
            await asyncio.sleep(0.35 * number)  # another moment of the look each time
            os.kill(core.processes()["control"], signal.SIGKILL)
        await core.eventually(gone, "an empty maildrop")

        async def all_there() -> bool:
            return len(recipients_of(lab.messages)) >= len(wanted) + 2

        await core.eventually(all_there, "all mail")
        await core.insist(core.until_empty)
        assert Counter(recipients_of(lab.messages)) == Counter([*wanted, "big1@example.net", "big2@example.net"])
        state = await core.ask("state")
        assert state["balance"]["messages"]["difference"] == 0
        assert [line["file"].rpartition("/")[2] for line in core.log() if line["event"] == "maildrop_damaged"] == [
            "damaged.0123456789abcdef0123456789abcdef"
        ]


@pytest.mark.long
async def test_bv_is_answered_by_mail_also_if_it_was_asked_while_the_core_was_down(tmp_path: Path) -> None:
    sections: Sections = {
        "relay": {"domains": ["example.net"]},
        "recipients": {"known_by": "next_hop"},
        "rewriting": {"virtual_alias_maps": [str(tmp_path / "aliases")]},
    }
    (tmp_path / "aliases").write_text("team@example.net kim@example.net, robin@far.example\n")
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, sections, author=author) as core,
    ):
        core.stop()
        await core.control.close()
        program = await asyncio.create_subprocess_exec(
            *COMMAND, "-bv", "team@example.net", env={**os.environ, "WAYPOST_CONFIG": str(core.config)}
        )
        assert await program.wait() == 0
        await core.start()

        async def reported() -> bool:
            return bool(author.caught)

        await core.eventually(reported, "the report")
        await core.insist(core.until_empty)
        ((sender, recipients, data),) = author.caught
        assert (sender, recipients) == ("", ["author@sender.example"])
        groups = parsed(data)[2]
        assert list(lab.messages) == [], "nothing is sent to the addresses"
        assert [(each.get("Final-Recipient"), each.get("Action")) for each in groups[1:]] == [
            ("rfc822; kim@example.net", "deliverable"), ("rfc822; robin@far.example", "unverified"),
        ]  # fmt: skip
        assert {each["Original-Recipient"] for each in groups[1:]} == {"rfc822; team@example.net"}
