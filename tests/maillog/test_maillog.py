"""The mail log, as people, programs and Debian's pflogsumm read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.envelope import DataPlace, Envelope, Origin, Status, Verdict
from mailcore.maillog import MailLog

HOSTILE = "a>, relay=evil, delay=0, dsn=2.0.0, status=sent (x)\r\nJan  1 00:00:00 h postfix/smtp[1]: F: to=<x\x1b[2J\x00é\udc80"
LINE = re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d mx waypost/[a-z-]+\[\d+\]: ")

NOT_OFFERED = "may: sent in the clear: TLS not offered"


class Clock:
    now = 1_700_000_000.25

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[MailLog]:
    made = MailLog(tmp_path, "mx", clock=clock, monotonic=clock)
    yield made
    made.close()


def envelope(queue_id: str = "4abc", **fields: Any) -> Envelope:
    values: dict[str, Any] = {
        "queue_id": queue_id,
        "generation": 0,
        "sender": "from@a.example",
        "recipients": (),
        "recipient_count": 1,
        "arrived_at": 1_700_000_000.0,
        "size_bytes": 1000,
        "data": DataPlace.INLINE,
        "client_address": "192.0.2.7",
        "message_id": "<1@a.example>",
        "helo": "client.a.example",
    }
    return Envelope(**(values | fields))


def lines(tmp_path: Path) -> list[str]:
    """The lines of mail.log without time, host and process id."""
    found = (tmp_path / "mail.log").read_text("ascii").splitlines()
    assert all(LINE.match(line) and line.isprintable() for line in found)
    return [re.sub(r"\[\d+\]", "", LINE.sub(lambda match: match[0].split()[-1] + " ", line)) for line in found]


def objects(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "mail.jsonl").read_text("ascii").splitlines()]


def test_faults_of_all_files_of_rewriting_are_told_as_theirs(tmp_path: Path, log: MailLog) -> None:
    log.maps_read(2)
    log.maps_refused(["/etc/waypost/checks:3: no action"], in_use=True)
    log.flush()
    assert [line.partition(": ")[2] for line in lines(tmp_path)] == [
        "[rewriting]: 2 files in use",
        "warning: [rewriting]: /etc/waypost/checks:3: no action; those read before stay in use",
    ]


def deliver(log: MailLog, queue_id: str = "4abc", **fields: Any) -> None:
    values: dict[str, Any] = {
        "recipient": "to@b.example",
        "relay": "mx.b.example[192.0.2.9]:25",
        "verdict": Verdict(0, Status.DELIVERED, "2.0.0", "250 2.0.0 Ok"),
        "delays_s": (0.05, 0.004, 0.1, 1.23),
    }
    log.delivery(queue_id, **(values | fields))


# -- lines


def test_a_message_s_life_reads_as_in_postfix(log: MailLog, tmp_path: Path) -> None:
    log.accepted(envelope(login="anna"), "client.a.example")
    deliver(log)
    log.removed("4abc")
    log.flush()
    assert lines(tmp_path) == [
        "waypost/smtpd: 4abc: client=client.a.example[192.0.2.7], sasl_username=anna",
        "waypost/cleanup: 4abc: message-id=<1@a.example>",
        "waypost/qmgr: 4abc: from=<from@a.example>, size=1000, nrcpt=1 (queue active)",
        "waypost/smtp: 4abc: to=<to@b.example>, relay=mx.b.example[192.0.2.9]:25, delay=1.4, delays=0.05/0/0.1/1.2, "
        "dsn=2.0.0, status=sent (250 2.0.0 Ok)",
        "waypost/qmgr: 4abc: removed",
    ]


def test_each_event_is_one_json_object_with_what_the_line_says(log: MailLog, tmp_path: Path) -> None:
    log.accepted(envelope())
    deliver(log, tls="TLSv1.3 TLS_AES_256_GCM_SHA384")
    log.flush()
    accepted, delivery = objects(tmp_path)
    assert (accepted["event"], accepted["sender"], accepted["size_bytes"]) == ("accepted", "from@a.example", 1000)
    assert delivery["event"] == "delivery"
    assert delivery["time"] == 1_700_000_000.25
    assert delivery["delays_s"] == [0.05, 0.004, 0.1, 1.23]
    assert delivery["tls"] == "TLSv1.3 TLS_AES_256_GCM_SHA384"
    assert delivery["reply"] == "250 2.0.0 Ok"


@pytest.mark.parametrize(
    ("status", "reply", "end"),
    [
        (Status.DEFERRED, "450 4.2.0 later", "status=deferred (host mx.b.example[192.0.2.9] said: 450 4.2.0 later)"),
        (Status.BOUNCED, "550 5.1.1 no", "status=bounced (host mx.b.example[192.0.2.9] said: 550 5.1.1 no)"),
        (Status.DEFERRED, "connection timed out", "status=deferred (connection timed out)"),
        (Status.EXPIRED, "delivery time expired", "status=expired (delivery time expired)"),
    ],
)
def test_a_delivery_says_what_became_of_it(log: MailLog, tmp_path: Path, status: Status, reply: str, end: str) -> None:
    deliver(log, verdict=Verdict(0, status, "4.0.0", reply))
    log.flush()
    (line,) = (tmp_path / "mail.log").read_text().splitlines()
    assert line.endswith(end)


def test_every_event_has_its_line_and_its_object(log: MailLog, tmp_path: Path) -> None:
    log.accepted(envelope(origin=Origin.LOCAL))
    log.active(envelope(generation=1))
    log.refused("RCPT", "554 5.7.1 Relay access denied", "192.0.2.7", sender="", recipient="x@y.example", helo="me")
    log.refused("CONNECT", "421 4.7.0 too many connections", "2001:db8::1", protocol="SMTP")
    log.expired("4abc", "from@a.example")
    log.notified("4abc", "4abcB0")
    log.administered("4abc", "delete", "anna", "asked for")
    log.tuned("smtp:b.example", "destination_concurrency_limit", 5, "anna", "slow")
    log.tuned("smtp", "destination_concurrency_positive_feedback", "1/concurrency", "anna", "", 1_795_000_000.4)
    log.tuned_ended("smtp:b.example", "destination_concurrency_limit", 5, 1_795_000_000.0, 20)
    log.tuned_ended("smtp:b.example", "suspended_until", 1_795_000_000.0, 1_795_000_000.0, None)
    log.window_changed("smtp:b.example", 20, 5, 0.25, 0.0, 1 / 3)
    log.started("receiver.0", 41)
    log.recovered(12, 0.5)
    log.child_ended("receiver.0", 42, "signal 9")
    log.record_set_aside("incoming.0/0.seg", 512, "checksum")
    log.positions_damaged(["/q/restart"], 4096, 0.25)
    log.sync_failed("journal/0.seg", "Input/output error")
    log.disk_full("/q", 10, 100, 5, 50)
    log.stopped_accepting("no segment can be made")
    log.accepting_again()
    log.accepting_paused("Too many open files", 0.1)
    log.stress(True, 720)
    log.stress(False, 12)
    log.lane_lags("incoming.0", 1 << 33)
    log.refusals_not_recorded(17)
    log.session_failed("192.0.2.7", "ValueError()")
    log.failed("manager", "the home is locked")
    log.start_refused("the spool directory /s is empty")
    log.shard_waits("shard north belongs to a; this node is its spare")
    log.shard_owned("north", 2, 9.04)
    log.settings_taken("users of all nodes: version 3 is taken over (anna at node b)")
    log.settings_not_taken("users of all nodes: users.jsonl was changed by hand")
    log.adopted("spool", "/s", "anna")
    log.routes_read(2, 1, 3)
    log.routes_refused(["/r:1: 'x' must have a route behind it"], in_use=True)
    log.flush()
    found = lines(tmp_path)
    assert "waypost/pickup: 4abc: uid=0 from=<from@a.example>" in found
    assert (
        "waypost/smtpd: NOQUEUE: reject: RCPT from unknown[192.0.2.7]: 554 5.7.1 <x@y.example>: Relay access denied; "
        "from=<> to=<x@y.example> proto=ESMTP helo=<me>"
    ) in found
    assert "waypost/qmgr: 4abc: from=<from@a.example>, status=expired, returned to sender" in found
    assert "waypost/bounce: 4abc: sender non-delivery notification: 4abcB0" in found
    assert (
        "waypost/qmgr: tuned: smtp destination_concurrency_positive_feedback = 1/concurrency until 1795000000 by anna ()"
    ) in found
    assert ("waypost/qmgr: tuned: smtp:b.example destination_concurrency_limit = 5 expired; now 20") in found
    assert "waypost/qmgr: tuned: smtp:b.example suspended_until = 1795000000.0 expired" in found
    assert (
        "waypost/qmgr: window: queue smtp:b.example: limit 20 window 5 success 0.25 failure 0 fail_cohorts 0.333333"
    ) in found
    assert "waypost/master: warning: process receiver.0 pid 42 ended: signal 9; restarting it" in found
    assert "waypost/master: fatal: process manager: the home is locked" in found
    assert "waypost/master: fatal: not started: the spool directory /s is empty" in found
    assert "waypost/trivial-rewrite: route_maps: 2 files in use, 1 route, 3 fallbacks" in found
    assert "waypost/master: warning: shard: shard north belongs to a; this node is its spare" in found
    assert "waypost/master: shard north is ours: epoch 2, after 9.0 s" in found
    assert "waypost/master: settings: users of all nodes: version 3 is taken over (anna at node b)" in found
    assert "waypost/master: warning: settings: users of all nodes: users.jsonl was changed by hand" in found
    then = "the routes read before stay in use"
    assert f"waypost/trivial-rewrite: warning: route_maps: /r:1: 'x' must have a route behind it; {then}" in found
    assert [each["event"] for each in objects(tmp_path)] == [
        "accepted", "active", "refused", "refused", "expired", "bounced", "administered", "tuned", "tuned",
        "tuned_ended", "tuned_ended",
        "window_changed", "started", "recovered", "child_ended", "record_set_aside", "positions_damaged",
        "sync_failed", "disk_full",
        "stopped_accepting", "accepting_again", "accepting_paused", "stress", "stress_ended", "lane_lags",
        "refusals_not_recorded", "session_failed", "failed", "start_refused", "shard_waits", "shard_owned",
        "settings_taken", "settings_not_taken", "adopted",
        "routes_read", "routes_refused",
    ]  # fmt: skip


def test_strangers_words_stay_on_their_line_and_in_their_field(log: MailLog, tmp_path: Path) -> None:
    log.accepted(envelope(sender=HOSTILE, message_id=HOSTILE, login=HOSTILE, client_address=HOSTILE), HOSTILE)
    log.refused(HOSTILE, HOSTILE, HOSTILE, client_name=HOSTILE, sender=HOSTILE, recipient=HOSTILE, helo=HOSTILE)
    deliver(
        log,
        recipient=HOSTILE,
        relay=HOSTILE,
        verdict=Verdict(0, Status.BOUNCED, HOSTILE, "550 from=<a@b>, size=9 " + HOSTILE),
    )
    log.flush()
    found = lines(tmp_path)  # checks that each is printable ASCII with a head of ours
    assert len(found) == 5
    assert found[4].count("to=<") == 1
    assert "from=<" not in found[4]
    assert re.search(r"to=<[^>]*>, relay=([^,]+), delay=([^,]+), delays=[^,]+, dsn=[^,]+, status=bounced ", found[4])
    assert len(objects(tmp_path)) == 3
    assert objects(tmp_path)[2]["recipient"] == HOSTILE  # the program gets it as it was


def test_a_message_that_was_not_passed_on_has_one_line_whatever_the_next_hop_said(log: MailLog, tmp_path: Path) -> None:
    log.not_passed_on("1QUEUEID", HOSTILE, HOSTILE)
    log.flush()
    (line,) = lines(tmp_path)
    assert re.fullmatch(r"waypost/qmgr: 1QUEUEID: not passed on, to be queued: relay=\S+ \(.*\)", line)
    assert objects(tmp_path)[0]["reply"] == HOSTILE


def test_faults_of_the_users_have_a_line_each_and_the_last_one_says_what_is_in_force(
    log: MailLog, tmp_path: Path
) -> None:
    """At a start no users were read before, so none can stay as they were."""
    log.users_refused("/h/users.jsonl", ["/h/users.jsonl:2: x", "/h/users.jsonl:3: y"], 1, at_start=True)
    log.users_refused("/h/users.jsonl", ["/h/users.jsonl:2: z"], 2, at_start=False)
    log.close()
    texts = [line.partition("warning: ")[2] for line in lines(tmp_path)]
    assert texts == [
        "users: /h/users.jsonl:2: x",
        "users: /h/users.jsonl:3: y",
        "/h/users.jsonl: the lines with a fault are left out; 1 user can log in",
        "users: /h/users.jsonl:2: z",
        "/h/users.jsonl: it is not used; 2 users stay as they were before",
    ]
    assert [each["at_start"] for each in objects(tmp_path)] == [True, False]


def test_a_text_without_end_is_cut(log: MailLog, tmp_path: Path) -> None:
    deliver(log, recipient="x" * 10**6, verdict=Verdict(0, Status.BOUNCED, "5.0.0", "\x00" * 10**6))
    log.flush()
    assert (tmp_path / "mail.log").stat().st_size < 10_000


def test_a_line_tells_the_second_it_was_written_in(log: MailLog, tmp_path: Path, clock: Clock) -> None:
    log.removed("A")
    clock.now += 1
    log.removed("B")
    log.flush()
    first, second = (line.split()[2] for line in (tmp_path / "mail.log").read_text().splitlines())
    assert (int(second[-2:]) - int(first[-2:])) % 60 == 1


# -- encryption


def test_a_new_encrypted_connection_has_a_line_and_the_delivery_its_level(log: MailLog, tmp_path: Path) -> None:
    tls, level = "TLSv1.3 TLS_AES_256_GCM_SHA384", "verify: [tls_policy] b.example"
    log.encrypted("4abc", "mx.b.example[192.0.2.9]:25", tls, level, True, 0.1)
    log.encrypted("4abd", "mx.b.example[192.0.2.9]:25", tls, "may", False, 0.1)
    log.encrypted("4abe", "mx.b.example[192.0.2.9]:25", tls, level, True, 0.0)  # a connection that was kept
    deliver(log, tls=tls, tls_level=level)
    log.flush()
    made = "TLS connection established to mx.b.example[192.0.2.9]:25: TLSv1.3 with cipher TLS_AES_256_GCM_SHA384"
    assert lines(tmp_path) == [
        f"waypost/smtp: 4abc: Verified {made}; {level}",
        f"waypost/smtp: 4abd: Untrusted {made}; may",
        "waypost/smtp: 4abc: to=<to@b.example>, relay=mx.b.example[192.0.2.9]:25, delay=1.4, "
        "delays=0.05/0/0.1/1.2 tls=verify, dsn=2.0.0, status=sent (250 2.0.0 Ok)",
    ]
    assert objects(tmp_path)[-1]["tls_level"] == level


def test_mail_in_the_clear_instead_of_tls_has_a_line_each_time(log: MailLog, tmp_path: Path) -> None:
    level = "may: sent in the clear: mx said: 454 \n4abc: removed"
    for connecting_s in (0.1, 0.0):
        log.encrypted("4abc", "mx.b.example[192.0.2.9]:25", "", level, False, connecting_s)
    deliver(log, tls_level=level)
    log.flush()
    *twice, delivery = lines(tmp_path)
    assert len(twice) == 2
    assert all(
        line.startswith("waypost/smtp: 4abc: no TLS with mx.b.example[192.0.2.9]:25: may: sent in") for line in twice
    )
    assert "/1.2 tls=may/cleartext, dsn=2.0.0, status=sent" in delivery


@pytest.mark.parametrize("level", [NOT_OFFERED, f"may: dane, mx.b.example has no TLSA records; {NOT_OFFERED[5:]}"])
def test_mail_in_the_clear_to_a_server_without_tls_says_so_in_the_line_of_its_delivery(
    log: MailLog, tmp_path: Path, level: str
) -> None:
    log.encrypted("4abc", "mx.b.example[192.0.2.9]:25", "", level, False, 0.1)
    deliver(log, tls_level=level)
    log.flush()
    (delivery,) = lines(tmp_path)
    assert "/1.2 tls=may/not-offered, dsn=2.0.0, status=sent" in delivery
    assert objects(tmp_path)[-1]["tls_level"] == level


@pytest.mark.parametrize("level", ["none: [tls_policy] b.example", "encrypt: [transports.smtp]", "may"])
def test_the_line_of_a_delivery_without_tls_has_the_level_alone(log: MailLog, tmp_path: Path, level: str) -> None:
    """Of mail under "none", and of mail that waits: nothing of it went in the clear."""
    log.encrypted("4abc", "mx.b.example[192.0.2.9]:25", "", level, False, 0.1)
    deliver(log, tls_level=level)
    log.flush()
    (delivery,) = lines(tmp_path)
    assert f"/1.2 tls={level.partition(':')[0]}, dsn=2.0.0, status=sent" in delivery
    assert objects(tmp_path)[-1]["tls_level"] == level


# -- pflogsumm


def totals(report: str) -> dict[str, int]:
    """pflogsumm's grand totals: the line's words -> number."""
    grand = report.partition("Per-Hour")[0]
    return {
        name.strip(): int(count) for count, name in re.findall(r"^ *(\d+) +([a-z][a-z/ ]+?)(?: +\(.*\))?$", grand, re.M)
    }


def pflogsumm(path: Path) -> str:
    program = shutil.which("pflogsumm") or shutil.which("pflogsumm", path="/usr/sbin")
    assert program, "pflogsumm is missing; install Debian's package pflogsumm"
    ran = subprocess.run([program, "--syslog-name=waypost", str(path)], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return ran.stdout


LEVELS = (
    "none: [transports.smtp]",
    "may",
    NOT_OFFERED,
    "verify: [tls_policy] b.example",
    "may: sent in the clear: no",
)


def test_pflogsumm_counts_what_happened(log: MailLog, tmp_path: Path) -> None:
    for at in range(7):
        log.accepted(envelope(f"4m{at}", sender=f"s{at % 3}@a.example", size_bytes=1000 + at), f"c{at}.a.example")
    log.accepted(envelope("4local", origin=Origin.LOCAL, size_bytes=500))
    log.accepted(envelope("4m0B0", origin=Origin.BOUNCE, sender="", size_bytes=700))
    tls = ("", "TLSv1.3 X")
    for at in range(5):
        level = LEVELS[at]
        log.encrypted(f"4m{at}", "mx.b.example[192.0.2.9]:25", tls[at % 2], level, False, 0.1)
        deliver(log, f"4m{at}", recipient=f"r{at % 2}@b.example", tls=tls[at % 2], tls_level=level)
    deliver(
        log, "4m0B0", recipient="s0@a.example", verdict=Verdict(0, Status.DELIVERED, "2.0.0", "250 forwarded as =<")
    )
    for _ in range(3):
        deliver(log, "4m5", verdict=Verdict(0, Status.DEFERRED, "4.2.0", "450 4.2.0 greylisted"))
    for at in range(2):
        deliver(
            log,
            "4m6",
            recipient=f"{at}@gone.example",
            verdict=Verdict(0, Status.BOUNCED, "5.1.1", "550 5.1.1 no from=<a>, size=9"),
        )
    deliver(log, "4local", verdict=Verdict(0, Status.EXPIRED, "4.4.7", "expired"))
    log.expired("4local", "from@a.example")
    for reply in ("554 5.7.1 Relay access denied", "550 5.1.1 no such user", "450 4.7.1 later"):
        log.refused("RCPT", reply, "192.0.2.66", sender="spam@x.example", recipient="y@y.example", helo=HOSTILE)
    log.refused("CONNECT", "421 4.7.0 busy", "192.0.2.66", protocol="SMTP")
    log.child_ended("deliverer.0", 99, "signal 9")
    log.flush()
    report = pflogsumm(tmp_path / "mail.log")
    found = totals(report)
    assert found["received"] == 8
    assert found["delivered"] == 6
    assert found["forwarded"] == 0
    assert found["deferred"] == 1
    assert re.search(r"deferred +\(3 +deferrals\)", report)
    assert found["bounced"] == 2  # an expired recipient is none of Postfix's bounced either
    assert found["rejected"] == 4
    assert found["bytes received"] == sum(1000 + at for at in range(7)) + 500
    assert found["bytes delivered"] == sum(1000 + at for at in range(5)) + 700
    assert found["senders"] == 4
    assert found["recipients"] == 3
    assert "Relay access denied" in report
    assert "process deliverer.0 pid 99 ended: signal 9" in report
    assert re.search(r"^ +3 +r0@b\.example$", report, re.M)


def test_pflogsumm_is_not_led_astray_by_strangers(log: MailLog, tmp_path: Path) -> None:
    log.accepted(envelope("4m", sender=HOSTILE, message_id=HOSTILE), HOSTILE)
    deliver(log, "4m", recipient=HOSTILE, verdict=Verdict(0, Status.BOUNCED, "5.0.0", "550 " + HOSTILE))
    log.flush()
    found = totals(pflogsumm(tmp_path / "mail.log"))
    assert (found["received"], found["delivered"], found["bounced"]) == (1, 0, 1)


def test_a_client_is_named_as_it_is_known(log: MailLog, tmp_path: Path) -> None:
    """By its own name, and by what a content filter says of the original client."""
    log.accepted(envelope(client_name="client.example"))
    log.accepted(envelope(original_client="first.example[203.0.113.9]", original_queue_id="4Abc"))
    log.rate_exceeded("Connection", 61.0, "203.0.113.9", "203.0.113.0/24")
    log.proxy_refused("192.0.2.10", "the header of version 1 is malformed")
    log.tls_failed("192.0.2.11", "", "no shared cipher")
    log.flush()
    found = lines(tmp_path)
    assert "client=client.example[" in found[0]
    assert "client=unknown[" in found[3]
    assert ", orig_queue_id=4Abc, orig_client=first.example[203.0.113.9]" in found[3]
    limit = "Connection rate limit exceeded: 61 from [203.0.113.9] of network 203.0.113.0/24"
    header = "PROXY header from balancer [192.0.2.10]: the header of version 1 is malformed; connection closed"
    tls = "TLS with unknown[192.0.2.11] failed: no shared cipher"
    assert found[6:] == [f"waypost/smtpd: warning: {each}" for each in (limit, header, tls)]
    assert objects(tmp_path)[1]["original_client"] == "first.example[203.0.113.9]"
    assert "original_client" not in objects(tmp_path)[0]
