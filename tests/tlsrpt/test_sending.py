"""Reports are sent once, when they are due, to the domains that ask for them: over a real name server and a running core."""

from __future__ import annotations

import contextlib
import email
import gzip
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dkim
import msgspec
import pytest

from mailcore.config.tlsrpt import TlsRpt
from mailcore.maillog import MailLog
from mailcore.routing.mx import HostFinder
from mailcore.tls_sessions import Session, day_end, read_day
from mailcore.tlsrpt.post import NotTaken, Post
from mailcore.tlsrpt.sending import LOOK_S, RETRY_S_MAX, RETRY_S_MIN, NotNow, Sending, due_at
from mailcore.tlsrpt.sent import DONE, outcomes_in
from tests.deliverer.authority import Authority
from tests.deliverer.dns_server import NameServer, answering
from tests.end_to_end.test_dkim import key_file, section
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore

DAY = date(2026, 11, 20)
ASKS = '"v=TLSRPTv1; rua=mailto:tls@reports.example"'
SENDER = "tls-reports@our.example"


def store(directory: Path, day: date, domain: str, *, good: int = 1, token: str = "0" * 16) -> None:
    """Writes what a deliverer writes."""
    directory.mkdir(exist_ok=True)
    line = msgspec.json.encode((good, Session(domain, "no-policy-found", domain))) + b"\n"
    with (directory / f"{day}.{token}.jsonl").open("ab") as file:
        file.write(line)


class Site:
    """The sending half, a queue that keeps or refuses what it gets, and a clock."""

    def __init__(self, directory: Path, names: NameServer, settings: TlsRpt) -> None:
        self.directory, self.names, self.settings = directory, names, settings
        self.counts = directory / "tlsrpt"
        self.now = due_at(settings, DAY, "asks.example")
        self.mail: list[tuple[str, str, bytes]] = []
        self.refusal: Exception | None = None
        self.broken = ""  # recipient with whom a bug shows
        self.restart()

    def restart(self) -> None:
        finder = HostFinder(
            (self.names.text,), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: self.now
        )
        log = MailLog(self.directory)
        self.sending = Sending(
            self.settings, self.directory, finder, Post(finder, ""), self.inject, log, lambda: self.now
        )

    async def inject(self, sender: str, recipient: str, message: bytes) -> str:
        if self.refusal is not None:
            raise self.refusal
        if recipient == self.broken:
            raise RuntimeError("a bug")
        self.mail.append((sender, recipient, message))
        return "4FQ"

    @property
    def recipients(self) -> list[str]:
        return sorted(recipient for _, recipient, _ in self.mail)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "mail.jsonl").read_text().splitlines()]


@contextlib.asynccontextmanager
async def site(directory: Path, records: dict[str, list[str]], **settings: Any) -> AsyncIterator[Site]:
    async with answering(NameServer({f"_smtp._tls.{name} TXT": texts for name, texts in records.items()})) as names:
        yield Site(directory, names, TlsRpt(sender=SENDER, **settings))


async def test_a_report_is_sent_once_when_it_is_due_also_over_restarts(tmp_path: Path) -> None:
    """law: tls-report-once."""
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        at.now -= 1
        await at.sending.look()
        assert not at.mail, "not due yet"
        at.now += 1
        await at.sending.look()
        assert at.recipients == ["tls@reports.example"]
        for _ in range(3):
            at.now += 3600
            await at.sending.look()
            at.restart()
            await at.sending.look()
        assert len(at.mail) == 1
        (line,) = at.log()
        assert (line["event"], line["domain"], line["queue_id"]) == ("tls_report_sent", "asks.example", "4FQ")


async def test_a_report_that_is_sent_again_after_a_kill_has_the_same_id(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        at.refusal = NotTaken("whether it is queued is not known")
        await at.sending.look()
        at.refusal = None
        at.now += RETRY_S_MIN
        await at.sending.look()
        (tmp_path / "tlsrpt-sent.jsonl").unlink()  # as if the process was killed before it wrote the line
        at.restart()
        await at.sending.look()
        ids = [email.message_from_bytes(message)["Message-ID"] for _, _, message in at.mail]
        assert len(ids) == 2
        assert len(set(ids)) == 1


async def test_a_domain_without_exactly_one_record_gets_no_report_and_is_asked_once(tmp_path: Path) -> None:
    records = {"two.example": [ASKS, ASKS.replace("tls@", "other@")], "other.example": ['"v=spf1 -all"']}
    async with site(tmp_path, records, spread_s=0) as at:
        for domain in ("two.example", "other.example", "none.example"):
            store(at.counts, DAY, domain)
        await at.sending.look()
        at.restart()
        await at.sending.look()
        assert not at.mail
        assert len(at.names.asked) == 3
        outcomes = outcomes_in(tmp_path)
        assert outcomes == {(str(DAY), domain, DONE): "does not take part" for _, domain, _ in outcomes}


async def test_each_address_gets_the_report_and_one_that_fails_is_tried_alone(tmp_path: Path) -> None:
    record = '"v=TLSRPTv1; rua=mailto:a@one.example,https://127.0.0.1:1/tls,mailto:b@two.example"'
    async with site(tmp_path, {"asks.example": [record]}) as at:
        store(at.counts, DAY, "asks.example")
        await at.sending.look()
        assert at.recipients == ["a@one.example", "b@two.example"]
        at.now += RETRY_S_MIN
        await at.sending.look()
        assert len(at.mail) == 2
        failed = [line["address"] for line in at.log() if line["event"] == "tls_report_failed"]
        assert failed == ["https://127.0.0.1:1/tls"] * 2, "our own network is not posted to"


async def test_retries_take_longer_each_time_and_end(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        at.refusal = NotTaken("the mailbox is full")
        tries: list[float] = []
        begun = at.now
        while at.now < begun + 2 * 86_400:
            before = len(at.log()) if tries else 0
            await at.sending.look()
            if len(at.log()) > before:
                tries.append(at.now)
            at.now += 300
        gaps = [later - earlier for earlier, later in pairwise(tries)]
        assert gaps == sorted(gaps)
        assert (gaps[0], gaps[-1]) == (RETRY_S_MIN, RETRY_S_MAX)
        assert [line["event"] for line in at.log()] == ["tls_report_failed"] * len(gaps) + ["tls_report_given_up"]
        assert tries[-1] >= begun + 86_400
        at.refusal = None
        at.restart()
        await at.sending.look()
        assert not at.mail, "given up stays given up"


async def test_a_failed_look_up_is_tried_again(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        at.names.bogus.add("_smtp._tls.asks.example TXT")
        store(at.counts, DAY, "asks.example")
        await at.sending.look()
        assert not at.mail
        at.names.bogus.clear()
        at.now += RETRY_S_MIN
        await at.sending.look()
        assert len(at.mail) == 1


async def test_a_queue_that_takes_nothing_is_asked_again_and_no_report_is_given_up(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        at.refusal = NotNow("the manager is away")
        at.now += 3 * 86_400
        await at.sending.look()
        at.refusal = None
        await at.sending.look()
        assert not at.mail, "not before the pause is over"
        at.now += LOOK_S
        await at.sending.look()
        assert len(at.mail) == 1


async def test_while_the_queue_takes_nothing_a_web_server_that_fails_is_asked_as_seldom_as_ever(tmp_path: Path) -> None:
    record = '"v=TLSRPTv1; rua=mailto:a@one.example,https://127.0.0.1:1/tls,mailto:b@two.example"'
    async with site(tmp_path, {"asks.example": [record]}) as at:
        store(at.counts, DAY, "asks.example")
        at.refusal = NotNow("the manager is away")
        begun = at.now
        while at.now < begun + 4 * RETRY_S_MIN:
            await at.sending.look()
            at.now += LOOK_S
        asked = [line["address"] for line in at.log() if line["event"] == "tls_report_failed"]
        assert asked == ["https://127.0.0.1:1/tls"] * 3, "at once, after RETRY_S_MIN, and after twice that"
        at.refusal = None
        at.now += LOOK_S
        await at.sending.look()
        assert at.recipients == ["a@one.example", "b@two.example"], "they need not wait for the web server's turn"


async def test_a_bug_with_one_domain_stops_no_other_and_repeats_none(tmp_path: Path) -> None:
    domains = [f"d{number}.example" for number in range(5)]
    records = {domain: [ASKS.replace("tls@reports.example", f"tls@{domain}")] for domain in domains}
    async with site(tmp_path, records, spread_s=0) as at:
        for domain in domains:
            store(at.counts, DAY, domain)
        at.broken = "tls@d0.example"
        for _ in range(3):
            await at.sending.look()
            at.now += LOOK_S
        assert at.recipients == [f"tls@{domain}" for domain in domains[1:]]
        (failed,) = [line for line in at.log() if line["event"] == "tls_report_failed"]
        assert (failed["domain"], failed["why"]) == ("d0.example", "internal error: RuntimeError('a bug')")
        at.broken = ""
        at.now += RETRY_S_MIN
        await at.sending.look()
        assert at.recipients == [f"tls@{domain}" for domain in domains]


async def test_what_is_old_is_removed(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}, keep_days=4) as at:
        store(at.counts, DAY, "asks.example")
        (at.counts / ("." + "a" * 16)).write_bytes(b"cut off")
        await at.sending.look()
        assert len(list(at.counts.iterdir())) == 2
        at.now = time.time() + 40 * 86_400
        await at.sending.look()
        assert not list(at.counts.iterdir())
        assert outcomes_in(tmp_path) == {}


async def test_a_list_that_cannot_be_written_sends_nothing_twice(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        at.now -= 1
        await at.sending.look()
        at.now += 1
        written = tmp_path / "tlsrpt-sent.jsonl"
        written.mkdir()
        with pytest.raises(IsADirectoryError):
            await at.sending.look()
        written.rmdir()
        await at.sending.look()
        at.restart()
        await at.sending.look()
        assert len(at.mail) == 1
        assert set(outcomes_in(tmp_path).values()) == {"4FQ", "done"}


def test_due_times_are_spread_over_the_setting() -> None:
    settings = TlsRpt(sender=SENDER, spread_s=14_400)
    times = [due_at(settings, DAY, f"d{number}.example") - day_end(DAY) for number in range(500)]
    assert min(times) >= settings.write_s
    assert max(times) - min(times) > 13_000
    assert max(times) <= 14_400 + settings.write_s + 60
    assert times == [due_at(settings, DAY, f"d{number}.example") - day_end(DAY) for number in range(500)]


# --- the whole way, on a running core


def attachment(message: bytes) -> dict[str, Any]:
    """Returns the report in a mail, which must be as in RFC 8460 5.3."""
    mail = email.message_from_bytes(message)
    assert (mail.get_content_type(), mail.get_param("report-type")) == ("multipart/report", "tlsrpt")
    assert (mail["TLS-Required"], mail["TLS-Report-Submitter"]) == ("No", "our.example")
    parts = mail.get_payload()
    assert isinstance(parts, list)
    text, report = parts
    assert (text.get_content_type(), report.get_content_type()) == ("text/plain", "application/tlsrpt+gzip")  # type: ignore[union-attr]
    content: dict[str, Any] = json.loads(gzip.decompress(report.get_payload(decode=True)))  # type: ignore[union-attr, arg-type]
    assert mail["TLS-Report-Domain"] == content["policies"][0]["policy"]["policy-domain"]
    assert f"<{content['report-id']}>" in mail["Subject"]
    return content


async def test_what_is_counted_is_reported_by_mail_once(tmp_path: Path) -> None:
    """law: tls-report-once."""
    records = {f"{name}.example MX": ["10 mx.example."] for name in ("target", "other", "reports")}
    records |= {f"_smtp._tls.{name}.example TXT": [ASKS] for name in ("target", "other")}
    records["mx.example A"] = ["127.0.0.1"]
    context = Authority(tmp_path).issue("mx.example").server(tmp_path)
    async with Catcher() as catcher, answering(NameServer(records)) as names:
        deliverer = {"nameservers": [names.text], "port": int(catcher.route.rpartition(":")[2]), "processes": 1}
        core = RunningCore(tmp_path, {}, {"tlsrpt": {"sender": SENDER, "write_s": 1.0}, "deliverer": deliverer})
        path, key = key_file(tmp_path, "rsa.pem", "rsa")
        core.config.write_text(core.config.read_text() + section(path, "2026a", "our.example"))
        counts, today = core.home / "tlsrpt", datetime.now(UTC).date()
        await core.start()
        try:

            async def counted(number: int) -> bool:
                days = [read_day(counts, today + timedelta(days=days)) for days in (0, 1)]
                return sum(sum(day.get("target.example", Counter()).values()) for day in days) == number

            await core.send("one@target.example")
            await core.eventually(lambda: counted(1), "a session")  # by then the connection is closed
            catcher.tls = context
            await core.send("two@target.example")
            await core.eventually(lambda: counted(2), "two sessions")
            await core.until_empty()
            core.stop()
            day = today - timedelta(days=2)
            for number, path in enumerate(sorted(counts.iterdir())):
                path.rename(counts / f"{day}.{number:016x}.jsonl")
            await core.control.close()
            await core.start()

            async def reported(number: int) -> bool:
                return len(catcher.caught) == 2 + number

            await core.eventually(lambda: reported(1), "the report")
            sender, recipients, message = catcher.caught[-1]
            assert (sender, recipients) == (SENDER, ["tls@reports.example"])
            assert dkim.DKIM(message).verify(dnsfunc=lambda name, timeout=5: key.record.encode())
            content = attachment(message)
            assert content["date-range"] == {"start-datetime": f"{day}T00:00:00Z", "end-datetime": f"{day}T23:59:59Z"}
            assert (content["organization-name"], content["contact-info"]) == ("our.example", SENDER)
            (policy,) = content["policies"]
            assert policy["policy"] == {"policy-type": "no-policy-found", "policy-domain": "target.example"}
            assert policy["summary"] == {"total-successful-session-count": 1, "total-failure-session-count": 1}
            (failure,) = policy["failure-details"]
            assert (failure["result-type"], failure["failed-session-count"]) == ("starttls-not-supported", 1)
            assert (failure["receiving-mx-hostname"], failure["receiving-ip"]) == ("mx.example", "127.0.0.1")

            async def noted() -> bool:
                return (str(day), "target.example", DONE) in outcomes_in(core.home)

            # A kill before that sends the report again, and one before the verdict its mail: neither is tested here.
            await core.eventually(noted, "the outcome")
            await core.until_empty()
            store(counts, day, "other.example", token="f" * 16)  # its report says that those before were looked at
            await core.again()
            await core.eventually(lambda: reported(2), "the report of the other domain")
            assert attachment(catcher.caught[-1][2])["policies"][0]["policy"]["policy-domain"] == "other.example"
            await core.until_empty()
            assert await reported(2)
            events = [line["event"] for line in core.log() if line["event"].startswith("tls_report")]
            assert events == ["tls_report_sent"] * 2
        finally:
            await core.control.close()
            core.stop()
