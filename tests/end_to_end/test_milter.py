"""Milters of a running core: what one changed is what arrives, also when everything is killed after the 250."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.milter.scripted import CONTINUE, ScriptedMilter, add_header, change_header, framed, milter, quarantine
from tests.receiver.server_in_process import without_trace
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore

HEADER = b"Subject: one\r\nFrom: author@sender.example\r\n"
SMALL = HEADER + b"\r\nHello.\r\n.dot\r\n"
LARGE = HEADER + b"\r\n" + 20_000 * b".0123456789\r\n"  # beyond inline_limit: in the spool
CHANGES = (
    change_header(1, "Subject", b"two")
    + add_header("X-Milter", b"yes")
    + framed("e", b"<new@sender.example>\0")
    + framed("+", b"<second@example.net>\0")
)


class Core(RunningCore):
    def __init__(self, directory: Path, catcher: Catcher, filter_: ScriptedMilter, **more: Any) -> None:
        receiver = {"milters": [filter_.address], **more}
        super().__init__(directory, {"*": catcher.route}, {"receiver": receiver})


def expected(data: bytes, body: bytes | None) -> bytes:
    header, _, own = data.partition(b"\r\n\r\n")
    header = header.replace(b"Subject: one", b"Subject: two") + b"\r\nX-Milter: yes\r\n\r\n"
    return header + (own if body is None else body)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        pytest.param(SMALL, None, marks=pytest.mark.long),
        pytest.param(LARGE, None, marks=pytest.mark.long),
        pytest.param(SMALL, b"new\r\n.\r\n..x\r\n", marks=pytest.mark.long),
        (SMALL, 9_000 * b".new line\r\n"),  # into the spool
        (LARGE, b"small now\r\n"),  # out of it
    ],
    ids=["small", "large", "replaced", "grown", "shrunk"],
)
async def test_changes_survive_a_kill_of_everything_after_the_250(
    data: bytes, body: bytes | None, tmp_path: Path
) -> None:
    sent = b"" if body is None else b"".join(framed("b", body[at : at + 60_000]) for at in range(0, len(body), 60_000))
    async with Catcher() as catcher, milter(script={"E": CHANGES + sent + CONTINUE}) as filter_:
        core = Core(tmp_path, catcher, filter_)
        await core.start()
        try:
            for name, pid in core.processes().items():
                if name.startswith("deliverer"):
                    os.kill(pid, signal.SIGSTOP)  # nothing leaves before the kill
            await core.send("first@example.net", data=data)
            assert catcher.caught == []
            await core.again()
            await eventually(lambda: len(catcher.caught) == 1, "the message")
            await core.until_empty()
            await eventually(lambda: core.spool_files() == [], "an empty spool")
        finally:
            await core.control.close()
            core.stop()
        ((sender, recipients, arrived),) = catcher.caught
        assert sender == "new@sender.example"
        assert sorted(recipients) == ["first@example.net", "second@example.net"]
        assert without_trace(arrived) == expected(data, body)


async def test_a_message_in_quarantine_is_held_until_an_operator_releases_it(tmp_path: Path) -> None:
    async with Catcher() as catcher, milter(script={"E": quarantine(b"looks bad") + CONTINUE}) as filter_:
        core = Core(tmp_path, catcher, filter_)
        await core.start()
        try:
            queue_id = await core.send("first@example.net", data=SMALL)
            item = await core.until_in(queue_id, "hold")
            assert item["state"] == "held"
            assert catcher.caught == []
            acted = [each for each in core.log() if each["event"] == "milter_acted"]
            assert [(each["action"], each["why"], each["queue_id"]) for each in acted] == [
                ("hold", "looks bad", queue_id)
            ]
            await core.order("release", queue_id)
            await eventually(lambda: len(catcher.caught) == 1, "the message")
        finally:
            await core.control.close()
            core.stop()
        assert without_trace(catcher.caught[0][2]) == SMALL
