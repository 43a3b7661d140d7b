"""Events by cursor and as a stream: what the core is asked, and when a stream ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import AsyncClient
from django.utils import timezone

from appliance.api import events, streams
from appliance.api.models import ApiToken
from appliance.api.scopes import Scope
from mailcore.faults import Code
from tests.appliance.accounts.sample_users import user
from tests.appliance.api.asking import client_with, code_of, token_for
from tests.appliance.fake_core import FakeCore, Refusal
from tests.eventually import PATIENCE_S

pytestmark = pytest.mark.django_db(transaction=True)

EVENT = {
    "id": "journal:7:0",
    "kind": "bounced",
    "queue_id": "1K0RDGV4BE900",
    "recipient": "r@x.example",
    "reply": "550 no",
}
BATCH: dict[str, Any] = {"events": [EVENT], "start": "1a", "cursor": "1b", "more": True, "lost": []}
CONDITIONS = "kind=bounced&kind=expired&tag=news&sender_domain=a.example&recipient_domain=x.example&login=alice"
ASKED = {
    "kinds": ["bounced", "expired"], "tag": "news", "sender_domain": "a.example", "recipient_domain": "x.example",
    "login": "alice",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The token is looked at again with each batch."""
    monkeypatch.setattr(events, "WAIT_S", 0.0)
    yield
    assert streams._open == 0


def test_a_list_has_the_events_and_the_cursor_that_continues_it() -> None:
    with FakeCore({"events": BATCH}) as core:
        response = client_with({Scope.READ}, "viewer").get(f"/events?{CONDITIONS}&after=1a&limit=7&past_lost=true")
    assert response.status_code == 200, response.content
    told = json.loads(response.content)
    assert core.asked("events") == [ASKED | {"after": "1a", "limit": 7, "past_lost": True}]
    assert (told["cursor"], told["more"], told["lost"]) == ("1b", True, [])
    assert told["events"][0] | EVENT == told["events"][0]


def test_events_that_are_gone_are_an_error_that_names_the_cursor() -> None:
    with FakeCore({"events": Refusal("events are kept from today on", Code.NOT_FOUND, "after")}):
        for path in ("/events?after=1a", "/events/stream?after=1a"):
            assert code_of(client_with().get(path)) == (404, "not_found", "after")


@pytest.mark.parametrize(
    ("query", "argument"),
    [
        ("kind=opened", "kind"), ("tag=", "tag"), ("tag=a&tag=b", "tag"), ("domain=x", "domain"), ("after=", "after"),
        ("limit=0", "limit"), ("limit=1001", "limit"), (f"after={'x' * 8_001}", "after"),
    ],
)  # fmt: skip
def test_a_condition_that_is_not_understood_is_an_error(query: str, argument: str) -> None:
    with FakeCore({"events": BATCH}) as core:
        assert code_of(client_with().get(f"/events?{query}")) == (422, "invalid", argument)
    assert core.asked("events") == []


async def stream(text: str, query: str = "", **headers: str) -> tuple[Any, AsyncIterator[bytes]]:
    answer: Any = await AsyncClient().get(
        f"/api/v1/events/stream?{query}", headers={"authorization": f"Bearer {text}", **headers}
    )
    return answer, aiter(answer.streaming_content)


@sync_to_async
def made(role: str = "viewer") -> tuple[ApiToken, str]:
    return token_for(user(role), {Scope.READ})


async def test_a_stream_sends_each_event_and_the_cursor_with_the_last(often: None) -> None:
    _, text = await made()
    two = BATCH | {"events": [EVENT, EVENT | {"id": "journal:9:0", "kind": "expired"}]}
    with FakeCore({"events": two}) as core:
        answer, pieces = await stream(text, CONDITIONS, last_event_id="1z")
        assert answer["Content-Type"] == "text/event-stream"
        assert answer["X-Accel-Buffering"] == "no"
        assert (await anext(pieces)).startswith(b":")
        first, second, rest = (await anext(pieces)).decode().split("\n\n")
        assert rest == ""
        assert first.splitlines()[0] == "event: bounced"
        assert json.loads(first.splitlines()[1].removeprefix("data: "))["id"] == "journal:7:0"
        assert second.splitlines()[:2] == ["id: 1b", "event: expired"]
        await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]
    asked = core.asked("events")
    assert asked[0] == ASKED | {"limit": events.LIMIT, "after": "1z"}
    assert asked[1]["after"] == "1b"


@pytest.mark.parametrize("how", ["revoked", "expired", "deleted", "disabled", "without a role", "another scope"])
async def test_a_stream_ends_with_its_token(often: None, how: str) -> None:
    token, text = await made()

    @sync_to_async
    def change() -> None:
        it = ApiToken.objects.filter(pk=token.pk)
        if how == "revoked":
            it.update(revoked_at=timezone.now())
        elif how == "expired":
            it.update(expires_at=timezone.now())
        elif how == "deleted":
            it.delete()
        elif how == "disabled":
            User.objects.update(is_active=False)
        elif how == "without a role":
            token.user.groups.clear()
        else:
            it.update(scopes=["send"])

    with FakeCore({"events": BATCH}):
        _, pieces = await stream(text)
        for _ in range(4):
            await anext(pieces)
        await change()
        async with asyncio.timeout(PATIENCE_S):
            left = [piece async for piece in pieces]
        assert len(left) <= 1


async def test_a_stream_says_that_events_are_gone_and_that_the_core_is_away(often: None) -> None:
    _, text = await made()
    answers = iter([BATCH, Refusal("events are kept from today on", Code.NOT_FOUND, "after")])
    with FakeCore({"events": lambda _: next(answers)}) as core:
        _, pieces = await stream(text)
        told = [piece async for piece in pieces]
        assert told[-1].startswith(b'event: error\ndata: {"code":"not_found"')
        core.answers["events"] = BATCH
        _, pieces = await stream(text)
        await anext(pieces)
        await anext(pieces)
    told = [piece async for piece in pieces]
    assert told[-1].startswith(b'event: error\ndata: {"code":"unavailable"')


async def test_a_process_has_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = await made()
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    with FakeCore({"events": BATCH}):
        _, pieces = await stream(text)
        await anext(pieces)
        answer = await AsyncClient().get("/api/v1/events/stream", headers={"authorization": f"Bearer {text}"})
        assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert [piece async for piece in pieces]  # it ends, as the core is away
    with FakeCore({"events": BATCH}):
        answer, _ = await stream(text)
        assert answer.status_code == 200
