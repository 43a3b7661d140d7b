"""Reports to senders, as the senders receive them: who refused, when, in which words; what comes back; who gets one."""

from __future__ import annotations

import asyncio
import smtplib
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.bounce.report import Read
from tests.eventually import eventually
from tests.running.catcher import Catcher
from tests.running.running_core import Sections, running

REFUSING = "reject(no*@example.org, 550)+reject(later*@example.org, 450)"
SHORT_LIFE: Sections = {"scheduler": {"maximal_queue_lifetime": 0}}
BODY = b"Subject: Report\r\n\r\nThe body \xc3\xa9\r\n.a line with a dot\r\n"


def reports(author: Catcher) -> list[Read]:
    return [Read(data, stuffed=False) for _, _, data in author.caught]


async def test_a_bounce_says_which_server_refused_when_and_in_its_own_words(tmp_path: Path) -> None:
    """Until this test, no bounce did: our sentence about the reply hid the reply."""
    begun = int(time.time())
    async with (
        Lab([f"{REFUSING}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, SHORT_LIFE, author=author) as core,
    ):
        queue_id = await core.send("no@example.org", "later@example.org", "yes@example.org", data=BODY)
        await core.until_empty()
        (report,) = reports(author)
        replies = {line["recipient"]: line["reply"] for line in core.log() if line["event"] == "delivery"}
        assert sorted(report.groups) == ["later@example.org", "no@example.org"]
        for address, code in (("no@example.org", "550 5.1.1"), ("later@example.org", "450 4.1.1")):
            fields = report.groups[address]
            reply = " ".join(fields["Diagnostic-Code"].split())
            assert reply.startswith(f"smtp; {code} "), reply
            assert f"said: {reply.removeprefix('smtp; ')} (in reply to RCPT TO command)" in replies[address]
            assert fields["Remote-MTA"] == "dns; [127.0.0.1]"
            assert begun <= parsedate_to_datetime(fields["Last-Attempt-Date"]).timestamp() <= time.time()
            assert fields["Action"] == "failed"
        assert report.of_message["X-Waypost-Queue-ID"] == queue_id
        assert report.returned.get_content_type() == "message/rfc822"
        assert BODY in report.raw, "the message itself, byte for byte"
        ((sender, _, _),) = author.caught
        assert sender == ""


async def test_mail_that_expires_at_a_dead_destination_has_the_reply_of_its_server(tmp_path: Path) -> None:
    """The server refuses the first connection; the other messages are returned without an attempt of their own."""
    one_at_a_time: Sections = {**SHORT_LIFE, "transports.smtp": {"initial_destination_concurrency": 1}}
    async with (
        Lab(["reject(1.0, 554, connect):127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, one_at_a_time, author=author) as core,
    ):
        await asyncio.gather(*(core.send("to@example.org", data=BODY) for _ in range(5)))
        await core.until_empty()
        replies = [line["reply"] for line in core.log() if line["event"] == "delivery" and line["status"] == "deferred"]
        assert any(reply.startswith("delivery temporarily suspended: host 127.0.0.1") for reply in replies)
        groups = [report.groups["to@example.org"] for report in reports(author)]
    assert len(groups) == 5
    assert {fields["Remote-MTA"] for fields in groups} == {"dns; [127.0.0.1]"}
    assert {tuple(fields["Diagnostic-Code"].split()[:2]) for fields in groups} == {("smtp;", "554")}
    assert {fields["Status"] for fields in groups} == {"4.4.7"}
    assert any("Last-Attempt-Date" in fields for fields in groups)
    assert any("Last-Attempt-Date" not in fields for fields in groups)


async def test_the_history_and_the_log_name_each_report_for_what_it_is(tmp_path: Path) -> None:
    """One message: one recipient is passed on at once, one is late, and expires at last."""
    soon: Sections = {"bounce": {"delay_warning_time": 1}, "scheduler": {"maximal_queue_lifetime": 5}}
    async with (
        Lab([f"{REFUSING}:127.0.0.1:0"]) as lab,
        Catcher() as author,
        running(tmp_path, lab, soon, author=author) as core,
    ):

        def send() -> str:
            with smtplib.SMTP("127.0.0.1", core.port, timeout=60) as client:
                client.ehlo("client.example")
                assert client.has_extn("dsn")
                client.mail("author@sender.example", ["ENVID=four+2B1"])
                client.rcpt("yes@example.org", ["NOTIFY=SUCCESS"])
                client.rcpt("later@example.org")
                return str(client.data(BODY)[1].split()[-1].decode())

        queue_id = await asyncio.to_thread(send)
        await eventually(lambda: len(author.caught) == 3, "three reports")
        await core.until_empty()
        found = {str(each.message["Subject"]): each for each in reports(author)}
        assert list(found) == [
            "Successful Mail Delivery Report", "Delayed Mail (still being retried)", "Undelivered Mail Returned to Sender",
        ]  # fmt: skip
        assert [[fields["Action"] for fields in each.groups.values()] for each in found.values()] == [
            ["relayed"], ["delayed"], ["failed"],
        ]  # fmt: skip
        assert {each.of_message["Original-Envelope-Id"] for each in found.values()} == {"four+1"}
        history = (await core.ask("history", queue_id=queue_id))["events"]
        assert [each["report"] for each in history if each["event"] == "bounce"] == ["success", "delay", ""]
        events = [line["event"] for line in core.log() if line.get("bounce_id")]
        assert events == ["success_reported", "delay_warned", "bounced"]
        counters = (await core.ask("state"))["counters"]
        assert [counters[name] for name in ("success_reports", "delay_warnings", "bounces")] == [1, 1, 1]
