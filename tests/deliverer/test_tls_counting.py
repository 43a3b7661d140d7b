"""What is counted of connections for TLS reports: real handshakes, a real name server, a real web server for MTA-STS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.settings import TlsPolicy
from mailcore.deliverer.tls_counting import TlsCounting
from mailcore.tls.policy import Policies
from mailcore.tls_sessions import Session, SessionCounts, day_at, day_end, read_day
from tests.deliverer import test_dane as dane
from tests.deliverer import test_mta_sts as sts
from tests.deliverer.authority import DAY, Authority
from tests.deliverer.delivery import BODY, FixedHosts, Sender, outcomes
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

OFFERED = ("PIPELINING", "STARTTLS")
REPORTS = "tls-reports@our.example"
DELIVERED = [("delivered", "2.0.0")]


class Counts:
    """The counts of one client; ``count`` into ``sender``, then ``results``."""

    def __init__(self, directory: Path, at: Any = None, kinds_max: int = 100, bytes_max: int = 1 << 20) -> None:
        self.directory = directory / "tlsrpt"
        self.complaints: list[str] = []
        self._counts = SessionCounts(self.directory, kinds_max, bytes_max, 300.0, time.time, self.complaints.append)
        self.counting = TlsCounting(self._counts, getattr(at, "policies", None), REPORTS)
        if at is not None:
            at.sender.client._counting = self.counting

    async def sessions(self) -> Counter[Session]:
        await self._counts.write()
        days = [read_day(self.directory, day_at(time.time() - ago)) for ago in (0, 86_400)]
        return sum((sessions for day in days for sessions in day.values()), Counter())

    async def results(self) -> dict[tuple[str, str], int]:
        """(policy type, result) -> how many; "" is success."""
        found: Counter[tuple[str, str]] = Counter()
        for session, number in (await self.sessions()).items():
            found[session.policy_type, session.result] += number
        return dict(found)


@pytest.mark.parametrize(
    ("keywords", "answers", "result"),
    [
        (OFFERED, {}, ""),
        (("PIPELINING",), {}, "starttls-not-supported"),
        pytest.param(
            OFFERED, {"STARTTLS": [b"454 4.7.0 not now\r\n"]}, "starttls-not-supported", marks=pytest.mark.long
        ),
        pytest.param(OFFERED, {"STARTTLS": [Act.GARBAGE]}, "validation-failure", marks=pytest.mark.long),
    ],
)
async def test_a_domain_without_a_policy(
    tmp_path: Path, keywords: tuple[str, ...], answers: dict[str, Answer | list[Answer]], result: str
) -> None:
    # Nothing asks what the certificate says. A server that refuses STARTTLS has none.
    tls = None if "STARTTLS" in answers else Authority(tmp_path).issue("other.test", ends=-DAY / 2).server(tmp_path)
    async with serving(ScriptedServer(keywords=keywords, tls=tls, answers=answers)) as server:
        counts = Counts(tmp_path)
        sender = Sender(tmp_path, server.port, counting=counts.counting)
        assert outcomes(await sender.send()) == DELIVERED
        assert outcomes(await sender.send()) == DELIVERED, "over the same connection: counted once"
        assert await counts.results() == {("no-policy-found", result): 1}


@pytest.mark.parametrize(
    ("names", "changes", "keywords", "result"),
    [
        ((sts.HOST,), {}, OFFERED, ""),
        (("other.example.org",), {}, OFFERED, "certificate-host-mismatch"),
        pytest.param(
            (sts.HOST,), {"begins": -3 * DAY, "ends": -DAY}, OFFERED, "certificate-expired", marks=pytest.mark.long
        ),
        pytest.param((sts.HOST,), {"self_signed": True}, OFFERED, "certificate-not-trusted", marks=pytest.mark.long),
        pytest.param((sts.HOST,), {}, ("PIPELINING",), "starttls-not-supported", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("mode", ["enforce", "testing"])
async def test_a_domain_with_a_policy_of_mta_sts(
    tmp_path: Path, names: tuple[str, ...], changes: dict[str, Any], keywords: tuple[str, ...], result: str, mode: str
) -> None:
    page = sts.page(sts.ENFORCE.replace("enforce", mode))
    async with sts.site(tmp_path, page, names=names, keywords=keywords, changes=changes) as at:
        counts = Counts(tmp_path, at)
        sent = await at.sender.send()
        assert (outcomes(sent) == DELIVERED) == (mode == "testing" or not result), "testing mode stops no mail"
        assert await counts.results() == {("sts", result): 1}
        (session,) = await counts.sessions()
        assert (session.policy_domain, session.mx_hosts) == ("example.org", (sts.HOST, "*.other.test"))
        assert session.policy_strings == (
            "version: STSv1", f"mode: {mode}", f"mx: {sts.HOST}", "mx: *.other.test", "max_age: 86400",
        )  # fmt: skip
        if result:
            where = "127.0.0.1"
            assert (session.sending_ip, session.receiving_ip, session.mx_hostname) == (where, where, sts.HOST)


@pytest.mark.parametrize("act", [Act.LOSE, pytest.param(Act.HANG_UP, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["enforce", "testing"])
async def test_a_connection_that_is_lost_in_the_handshake_is_of_tls_only_if_the_clear_works(
    tmp_path: Path, act: Act, mode: str
) -> None:
    async with sts.site(tmp_path, sts.page(sts.ENFORCE.replace("enforce", mode))) as at:
        at.server.answers["STARTTLS"] = [act]
        counts = Counts(tmp_path, at)
        assert (outcomes(await at.sender.send()) == DELIVERED) == (mode == "testing")
        found = await counts.sessions()
        assert [(each.policy_type, each.result, each.reason_code) for each in found] == (
            [("sts", "validation-failure", "connection-lost")] if mode == "testing" else []
        )


def answer_with_an_alert(server: socket.socket, context: ssl.SSLContext) -> None:
    """Does a handshake that fails, as the servers of asyncio do not: they close without the alert."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as lines:
        connection.sendall(b"220 alerts.example ESMTP\r\n")
        assert lines.readline().startswith(b"EHLO")
        connection.sendall(b"250-alerts.example\r\n250 STARTTLS\r\n")
        assert lines.readline().startswith(b"STARTTLS")
        connection.sendall(b"220 go\r\n")
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (ssl.TLSVersion.TLSv1_2, "handshake_failure"),
        (ssl.TLSVersion.TLSv1_3, "certificate_required"),  # it says so after our part, when we say EHLO
    ],
)
async def test_an_alert_of_the_server_is_a_failure_of_tls(tmp_path: Path, version: ssl.TLSVersion, reason: str) -> None:
    context = Authority(tmp_path).issue("x.test").server(tmp_path)
    context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED  # of us
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = asyncio.create_task(asyncio.to_thread(answer_with_an_alert, server, context))
        counts = Counts(tmp_path)
        sender = Sender(tmp_path, server.getsockname()[1], counting=counts.counting)
        ((outcome, _),) = outcomes(await sender.send(tls="encrypt"))
        await answering
        assert outcome == "deferred"
        (session,) = await counts.sessions()
        assert (session.policy_type, session.result) == ("no-policy-found", "validation-failure")
        assert reason in session.reason_code


async def test_testing_mode_does_not_try_tls_again_where_it_was_broken_lately(tmp_path: Path) -> None:
    async with sts.site(tmp_path, sts.page(sts.ENFORCE.replace("enforce", "testing"))) as at:
        at.server.answers["STARTTLS"] = [Act.GARBAGE]
        counts, connections = Counts(tmp_path, at), []
        for _ in range(3):
            assert outcomes(await at.sender.send()) == DELIVERED
            at.sender.client.close()  # no connection is kept
            connections.append(len(at.server.sessions))
        assert connections == [3, 4, 5], "as if enforced, as usual, in the clear; then in the clear"
        assert await counts.results() == {("sts", "validation-failure"): 3}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["enforce", "testing"])
async def test_a_host_that_the_policy_does_not_name(tmp_path: Path, mode: str) -> None:
    page = sts.page(sts.ENFORCE.replace("enforce", mode).replace(f"mx: {sts.HOST}\r\n", ""))
    async with sts.site(tmp_path, page) as at:
        counts = Counts(tmp_path, at)
        assert (outcomes(await at.sender.send()) == DELIVERED) == (mode == "testing")
        assert await counts.results() == {("sts", "validation-failure"): 1}


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "web_names", "result"),
    [
        (sts.page("no policy"), ("mta-sts.example.org",), "sts-policy-invalid"),
        (sts.page(status="404 Not Found"), ("mta-sts.example.org",), "sts-policy-fetch-error"),
        (sts.page(), ("other.example.org",), "sts-webpki-invalid"),
    ],
)
async def test_a_policy_that_cannot_be_used(
    tmp_path: Path, answer: bytes, web_names: tuple[str, ...], result: str
) -> None:
    async with sts.site(tmp_path, answer, web_names=web_names) as at:
        counts = Counts(tmp_path, at)
        assert outcomes(await at.sender.send()) == DELIVERED
        assert await counts.results() == {("sts", result): 1}


async def test_a_policy_that_was_withdrawn_fails_no_more(tmp_path: Path) -> None:
    async with sts.site(tmp_path, sts.page(status="404 Not Found")) as at:
        counts = Counts(tmp_path, at)
        for record, results in (
            ("a1", {("sts", "sts-policy-fetch-error"): 1}),
            (None, {("sts", "sts-policy-fetch-error"): 1, ("no-policy-found", ""): 1}),
        ):
            at.record(record)
            at.now += 3_601  # the record is not remembered
            assert outcomes(await at.sender.send()) == DELIVERED
            at.sender.client.close()
            assert await counts.results() == results


@pytest.mark.parametrize(
    ("record", "level", "bogus", "result"),
    [
        ("own", "dane", (), ""),
        ("other", "dane", (), "certificate-not-trusted"),
        pytest.param("unusable", "dane", (), "tlsa-invalid", marks=pytest.mark.long),
        pytest.param("own", "dane", ("PLACE TLSA",), "dnssec-invalid", marks=pytest.mark.long),
        pytest.param("none", "dane-only", (), "dane-required", marks=pytest.mark.long),
    ],
)
async def test_a_domain_with_dane(tmp_path: Path, record: str, level: str, bogus: tuple[str, ...], result: str) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue(dane.HOST)
    records = {
        "own": [dane.tlsa(issued)],
        "other": [dane.tlsa(authority.issue(dane.HOST))],
        "unusable": ["1 1 1 " + "00" * 32],
        "none": [],
    }[record]
    async with dane.site(tmp_path, issued, records, level=level, bogus=bogus) as at:
        counts = Counts(tmp_path, at)
        await at.sender.send()
        assert await counts.results() == {("tlsa", result): 1}
        (session,) = await counts.sessions()
        assert session.policy_domain == dane.HOST


@pytest.mark.parametrize("why", ["none", "verify", "sender", "waived", "refused"])
async def test_what_is_not_counted(tmp_path: Path, why: str) -> None:
    authority = Authority(tmp_path)
    tls = authority.issue("example.org").server(tmp_path)
    answers: dict[str, Answer | list[Answer]] = {"GREETING": [b"554 no\r\n"]} if why == "refused" else {}
    levels = {"none": "none", "verify": "verify", "waived": "dane"}
    policies = Policies({"example.org": TlsPolicy(level=levels.get(why, "may"))}, 25, str(authority.file))
    async with serving(ScriptedServer(keywords=OFFERED, tls=tls, answers=answers)) as server:
        counts = Counts(tmp_path)
        found = FixedHosts("127.0.0.1")
        sender = Sender(tmp_path, server.port, found, policies=policies, counting=counts.counting)
        body = b"TLS-Required: No\r\n" + BODY if why == "waived" else BODY
        await sender.send(sender=REPORTS if why == "sender" else "from@example.net", body=body)
        assert server.sessions
        assert not await counts.results()


async def test_the_kinds_of_a_day_are_bounded(tmp_path: Path) -> None:
    """law: tls-counts-are-bounded."""
    counts = Counts(tmp_path, kinds_max=100)
    for number in range(300):
        for _ in range(2):
            counts._counts.count(Session(f"d{number}.example", "no-policy-found", f"d{number}.example"))
    assert len(await counts.sessions()) == 100
    assert await counts.results() == {("no-policy-found", ""): 200}
    (complaint,) = counts.complaints
    assert complaint.startswith("more than 100 kinds of sessions")


async def test_the_bytes_of_a_day_are_bounded_and_one_domain_has_a_tenth_of_them(tmp_path: Path) -> None:
    """law: tls-counts-are-bounded."""
    hosts = tuple(f"mx{number}.hosts-of-a-hostile-domain.example" for number in range(400))
    lines = tuple(f"mx: {host}" for host in hosts)
    counts = Counts(tmp_path, kinds_max=100_000, bytes_max=1_000_000)
    for host in hosts:
        for _ in range(2):
            counts._counts.count(
                Session("bad.example", "sts", "bad.example", lines, hosts, "validation-failure", "", "", host)
            )
    for number in range(15_000):
        counts._counts.count(Session(f"d{number}.example", "no-policy-found", f"d{number}.example"))
    await counts._counts.write()
    (path,) = counts.directory.iterdir()
    assert 800_000 < path.stat().st_size <= 1_000_000
    read = read_day(counts.directory, date.fromisoformat(path.name[:10]))
    assert list(read["bad.example"].values()) == [2, 2], "each line has 40 kB"
    assert len(read) > 5_000
    by_domain, in_all = counts.complaints
    assert by_domain.startswith("more than 10% of 1000000 bytes")
    assert "bad.example" in by_domain
    assert in_all.startswith("more than 1000000 bytes")


async def test_one_domain_has_a_tenth_of_many_bytes_too_and_a_line_is_never_too_long_to_be_read(tmp_path: Path) -> None:
    counts = Counts(tmp_path, kinds_max=1_000, bytes_max=64 << 20)
    lines = ("x" * 60_000,)
    for number in range(100):
        counts._counts.count(Session("a.example", "sts", "a.example", lines, mx_hostname=f"mx{number}"))
    counts._counts.count(Session("b.example", "sts", "b.example", lines * 20))
    assert [*await counts.sessions()] == [
        Session("a.example", "sts", "a.example", lines, mx_hostname=f"mx{number}") for number in range(100)
    ]
    assert counts.complaints == ["a session with b.example has more than 1048576 bytes: it is not counted"]


async def test_sessions_are_counted_while_a_slow_disk_is_written_to(tmp_path: Path) -> None:
    clock = [1_700_000_000.0]
    counts = SessionCounts(tmp_path, 100, 1 << 20, 300.0, lambda: clock[0], lambda why: None)
    slow = tmp_path / f".{counts._token}"
    os.mkfifo(slow)  # who opens it waits for a reader
    for number in range(3):
        session = Session(f"d{number}.example", "no-policy-found", f"d{number}.example")
        for _ in range(number + 1):
            counts.count(session)
        writing = counts.write()
        await asyncio.sleep(0.01)
        assert not writing.done()
        clock[0] += 86_400 * (number == 1)
    assert (await asyncio.to_thread(slow.read_bytes)).count(b"\n") == 1, "what there was when it began"
    await writing
    days = [read_day(tmp_path, day_at(at)) for at in (clock[0] - 86_400, clock[0])]
    assert [{domain: sum(found.values()) for domain, found in day.items()} for day in days] == [
        {"d0.example": 1, "d1.example": 2}, {"d2.example": 3},
    ]  # fmt: skip


async def test_a_directory_that_cannot_be_written_costs_counts_and_no_mail(tmp_path: Path) -> None:
    (tmp_path / "tlsrpt").write_bytes(b"a file in the place of the directory")
    async with serving(
        ScriptedServer(keywords=OFFERED, tls=Authority(tmp_path).issue("x.test").server(tmp_path))
    ) as at:
        counts = Counts(tmp_path)
        assert outcomes(await Sender(tmp_path, at.port, counting=counts.counting).send()) == DELIVERED
        await counts._counts.write()
        assert len(counts.complaints) == 1


async def test_what_was_written_before_a_kill_adds_up(tmp_path: Path) -> None:
    session, now = Session("target.example", "no-policy-found", "target.example"), 1_700_000_000.0
    for number in (2, 3):
        counts = SessionCounts(tmp_path, 100, 1 << 20, 300.0, lambda: now, lambda why: None)
        for _ in range(number):
            counts.count(session)
        await counts.write()
        counts.count(session)  # and then it is killed
    assert read_day(tmp_path, day_at(now)) == {"target.example": Counter({session: 5})}


async def test_a_new_day_begins_a_new_file(tmp_path: Path) -> None:
    session = Session("target.example", "no-policy-found", "target.example")
    clock = [1_700_000_000.0]
    counts = SessionCounts(tmp_path, 100, 1 << 20, 300.0, lambda: clock[0], lambda why: None)
    counts.count(session)
    clock[0] += 86_400
    counts.count(session)
    await counts.write()
    assert [read_day(tmp_path, day_at(each)) for each in (clock[0] - 86_400, clock[0])] == [
        {"target.example": Counter({session: 1})}
    ] * 2


@pytest.mark.parametrize("written", [True, False])
async def test_a_clock_that_is_set_back_over_midnight_loses_no_day(tmp_path: Path, written: bool) -> None:
    midnight = day_end(date(2026, 11, 22))
    clock = [midnight]
    counts = SessionCounts(tmp_path, 100, 1 << 20, 300.0, lambda: clock[0], lambda why: None)
    for number, after in enumerate([-10.0, 1.0, -4.0, 16.0], 1):
        clock[0] = midnight + after
        for _ in range(number):
            counts.count(Session("target.example", "no-policy-found", "target.example"))
        if written:
            await counts.write()
    await counts.write()
    days = [read_day(tmp_path, date(2026, 11, day))["target.example"] for day in (22, 23)]
    assert [sum(day.values()) for day in days] == [1 + 3, 2 + 4]
