"""The page of one message and its row in the list, with recipients in states of their own."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.appliance.fake_core import FakeCore, Parts, Refusal
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

QUEUE_ID = "1K0RDGV4BE900"
NOW = time.time()
ITEM = {
    "queue_id": QUEUE_ID, "lane": "retry.300", "state": "deferred", "sender": "s@a.example", "recipients": ["r0@x.example"],
    "recipient_count": 5, "arrived_at": NOW - 600, "due_at": NOW + 90,
    "states": {"deferred": 1, "held": 2, "delayed": 1, "deleted": 1},
}  # fmt: skip


def recipient(
    number: int, state: str, since: float = 0.0, until: float = 0.0, why: str = "", **more: Any
) -> dict[str, Any]:
    address = f"r{number}@x.example"
    return {"number": number, "address": address, "state": state, "since": since, "until": until, "why": why, **more}


RECIPIENTS = [
    recipient(0, "held", NOW - 60, why="looks <b>odd</b>"),
    recipient(1, "deleted", NOW - 50, NOW + 3600, "spam"),
    recipient(2, "delayed", NOW - 40, NOW + 7200, "tonight"),
    recipient(3, "deferred", until=NOW + 3 * 86_400, reply="450 busy"),
    recipient(4, "held", NOW - 60, why="delivered meanwhile", done=True),
]


@pytest.fixture
def viewer(client: Client) -> Client:
    vera = User.objects.create_user("vera", password="secret")
    vera.groups.add(Group.objects.get(name="viewer"))
    client.force_login(vera)
    return client


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_each_recipient_shows_its_state_until_when_and_why(viewer: Client) -> None:
    change: dict[str, Any] = {"event": "administrative", "at": NOW, "operation": "hold", "who": "ann", "why": ""}
    change["arguments"] = {"numbers": [[0, 0], [3, 4]]}
    answers = {
        "show": Parts([{"message": ITEM, "envelope": {}, "explain": [], "changes": []}, {"recipients": RECIPIENTS}]),
        "history": {"done": True, "events": [change]},
        "headers": {},
    }
    with FakeCore(answers):
        html = markup_of(viewer.get(f"/queue/{QUEUE_ID}/"))
    clock = r"[\d:-]+( [\d:]+)?"
    rows = [words(row) for row in re.findall(r"<tr>(.*?)</tr>", html) if "@x.example" in row]
    for row, expected in zip(
        rows,
        (
            rf"1 r0@x.example held held since {clock} – looks &lt;b&gt;odd&lt;/b&gt;",
            rf"2 r1@x.example deleted deleted {clock} ; can be undeleted until {clock} – spam",
            rf"3 r2@x.example delayed delayed until {clock} – tonight",
            r"4 r3@x.example deferred next attempt in .* 450 busy",
            r"5 r4@x.example done",
        ),
        strict=True,
    ):
        assert re.fullmatch(expected, row), row
    assert "deferred 1 delayed 2 held 1 deleted 5 recipients left" in words(html)
    assert "recipients No. 1, 4–5" in words(html)


def test_recipients_that_were_added_are_named(viewer: Client) -> None:
    change: dict[str, Any] = {
        "event": "administrative",
        "at": NOW,
        "operation": "add_recipients",
        "who": "ann",
        "why": "",
    }
    change["arguments"] = {"recipients": [f"a&{number}@x.example" for number in range(22)]}
    answers = {
        "show": Parts([{"message": ITEM, "envelope": {}, "explain": [], "changes": []}, {"recipients": RECIPIENTS}]),
        "history": {"done": True, "events": [change]},
        "headers": {},
    }
    with FakeCore(answers):
        html = markup_of(viewer.get(f"/queue/{QUEUE_ID}/"))
    assert "a&amp;0@x.example , a&amp;1@x.example , " in words(html)
    assert "a&amp;19@x.example and 2 more" in words(html)
    assert "a&amp;20@" not in html


def test_a_deletion_is_shown_as_an_end_without_an_attempt(viewer: Client) -> None:
    verdict = {"number": 0, "address": "r0@x.example", "status": "deleted", "dsn": "2.0.0", "reply": "deleted"}
    settled = {
        "event": "settled",
        "at": NOW,
        "destination": "x.example",
        "verdicts": [verdict] * 21,
        "verdicts_left_out": 2,
    }
    finished = {"event": "finished", "at": NOW, "how": "deleted", "bounce": None}
    history = {"done": True, "events": [settled, finished]}
    with FakeCore({"show": Parts([{"message": ITEM, "envelope": {}}]), "history": history, "headers": {}}):
        html = words(markup_of(viewer.get(f"/queue/{QUEUE_ID}/")))
    assert re.search(
        r"Ended without an attempt (?:\S+ )?\S+ x\.example", html
    )  # with the day, if that was before midnight
    assert "deleted r0@x.example : 2.0.0 deleted" in html
    assert "and 3 more recipients" in html
    assert "a: before the manager" not in html


def test_a_report_to_the_sender_is_named_for_what_it_tells(viewer: Client) -> None:
    names = {
        "": "Bounce to the sender",
        "delay": "Delay warning to the sender",
        "success": "Notice of success to the sender",
        "postmaster": "Report to the postmaster",
    }
    events = [
        {"event": "bounce", "at": NOW, "queue_id": f"{QUEUE_ID}B{at}", "lane": "local", "offset": at, "report": report}
        for at, report in enumerate(names)
    ]
    history = {"done": True, "events": events}
    with FakeCore({"show": Parts([{"message": ITEM, "envelope": {}}]), "history": history, "headers": {}}):
        html = words(markup_of(viewer.get(f"/queue/{QUEUE_ID}/")))
    found = re.findall(r"((?:Bounce|Delay warning|Notice of success|Report) to the \w+) \S+ (?:[\d:]+ )?(\w+B\d)", html)
    assert found == [(name, f"{QUEUE_ID}B{at}") for at, name in enumerate(names.values())], html


def test_the_list_says_beside_the_state_which_recipients_are_in_another(viewer: Client) -> None:
    others = [
        ITEM | {"states": {"deleted": 5}, "lane": "deleted", "state": "deleted"},
        ITEM | {"states": {"delayed": 5}, "state": "delayed"},
        ITEM | {"states": {"held": 4, "deleted": 1}, "state": "held"},
    ]
    with FakeCore({"list": {"items": [ITEM, *others], "cursor": None}}):
        html = markup_of(viewer.get("/queue/"))
    rows = [words(row) for row in re.findall(r"<tr role=.row.>(.*?)</tr>", html) if QUEUE_ID in row]
    states = [row.removeprefix(QUEUE_ID).split("s@a.example")[0].strip() for row in rows]
    assert states == ["deferred 1 delayed 2 held 1 deleted", "deleted", "delayed", "held 1 deleted"]


def test_an_attempt_shows_the_level_of_encryption_and_why(viewer: Client) -> None:
    attempt: dict[str, Any] = {
        "event": "attempt", "at": NOW, "destination": "smtp:x.example", "relay": "mx.x.example[192.0.2.1]:25", "tls": "",
        "delays": [0.1, 0.1, 0.1, 0.1], "verdicts": [], "verdicts_left_out": 0,
        "tls_level": "may: sent in the clear: mx said <b>454</b>",
    }  # fmt: skip
    verified = {**attempt, "tls": "TLSv1.3 X", "tls_level": "verify: [tls_policy] x.example"}
    answers = {
        "show": Parts([{"message": ITEM, "envelope": {}, "explain": [], "changes": []}, {"recipients": RECIPIENTS}]),
        "history": {"done": True, "events": [attempt, verified, {**attempt, "tls_level": ""}]},
        "headers": {},
    }
    with FakeCore(answers):
        html = markup_of(viewer.get(f"/queue/{QUEUE_ID}/"))
    text = words(html)
    assert "TLS level may: sent in the clear: mx said &lt;b&gt;454&lt;/b&gt;" in text
    assert "TLSv1.3 X TLS level verify: [tls_policy] x.example" in text
    assert text.count("TLS level") == 2


@pytest.mark.parametrize("gone", [False, True])
def test_the_results_of_our_own_check_are_shown_and_forged_ones_are_not_ours(viewer: Client, gone: bool) -> None:
    checked = {"authentication": "spf=fail dkim=pass arc=<b> dmarc=temperror mail=pass"}
    accepted = {"event": "accepted", "at": NOW, "sender": "s@a.example", "origin": "smtp", **checked}
    forged = [["Authentication-Results", "mx.example.org; spf=pass; dkim=pass; dmarc=pass header.from=bank.example"]]
    show = Refusal("gone") if gone else Parts([{"message": ITEM, "envelope": checked}])
    answers = {"show": show, "history": {"done": True, "events": [accepted]}, "headers": {"headers": forged}}
    with FakeCore(answers):
        html = markup_of(viewer.get(f"/queue/{QUEUE_ID}/"))
    badges = re.findall(r'<span class="badge (\w*)">((?:SPF|DKIM|ARC|DMARC) .*?)</span>', html)
    wanted = [("bad", "SPF fail"), ("good", "DKIM pass"), ("warn", "ARC &lt;b&gt;"), ("warn", "DMARC temperror")]
    assert [(kind, words(text)) for kind, text in badges] == wanted, html


def test_a_message_that_was_not_checked_has_no_results_of_ours(viewer: Client) -> None:
    forged = [["Authentication-Results", "mx.example.org; spf=pass; dkim=pass; dmarc=pass"]]
    answers = {
        "show": Parts([{"message": ITEM, "envelope": {}}]),
        "history": {"done": True, "events": []},
        "headers": {"headers": forged},
    }
    with FakeCore(answers):
        html = markup_of(viewer.get(f"/queue/{QUEUE_ID}/"))
    assert "spf=pass" in html, "as a field of the header"
    assert "Our check" not in html
