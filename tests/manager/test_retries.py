"""What is deferred goes down the retry lanes and arrives later, once and unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.faults import Code
from mailcore.lab.arrival import content_digest
from mailcore.lab.lab import Lab
from tests.running.running_core import DATA, Sections, recipients_of, route_to, running

SPOOLED: Sections = {"queue": {"carry_limit": 0}}


@pytest.mark.parametrize(
    ("behaviour", "sections"),
    [
        ("greylist(1.5)", SPOOLED),
        pytest.param("reject(1, 421, connect)", SPOOLED, marks=pytest.mark.long),
        ("dead_for(3)", {}),
    ],
)
async def test_deferred_mail_arrives_later_once_byte_for_byte(
    tmp_path: Path, behaviour: str, sections: Sections
) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections) as core:
        await lab.hops[0].set_behaviour(behaviour)
        queue_id = await core.send("a@example.org")
        item = await core.until_in(queue_id, "retry.")
        assert item["state"] == "deferred"
        assert item["attempts"] >= 1
        assert item["reason"]
        assert item["due_at"] > item["arrived_at"]
        assert item["destinations"] == [route_to(lab, 0)]
        assert core.spool_files() == ([queue_id] if sections else [])
        size = await core.size()
        assert (size["messages"], size["recipients"]) == (1, 1)
        if "reject" in behaviour:
            await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        await lab.wait_for(1)
        assert [arrival.sha256 for arrival in lab.messages] == [content_digest(DATA.replace(b"\r\n..", b"\r\n.."))]
        assert recipients_of(lab.messages) == ["a@example.org"]

        async def clean() -> bool:
            return not core.spool_files()

        await core.eventually(clean, "the spool file's end")


async def test_a_message_that_cannot_be_spooled_is_put_back_when_the_disk_takes_it_again(tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, running(tmp_path, lab, SPOOLED) as core:
        fans = [core.home / "spool" / f"{fan:02x}" for fan in range(64)]
        for fan in fans:
            fan.touch()  # where a directory should be
        queue_id = await core.send("a@example.org")

        async def reported() -> bool:
            return any("can't be put back yet" in line.get("error", "") for line in core.log())

        await core.eventually(reported, "the report")
        assert (await core.refusal("hold", queue_id)).code is Code.BUSY
        for fan in fans:
            fan.unlink()
        await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]
