"""The passage of control operations: frames as the core sends them, rights, the audit log, and keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from appliance.api.control import RIGHTS, STREAMED
from appliance.api.models import KeptAnswer
from appliance.api.operation import PREFIX
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.control.passage import FRAMES
from mailcore.control.protocol.operation import Access
from mailcore.control.protocol.table import OPERATIONS
from mailcore.faults import Code, Fault
from mailcore.frames import FrameDecoder, Response
from tests.appliance.accounts.sample_users import user
from tests.appliance.api.access import CONTROL
from tests.appliance.api.asking import client_with, code_of, token_for
from tests.appliance.fake_core import FakeCore, Parts, Refusal

pytestmark = pytest.mark.django_db
QUEUE_ID = "1K0RDGV4BE900"
HOLD = {"arguments": {"queue_ids": [QUEUE_ID]}, "why": "asked for"}


def frames(data: bytes) -> list[Response]:
    found = list(FrameDecoder().feed(data))
    assert all(isinstance(each, Response) for each in found)
    assert [each.last for each in found if isinstance(each, Response)] == [False] * (len(found) - 1) + [True]
    return [each for each in found if isinstance(each, Response)]


def answer(response: Any, status: int = 200) -> list[Response]:
    assert (response.status_code, response["Content-Type"]) == (status, FRAMES), response.content
    return frames(response.content)


def test_every_operation_for_clients_is_there_and_nothing_else() -> None:
    clients = {name for name, each in OPERATIONS.items() if each.access is not Access.INTERNAL}
    injection = {"inject_begin", "inject_data", "inject_end"}  # as one request
    assert RIGHTS.keys() == clients - injection, "a new operation: say in appliance/api/control.py who may ask for it"
    assert CONTROL.keys() == RIGHTS.keys() | {"inject"}


def test_each_change_of_the_core_is_in_the_audit_log_and_no_look_is() -> None:
    for name, right in RIGHTS.items():
        assert bool(right.action) == (OPERATIONS[name].access is Access.CHANGE), name


def test_an_answer_has_the_values_of_the_core() -> None:
    parts = [{"message": None, "recipients": [{"until": float("inf")}]}, {"recipients": []}]
    with FakeCore({"show": Parts(parts)}) as core:
        found = answer(client_with({Scope.READ}, "viewer").post("/control/show", {"arguments": {"queue_id": QUEUE_ID}}))
    assert len(found) == 2
    assert found[0].result["recipients"][0]["until"] == float("inf")
    assert core.requests[0].who == "viewer"
    assert not Entry.objects.exists()


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(Refusal("no", Code.CONFLICT, "x"), 409), (Refusal("no", Code.NOT_FOUND), 404), (Refusal("no", Code.BUSY), 503)],
)
def test_a_fault_of_the_core_is_a_frame_and_the_audit_log_has_the_refusal(refusal: Refusal, status: int) -> None:
    with FakeCore({"hold": refusal}):
        (found,) = answer(client_with({Scope.QUEUE}).post("/control/hold", HOLD), status)
    assert found.error == Fault(refusal.code, "no", refusal.argument)
    assert Entry.objects.get().outcome == "refused"


def test_a_change_is_made_as_the_user_and_audited_with_the_token() -> None:
    with FakeCore({"hold": {"changed": 1}}) as core:
        answer(client_with({Scope.QUEUE}).post("/control/hold", HOLD))
    (request,) = core.requests
    assert (request.who, request.why) == ("operator", "asked for")
    entry = Entry.objects.get()
    found = (entry.action, entry.subject, entry.who, entry.token, entry.outcome, entry.words, entry.why)
    assert found == ("queue.hold", QUEUE_ID, "operator", "a program", "done", "1 message", "asked for")


def test_without_the_core_nothing_is_done_and_json_says_so() -> None:
    client = client_with({Scope.QUEUE})
    for name, body in (("hold", HOLD), ("change_matching", {"arguments": {"change": "hold", "filter": {}}})):
        assert code_of(client.post(f"/control/{name}", body))[:2] == (503, "unavailable")
        assert code_of(client.post("/control/inject", b"{}"))[:2] in ((403, "forbidden"), (422, "invalid"))


@pytest.mark.parametrize(
    ("body", "argument"),
    [
        (b"", ""), (b"[]", ""), (b"{", ""), (b'{"who": "root"}', ""), (b'{"arguments": {"queue_ids": 5}}', "queue_ids"),
        (b'{"arguments": {"nonsense": 5}}', "nonsense"), (b'{"why": "a\\nforged line"}', "why"), (b"\xff", ""),
        (json.dumps({"why": "a" * 1001}).encode(), "why"), (b"[" * 5_000, ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_the_core_is_asked(body: bytes, argument: str) -> None:
    with FakeCore({"hold": {"changed": 1}}) as core:
        assert code_of(client_with({Scope.QUEUE}).post("/control/hold", body)) == (422, "invalid", argument)
    assert not core.requests
    assert not Entry.objects.exists()


def test_an_operation_that_is_internal_or_unknown_is_not_there() -> None:
    client = client_with()
    for name in ("places", "cut", "inject_begin", "nonsense"):
        assert code_of(client.post(f"/control/{name}", {}))[:2] == (404, "not_found")


def test_a_repeated_change_gets_the_first_answer_and_the_core_is_asked_once() -> None:
    with FakeCore({"hold": {"changed": 1}}) as core:
        client = client_with({Scope.QUEUE})
        first = client.post("/control/hold", HOLD, idempotency_key="k")
        again = client.post("/control/hold", HOLD, idempotency_key="k")
        assert (again.content, again["Content-Type"]) == (first.content, FRAMES)
        assert again["Idempotency-Replayed"] == "true"
        other = client.post("/control/hold", HOLD | {"why": "another"}, idempotency_key="k")
        assert code_of(other)[:2] == (409, "conflict")
        assert len(core.requests) == 1
        core.answers["retry"] = Refusal("try again", Code.BUSY)
        client.post("/control/retry", HOLD, idempotency_key="l")
        assert not KeptAnswer.objects.filter(key="l").exists(), "nothing was done, so it may be repeated"


def test_data_is_read_by_those_who_may_and_each_is_audited() -> None:
    piece = {"data": b"Subject: x\n", "more": False, "size_bytes": 11}
    body = {"arguments": {"queue_id": QUEUE_ID}}
    with FakeCore({"data": piece}) as core:
        refused = client_with({Scope.BODY}, "operator").post("/control/data", body)
        assert code_of(refused)[:2] == (403, "forbidden")
        assert not core.requests
        (found,) = answer(client_with({Scope.BODY}, "administrator").post("/control/data", body))
    assert found.result["data"] == b"Subject: x\n"
    entries = list(Entry.objects.order_by("pk").values_list("action", "who", "outcome", "subject"))
    assert entries == [
        ("message.read_body", "operator", "refused", QUEUE_ID), ("message.read_body", "administrator", "done", QUEUE_ID),
    ]  # fmt: skip


def test_a_message_is_handed_in_with_the_arguments_of_the_command() -> None:
    answers = {"inject_begin": {"queue_id": ""}, "inject_data": {}, "inject_end": {"queue_id": QUEUE_ID}}
    head = {"arguments": {"sender": "", "recipients": ["a@b.example"], "rewrite": False}, "why": "by hand"}
    body = json.dumps(head).encode() + b"\nSubject: x\n\n\xff\n"
    with FakeCore(answers) as core:
        client = client_with({Scope.SEND})
        (found,) = answer(client.post("/control/inject", body, content_type="application/octet-stream"))
    assert found.result["queue_id"] == QUEUE_ID
    assert core.asked("inject_begin") == [head["arguments"]]
    assert core.asked("inject_data") == [{"data": b"Subject: x\n\n\xff\n"}]
    entry = Entry.objects.get()
    assert (entry.action, entry.words, entry.why) == ("message.send", QUEUE_ID, "by hand")


# -- long answers


async def streamed(text: str, name: str, body: Any, **headers: str) -> Any:
    named = {"authorization": f"Bearer {text}", **headers}
    return await AsyncClient().post(f"{PREFIX}/control/{name}", body, content_type="application/json", headers=named)


async def read(response: Any) -> list[Response]:
    return frames(b"".join([piece async for piece in response]))


@pytest.mark.django_db(transaction=True)
async def test_a_long_change_comes_in_parts_and_is_done_once_for_its_key() -> None:
    _, text = await sync_to_async(lambda: token_for(user("operator")))()
    body = {"arguments": {"change": "hold", "filter": {"sender": "a@*"}}, "why": "spam"}
    progress = {"matched": 3, "matched_recipients": 3}
    parts = Parts([progress | {"changed": 1}, progress | {"changed": 3, "done": True}])
    with FakeCore({"change_matching": parts, "ping": {"pid": 1, "manager": True}}) as core:
        response = await streamed(text, "change_matching", body, **{"idempotency-key": "k"})
        assert response.streaming
        assert [each.result["changed"] for each in await read(response)] == [1, 3]
        again = await streamed(text, "change_matching", body, **{"idempotency-key": "k"})
        assert [each.result["changed"] for each in frames(again.content)] == [3], "the end is what counts"
        assert len(core.asked("change_matching")) == 1
        core.answers["change_matching"] = Refusal("try again", Code.UNAVAILABLE)
        response = await streamed(text, "change_matching", body, **{"idempotency-key": "l"})
        (found,) = await read(response)
        assert found.error == Fault(Code.UNAVAILABLE, "try again")
    entries = [each async for each in Entry.objects.order_by("pk")]
    assert [(each.action, each.outcome, each.words) for each in entries] == [
        ("queue.hold", "done", "3 messages"), ("queue.hold", "refused", "try again"),
    ]  # fmt: skip
    assert [each.key async for each in KeptAnswer.objects.all()] == ["k"]
    assert set(STREAMED) <= RIGHTS.keys()


@pytest.mark.django_db(transaction=True)
async def test_a_reader_that_goes_away_leaves_an_entry_without_an_end_and_a_key_that_is_not_used_again() -> None:
    _, text = await sync_to_async(lambda: token_for(user("operator")))()
    body = {"arguments": {"change": "hold", "filter": {"sender": "a@*"}}, "why": "spam"}
    parts = Parts([{"matched": 3, "changed": each} for each in range(3)])
    with FakeCore({"change_matching": parts, "ping": {"pid": 1, "manager": True}}) as core:
        response = await streamed(text, "change_matching", body, **{"idempotency-key": "k"})
        pieces = aiter(response.streaming_content)
        await anext(pieces)
        await pieces.aclose()
        again = await streamed(text, "change_matching", body, **{"idempotency-key": "k"})
        assert again.status_code in (503, 504)
        assert len(core.asked("change_matching")) == 1
    entry = await Entry.objects.aget()
    assert entry.outcome == "unknown"
