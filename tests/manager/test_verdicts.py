"""Delivered, deferred and refused recipients of one message; bounces; the queue lifetime; what can't be routed."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, Sections, recipients_of, route_to, running

SHORT_LIFE: Sections = {"scheduler": {"maximal_queue_lifetime": 3, "bounce_queue_lifetime": 3}}


def of_bounce(data: bytes) -> tuple[EmailMessage, dict[str, Any]]:
    """The notification, and for each recipient it speaks of the fields (RFC 3464)."""
    message = email.message_from_bytes(data, policy=email.policy.SMTP)
    assert isinstance(message, EmailMessage)
    assert message.get_content_type() == "multipart/report"
    parts = list(message.iter_parts())
    assert [part.get_content_type() for part in parts][:2] == ["text/plain", "message/delivery-status"]
    blocks: Any = parts[1].get_payload()
    return message, {block["Final-Recipient"].partition(";")[2].strip(): block for block in blocks[1:]}


def verdicts(core: RunningCore, queue_id: str) -> dict[str, list[str]]:
    """Recipient to what became of it in each attempt, from the log."""
    found: dict[str, list[str]] = {}
    for line in core.log():
        if line.get("queue_id") == queue_id and line["event"] == "delivery":
            found.setdefault(line["recipient"], []).append(line["status"])
    return found


async def test_only_who_was_deferred_gets_it_again_and_one_bounce_tells_of_all_refused(tmp_path: Path) -> None:
    behaviour = "reject(no*@example.org, 550)+reject(later*@example.org, 450)"
    recipients = [f"{word}{number}@example.org" for word in ("yes", "no", "later") for number in range(2)]
    async with (
        Lab([f"{behaviour}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, author=author) as core,
    ):
        queue_id = await core.send(*recipients)
        item = await core.until_in(queue_id, "retry.")
        assert item["recipients"] == ["later0@example.org", "later1@example.org"]
        assert "450" in item["reason"]
        assert (await core.size())["recipients"] <= 3  # the bounce may still be there
        await lab.hops[0].set_behaviour("accept")
        await core.until_empty()
        assert recipients_of(lab.messages) == sorted(r for r in recipients if not r.startswith("no"))
        await core.until_removed(queue_id)
        assert len(author.caught) == 1
        sender, to, data = author.caught[0]
        assert (sender, to) == ("", ["author@sender.example"])
        message, failed = of_bounce(data)
        assert message["To"] == "author@sender.example"
        assert sorted(failed) == ["no0@example.org", "no1@example.org"]
        assert {block["Action"] for block in failed.values()} == {"failed"}
        assert {block["Status"] for block in failed.values()} == {"5.1.1"}
        assert verdicts(core, queue_id)["no0@example.org"] == ["bounced"]
        assert verdicts(core, queue_id)["yes0@example.org"] == ["sent"]
        assert verdicts(core, queue_id)["later0@example.org"][0] == "deferred"
        assert verdicts(core, queue_id)["later0@example.org"][-1] == "sent"


async def test_a_bounce_never_bounces(tmp_path: Path) -> None:
    async with Lab(["reject(1, 550):127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        await core.send("a@example.org")  # its bounce is refused as well: all mail goes to this hop
        await core.send("b@example.org", sender="")
        await core.until_empty()
        counters = (await core.ask("state"))["counters"]
        assert counters["bounces"] == 1
        assert counters["finished"] == 3
        assert not core.spool_files()


async def test_what_is_too_long_in_the_queue_is_returned_in_one_bounce_with_what_was_refused(tmp_path: Path) -> None:
    behaviour = "reject(later*@example.org, 450)"
    async with (
        Lab([f"{behaviour}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, SHORT_LIFE, author=author) as core,
    ):
        queue_id = await core.send("later0@example.org", "later1@example.org")
        await core.until_in(queue_id, "retry.")
        await lab.hops[0].set_behaviour("reject(later0@example.org, 450)+reject(later1@example.org, 550)")
        other = await core.send("yes@example.org", "later0@example.org")
        await core.until_empty()
        await core.until_removed(queue_id, other)
        assert recipients_of(lab.messages) == ["yes@example.org"]
        assert verdicts(core, queue_id)["later0@example.org"][-1] == "expired"
        assert verdicts(core, queue_id)["later1@example.org"][-1] == "bounced"
        assert verdicts(core, other)["later0@example.org"][-1] == "expired"
        history = (await core.ask("history", queue_id=queue_id))["events"]
        tries = [each for each in history if each["event"] in ("attempt", "settled")]
        assert tries[-1]["event"] == "settled", "an expiry is no attempt"
        assert tries[-1]["destination"] == tries[0]["destination"] != "", "but it says where the mail was to go"
        assert tries[-1]["verdicts"][0]["status"] == "expired"
        told = sorted(tuple(sorted(of_bounce(data)[1])) for _, _, data in author.caught)
        assert told in (
            [("later0@example.org",), ("later0@example.org",), ("later1@example.org",)],
            [("later0@example.org",), ("later0@example.org", "later1@example.org")],  # refused in the last pass
        )
        expired = [of_bounce(data)[1] for _, _, data in author.caught if b"4.4.7" in data]
        assert len(expired) == 2


async def test_who_is_refused_and_who_expires_in_the_same_pass_share_a_bounce(tmp_path: Path) -> None:
    life: Sections = {"scheduler": {"maximal_queue_lifetime": 0}}
    behaviour = "reject(no@example.org, 550)+reject(later*@example.org, 450)"
    async with (
        Lab([f"{behaviour}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, life, author=author) as core,
    ):
        await core.send("no@example.org", "later0@example.org", "later1@example.org", "yes@example.org")
        await core.until_empty()
        assert recipients_of(lab.messages) == ["yes@example.org"]
        (bounce,) = author.caught
        failed = of_bounce(bounce[2])[1]
        assert {address: block["Status"] for address, block in failed.items()} == {
            "no@example.org": "5.1.1",
            "later0@example.org": "4.4.7",
            "later1@example.org": "4.4.7",
        }


async def test_what_cannot_be_routed_is_returned(tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, routes={"*": "smtp", "example.org": route_to(lab, 0)}, author=author) as core,
    ):
        await core.inject("a@example.org", "b@no_domain-.example")
        await core.until_empty()
        assert recipients_of(lab.messages) == ["a@example.org"]
        (bounce,) = author.caught
        assert of_bounce(bounce[2])[1]["b@no_domain-.example"]["Status"] == "5.1.2"


async def test_a_bounce_is_sent_for_a_message_whose_data_is_lost(tmp_path: Path) -> None:
    async with (
        Lab(["reject(1, 450):127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, {**SHORT_LIFE, "queue": {"carry_limit": 0}}, author=author) as core,
    ):
        queue_id = await core.send("a@example.org")
        await core.until_in(queue_id, "retry.")
        (file,) = (core.home / "spool").glob(f"??/{queue_id}")
        file.unlink()
        await core.until_empty()
        assert list(of_bounce(author.caught[0][2])[1]) == ["a@example.org"]
