"""Sending: what reaches the core, what a body can't do, and what is refused before anything is queued."""

from __future__ import annotations

import base64
import dataclasses
import email
import email.policy
import json
import threading
from email.message import EmailMessage
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import override_settings

from appliance.api import sending
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX
from mailcore.faults import Code
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db

QUEUE_ID = "1K0RDGV4BE900"
RAW = b"Subject: hello\r\n\r\nHello.\r\n"
QUERY = "/messages?sender=a@sender.example&recipient=r@x.example"
PARTS: dict[str, Any] = {
    "sender": "a@sender.example",
    "recipients": ["r@x.example"],
    "subject": "hello",
    "text": "Hello.\n",
}
ANSWERS = {"inject_begin": {"queue_id": QUEUE_ID}, "inject_data": {}, "inject_end": {"queue_id": QUEUE_ID}}


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def raw(path: str = QUERY, data: bytes = RAW, **headers: str) -> Any:
    return client_with({Scope.SEND}).post(path, data, content_type="message/rfc822", **headers)


def injected(core: FakeCore) -> bytes:
    return b"".join(each["data"] for each in core.asked("inject_data"))


def composed(**parts: Any) -> EmailMessage:
    with FakeCore(ANSWERS) as core:
        response = client_with({Scope.SEND}).post("/messages", PARTS | parts)
        assert response.status_code == 202, response.content
        data = injected(core)
    assert b"\n" not in data.replace(b"\r\n", b"")
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def refused(**parts: Any) -> tuple[int, str, str]:
    with FakeCore(ANSWERS) as core:
        response = client_with({Scope.SEND}).post("/messages", PARTS | parts)
        assert core.requests == []
    assert not Entry.objects.filter(action="message.send").exists()
    return code_of(response)


def test_a_raw_message_is_handed_in_as_it_is_and_answered_with_its_queue_id() -> None:
    data = RAW + b"\xff\xfe.\r\n.\r\n\x00" + b"x" * (CHUNK_BYTES_MAX * 2)
    with FakeCore(ANSWERS) as core:
        response = raw(f"{QUERY}&recipient=s@x.example&recipient=r@x.example", data)
    assert response.status_code == 202
    assert json.loads(response.content) == {
        "queue_ids": [QUEUE_ID],
        "recipients": 2,
        "size_bytes": len(data),
        "unsent": [],
    }
    assert injected(core) == data
    begin = core.asked("inject_begin")[0]
    assert (begin["sender"], begin["recipients"]) == ("a@sender.example", ["r@x.example", "s@x.example"])
    entry = Entry.objects.get(action="message.send")
    assert (entry.who, entry.token, entry.subject, entry.words) == (
        "operator",
        "a program",
        "a@sender.example",
        QUEUE_ID,
    )


def test_the_answer_comes_after_the_core_has_synced_it() -> None:
    """The queue id is that of inject_end: the one of inject_begin is not durable yet."""
    with FakeCore(ANSWERS | {"inject_end": Refusal("the disk is full", Code.BUSY)}):
        assert code_of(raw())[:2] == (503, "busy")
    assert Entry.objects.get(action="message.send").outcome == "refused"
    with FakeCore(ANSWERS | {"inject_end": Refusal("the manager ended", Code.OUTCOME_UNKNOWN)}):
        assert code_of(raw())[:2] == (504, "outcome_unknown")


def test_a_message_that_was_sent_with_a_key_is_queued_once() -> None:
    client = client_with({Scope.SEND})
    with FakeCore(ANSWERS) as core:
        first = client.post(QUERY, RAW, content_type="message/rfc822", idempotency_key="k")
        second = client.post(QUERY, RAW, content_type="message/rfc822", idempotency_key="k")
        other = client.post(QUERY, RAW + b"x", content_type="message/rfc822", idempotency_key="k")
        elsewhere = client.post(
            f"{QUERY}&recipient=x@y.example", RAW, content_type="message/rfc822", idempotency_key="k"
        )
    assert first.content == second.content
    assert len(core.asked("inject_end")) == 1
    assert (other.status_code, elsewhere.status_code) == (409, 409)


@pytest.mark.parametrize(
    ("path", "data", "argument"),
    [
        ("/messages?recipient=r@x.example", RAW, "sender"),
        ("/messages?sender=a@b.example", RAW, "recipient"),
        (QUERY, b"", ""),
        ("/messages?sender=a%00@b.example&recipient=r@x.example", RAW, "sender"),
        ("/messages?sender=a@b.example%0d%0aRCPT&recipient=r@x.example", RAW, "sender"),
        (f"{QUERY}&sender=other@b.example", RAW, "sender"),
        ("/messages?sender=a@b.example&recipient=nothing", RAW, "recipient[0]"),
        ("/messages?sender=a@b.example&recipient=r@x.example%0d%0aDATA", RAW, "recipient[0]"),
        (f"{QUERY}&to=x@y.example", RAW, "to"),
        (f"{QUERY}&not_before=never", RAW, "not_before"),
    ],
)  # fmt: skip
def test_a_raw_message_without_its_envelope_is_not_queued(path: str, data: bytes, argument: str) -> None:
    with FakeCore(ANSWERS) as core:
        assert code_of(raw(path, data)) == (422, "invalid", argument)
    assert core.requests == []


def test_the_sender_of_bounces_is_empty() -> None:
    with FakeCore(ANSWERS) as core:
        assert raw("/messages?sender=&recipient=r@x.example").status_code == 202
    assert core.asked("inject_begin")[0]["sender"] == ""


def test_a_body_of_another_type_is_415() -> None:
    client = client_with({Scope.SEND})
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""):
        response = client.post("/messages", b"x=y", content_type=kind)
        assert code_of(response)[:2] == (415, "invalid"), kind


def test_a_body_above_the_setting_is_413_and_not_read_into_memory() -> None:
    small = dataclasses.replace(settings.PORTAL, api_body_bytes_max=65_536)
    with override_settings(PORTAL=small), FakeCore(ANSWERS) as core:
        assert raw(data=b"x" * 65_536).status_code == 202
        assert code_of(raw(data=b"x" * 65_537))[:2] == (413, "invalid")
    assert len(core.asked("inject_end")) == 1


def test_large_messages_have_a_bounded_number_of_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_places", threading.BoundedSemaphore(1))
    monkeypatch.setattr(sending, "PLACE_WAIT_S", 0.01)
    large = b"x" * (sending.LARGE_BYTES + 1)
    with FakeCore(ANSWERS):
        with sending._places:
            assert code_of(raw(data=large))[:2] == (503, "busy")
            assert raw().status_code == 202, "a small one needs no place"
        assert raw(data=large).status_code == 202
        assert raw(data=large).status_code == 202, "the place is given back"


def test_parts_become_a_message() -> None:
    attachment = {
        "filename": "r\u00e9sum\u00e9.pdf",
        "content_type": "application/pdf",
        "content": base64.b64encode(b"%PDF\r\n\0").decode(),
    }
    message = composed(
        **{"from": {"address": "author@sender.example", "name": "J\u00f6rg, the author"}},
        to=[{"address": "r@x.example", "name": 'A "B" C'}], cc=[{"address": "c@x.example"}], subject="\u00fcber alles" * 30,
        text="Gr\u00fc\u00dfe\n.\nFrom me\n" + "x" * 5_000, html="<p>Gr\u00fc\u00dfe</p>", attachments=[attachment],
        headers={"X-Tag": "invoice", "List-Unsubscribe": "<https://x.example>"},
    )  # fmt: skip
    assert message["From"].addresses[0].display_name == "J\u00f6rg, the author"
    assert message["From"].addresses[0].addr_spec == "author@sender.example"
    assert message["To"].addresses[0].display_name == 'A "B" C'
    assert message["Cc"].addresses[0].addr_spec == "c@x.example"
    assert message["Subject"] == "\u00fcber alles" * 30
    assert message["X-Tag"] == "invoice"
    assert message["Message-ID"].endswith("@sender.example>")
    assert message["Date"].datetime.tzinfo is not None
    assert message["MIME-Version"] == "1.0"
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().splitlines() == ["Gr\u00fc\u00dfe", ".", "From me", "x" * 5_000]
    assert html.get_content().strip() == "<p>Gr\u00fc\u00dfe</p>"
    files = list(message.iter_attachments())
    assert [(each.get_filename(), each.get_content_type(), each.get_content()) for each in files] == [
        ("r\u00e9sum\u00e9.pdf", "application/pdf", b"%PDF\r\n\0")
    ]


def test_no_line_of_a_composed_message_is_longer_than_smtp_allows() -> None:
    with FakeCore(ANSWERS) as core:
        body = PARTS | {"text": "x" * 100_000, "subject": "y" * 9_000, "headers": {"X-Long": "z" * 9_000}}
        assert client_with({Scope.SEND}).post("/messages", body).status_code == 202
        lines = injected(core).split(b"\r\n")
    assert max(map(len, lines)) <= 998


def test_several_recipients_are_not_shown_to_each_other() -> None:
    message = composed(recipients=["r@x.example", "s@x.example"])
    assert "x.example" not in str(message["To"])
    assert composed()["To"] == "r@x.example"


def test_raw_in_json_is_the_whole_message() -> None:
    with FakeCore(ANSWERS) as core:
        body: dict[str, Any] = {
            "sender": "a@b.example",
            "recipients": ["r@x.example"],
            "raw": "Subject: \u00fc\r\n\r\nx",
        }
        assert client_with({Scope.SEND}).post("/messages", body).status_code == 202
        assert injected(core) == body["raw"].encode()


LINE_ENDS = ["\r\nBcc: victim@x.example", "\nX: y", "\r", "\x00", "\u2028X: y", "\u0085X: y", "\x0bX: y"]


@pytest.mark.parametrize("end", LINE_ENDS)
def test_no_value_begins_a_further_field(end: str) -> None:
    for parts in (
        {"subject": f"x{end}"}, {"headers": {"X-Tag": f"x{end}"}}, {"headers": {f"X-Tag{end}": "x"}},
        {"from": {"address": f"a@b.example{end}"}}, {"from": {"address": "a@b.example", "name": f"x{end}"}},
        {"to": [{"address": f"a@b.example{end}"}]}, {"recipients": [f"r@x.example{end}"]}, {"sender": f"a@b.example{end}"},
        {"attachments": [{"filename": f"x{end}", "content": ""}]},
        {"attachments": [{"filename": "x", "content_type": f"text/plain{end}", "content": ""}]},
    ):  # fmt: skip
        status, code, _ = refused(**parts)
        assert (status, code) == (422, "invalid"), parts


NOT_GIVEN = (
    "Bcc", "bcc", "Content-Type", "content-anything", "Received", "Return-Path", "DKIM-Signature", "From", "To", "Subject",
    "Date", "Message-ID", "MIME-Version", "X Tag", "X:Tag", "", "\u00fc", "x" * 77,
)  # fmt: skip


@pytest.mark.parametrize("name", NOT_GIVEN)
def test_a_field_that_is_made_here_or_has_no_name_cannot_be_given(name: str) -> None:
    assert refused(headers={name: "x"})[:2] == (422, "invalid")


@pytest.mark.parametrize(
    ("parts", "argument"),
    [
        ({"raw": "x"}, "raw"), ({"raw": ""}, "raw"), ({"recipients": []}, "recipients"),
        ({"recipients": ["x"]}, "recipients[0]"),
        ({"recipients": ["a@b", "<c@d>"]}, "recipients[1]"), ({"sender": None}, "sender"), ({"bcc": []}, "bcc"),
        ({"text": 5}, "text"), ({"subject": "x" * 10_001}, "subject"), ({"not_before": 0}, "not_before"),
        ({"attachments": [{"filename": "x", "content": "%"}]}, "attachments[0].content"),
        ({"attachments": [{"filename": "x", "content_type": "message/rfc822", "content": ""}]}, "attachments[0].content_type"),
        ({"attachments": [{"filename": "x", "content_type": "multipart/mixed", "content": ""}]}, "attachments[0].content_type"),
        ({"attachments": [{"filename": "", "content": ""}]}, "attachments[0].filename"), ({"to": []}, "to"),
        ({"sender": "", "text": "x"}, "from"), ({"sender": "\u00fc@b.example"}, "sender[0]"),
    ],
)  # fmt: skip
def test_a_body_that_is_wrong_queues_nothing(parts: dict[str, Any], argument: str) -> None:
    assert refused(**parts) == (422, "invalid", argument)


def test_a_message_without_content_is_not_made_up() -> None:
    with FakeCore(ANSWERS) as core:
        body = {"sender": "a@b.example", "recipients": ["r@x.example"]}
        assert code_of(client_with({Scope.SEND}).post("/messages", body)) == (422, "invalid", "text")
    assert core.requests == []


@pytest.mark.parametrize("body", ["", "{", "[]", '{"sender": "\\ud800@b.example"}', b"\xff", "NaN"])
def test_json_that_is_none_is_an_error(body: str | bytes) -> None:
    assert code_of(client_with({Scope.SEND}).post("/messages", body))[:2] == (422, "invalid")


def test_the_core_says_which_address_it_does_not_take() -> None:
    with FakeCore(ANSWERS | {"inject_begin": Refusal("recipient 'x@y' is not an address", Code.INVALID, "recipients")}):
        assert code_of(raw()) == (422, "invalid", "recipients")


ANN, BOB, CARL = "ann@x.example", "bob@x.example", "carl@x.example"
VALUES: dict[str, dict[str, str]] = {
    ANN: {"name": "Ann <b>& Co", "number": "17", "lines": "one\ntwo", "unused": "x"},
    BOB: {"name": "{{number}}", "number": "18", "lines": ""},
}
LETTER: dict[str, Any] = {
    "sender": "a@sender.example",
    "recipients": [ANN, BOB, ANN],
    "subject": "Invoice {{number}} for {{ name }}",
    "text": "Dear {{name}},\n{{lines}}\n{{ not a place }} {{}} {{  name  }}\n",
    "html": "<p>{{name}}</p>",
    "headers": {"X-Number": "{{number}}"},
    "variables": VALUES,
}


def letters(core: FakeCore) -> list[EmailMessage]:
    found: list[bytes] = []
    for request in core.requests:
        if request.operation == "inject_begin":
            found.append(b"")
        elif request.operation == "inject_data":
            found[-1] += request.arguments["data"]
    made = [email.message_from_bytes(data, policy=email.policy.default) for data in found]
    return [each for each in made if isinstance(each, EmailMessage)]


def part(message: EmailMessage, kind: str) -> str:
    body = message.get_body((kind,))
    assert isinstance(body, EmailMessage)
    return str(body.get_content()).replace("\r\n", "\n")


def test_each_recipient_gets_a_message_with_his_own_values() -> None:
    with FakeCore(ANSWERS) as core:
        response = client_with({Scope.SEND}).post("/messages", LETTER)
    assert response.status_code == 202, response.content
    ann, bob = letters(core)
    answer = json.loads(response.content)
    assert (answer["queue_ids"], answer["recipients"], answer["unsent"]) == ([QUEUE_ID] * 2, 2, [])
    assert [each["recipients"] for each in core.asked("inject_begin")] == [[ANN], [BOB]]
    assert [(each["To"], each["Subject"], each["X-Number"]) for each in (ann, bob)] == [
        (ANN, "Invoice 17 for Ann <b>& Co", "17"),
        (BOB, "Invoice 18 for {{number}}", "18"),
    ]
    assert part(ann, "plain") == "Dear Ann <b>& Co,\none\ntwo\n{{ not a place }} {{}} {{  name  }}\n"
    assert part(ann, "html").strip() == "<p>Ann &lt;b&gt;&amp; Co</p>"
    assert part(bob, "html").strip() == "<p>{{number}}</p>", "a value is no text with places"
    assert ann["Message-ID"] != bob["Message-ID"]
    entry = Entry.objects.get(action="message.send")
    assert (entry.outcome, entry.words, entry.after) == ("done", "2 messages", {"queue_ids": [QUEUE_ID] * 2})


UMLAUT = "b\u00f6b@x.example"


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"variables": {ANN: {"name": "x", "number": "1", "lines": ""}}}, f"variables.{BOB}.lines"),
        ({"variables": {}}, f"variables.{ANN}.lines"),
        ({"variables": VALUES | {CARL: {}}}, f"variables.{CARL}"),
        ({"variables": VALUES | {ANN: VALUES[ANN] | {"name": "x\r\nBcc: y@z.example"}}}, f"variables.{ANN}.name"),
        ({"variables": {ANN: {"1st": "x"}}}, f"variables.{ANN}.1st.[key]"),
        ({"variables": {ANN: {"name": 5}}}, f"variables.{ANN}.name"),
        ({"variables": {"nothing": {}}}, "variables.nothing"),
        ({"recipients": [ANN, UMLAUT], "variables": {ANN: VALUES[ANN], UMLAUT: VALUES[BOB]}}, "recipients[1]"),
        ({"attachments": [{"filename": "a", "content": "?"}]}, "attachments[0].content"),
    ],
)
def test_values_that_do_not_fit_are_refused_before_anything_is_queued(changed: dict[str, Any], argument: str) -> None:
    with FakeCore(ANSWERS) as core:
        response = client_with({Scope.SEND}).post("/messages", LETTER | changed)
        assert code_of(response) == (422, "invalid", argument), response.content
        assert core.requests == []


def test_a_whole_message_has_no_places() -> None:
    with FakeCore(ANSWERS) as core:
        body = {"sender": "a@b.example", "recipients": [ANN], "raw": "Subject: {{name}}\r\n\r\n", "variables": VALUES}
        assert code_of(client_with({Scope.SEND}).post("/messages", body)) == (422, "invalid", "variables")
        assert core.requests == []


@pytest.mark.parametrize("code", [Code.BUSY, Code.OUTCOME_UNKNOWN])
def test_the_recipients_without_a_message_are_named_when_others_have_one(code: Code) -> None:
    """As long as nothing is queued, the error is the answer of the whole request."""
    ends = iter([{"queue_id": QUEUE_ID}, Refusal("the disk is full", code)])
    answers: dict[str, Any] = ANSWERS | {"inject_end": lambda arguments: next(ends)}
    body = LETTER | {"recipients": [ANN, BOB, CARL], "variables": dict.fromkeys((ANN, BOB, CARL), VALUES[BOB])}
    with FakeCore(answers) as core:
        response = client_with({Scope.SEND}).post("/messages", body)
    assert response.status_code == 202, response.content
    answer = json.loads(response.content)
    assert answer["queue_ids"] == [QUEUE_ID]
    assert answer["unsent"] == [
        {"recipient": BOB, "code": code.value, "message": "the disk is full"},
        {"recipient": CARL, "code": "unavailable", "message": "not tried: the disk is full"},
    ]
    assert len(core.asked("inject_begin")) == 2
    assert Entry.objects.get(action="message.send").words == "1 message of 3: the disk is full"
    with FakeCore(ANSWERS | {"inject_end": Refusal("the disk is full", code)}):
        assert code_of(client_with({Scope.SEND}).post("/messages", body))[1] == code.value
