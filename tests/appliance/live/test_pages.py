"""The overview, the stream and the lines as a signed-in reader gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.test import AsyncClient, Client

from appliance.common.door import async_door
from appliance.live import listeners, listening
from appliance.live.hub import Hub
from tests.appliance.fake_core import FakeCore
from tests.appliance.live.answers import answers, row, state
from tests.eventually import PATIENCE_S

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user() -> User:
    made = User.objects.create_user("viewer")
    made.groups.add(Group.objects.get_or_create(name="viewer")[0])
    return made


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """One that has asked once."""
    made = Hub(lambda timeout_s: async_door("test", timeout_s), readers_max=2)
    reply = {"at": 3.0, "reply": "<script>x</script>\u202e", "status": "deferred", "dsn": "", "relay": "", "times": 1}
    rows = {"smtp:<b>.example": row(dead_until=9.0, last_replies=[reply])}
    told = {"destinations": rows, "without_mail": {}, "queued": {}, "suspended": {}}
    with FakeCore(answers(destinations=told, state=state(accepted=12, delivered=5, queued=7))):
        await made.tick()
        monkeypatch.setattr(listening, "_hub", made)
        yield made
        await made.close()


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


async def test_the_overview_shows_what_is_known_harmlessly(user: User, hub: Hub) -> None:
    answer = await sync_to_async(lambda: signed_in(user).get("/"))()
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "retry.300" in text
    assert "It balances." in text
    assert "&lt;script&gt;x&lt;/script&gt;\\u202e" in text
    assert "<script>x" not in text
    assert "smtp:<b>" not in text


async def test_the_overview_is_there_before_anything_is_known(user: User) -> None:
    answer = await sync_to_async(lambda: signed_in(user).get("/"))()
    assert answer.status_code == 200
    assert "Nothing is known yet." in answer.content.decode()


async def test_a_fault_of_the_manager_is_shown(user: User, hub: Hub) -> None:
    hub.picture["core"]["stalled"] = "the disk of /q is full"
    answer = await sync_to_async(lambda: signed_in(user).get("/"))()
    assert "Next to nothing is delivered: the disk of /q is full" in answer.content.decode()


async def test_that_mail_is_held_after_a_restore_is_shown(user: User, hub: Hub) -> None:
    hub.picture["core"]["restored"] = "restored from the backup of 2026-11-21; it may have been delivered since"
    answer = await sync_to_async(lambda: signed_in(user).get("/"))()
    assert "Mail is held: restored from the backup of 2026-11-21" in answer.content.decode()


async def test_lines_come_as_json(user: User, hub: Hub) -> None:
    def get(address: str) -> Any:
        return json.loads(signed_in(user).get(address).content)

    assert len((await sync_to_async(get)("/live/history"))["t"]) == 1
    assert (await sync_to_async(get)("/live/history?destination=smtp:<b>.example"))["window"] == [5]
    assert (await sync_to_async(get)("/live/history?destination=nobody"))["t"] == []
    assert (await sync_to_async(get)("/live/history?span=day"))["accepted"] == []


async def test_nobody_listens_without_a_role(hub: Hub) -> None:
    client = AsyncClient()
    assert (await client.get("/live/stream")).status_code == 302
    nobody = await sync_to_async(User.objects.create_user)("nobody")
    await client.aforce_login(nobody)
    assert (await client.get("/live/stream")).status_code == 403


async def events_of(user: User) -> tuple[Any, AsyncIterator[bytes]]:
    client = AsyncClient()
    await client.aforce_login(user)
    answer = await client.get("/live/stream")
    return answer, aiter(getattr(answer, "streaming_content", _nothing()))


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


async def test_a_stream_is_not_kept_back_by_anybody_and_begins_with_what_is_known(user: User, hub: Hub) -> None:
    answer, events = await events_of(user)
    assert answer["Content-Type"] == "text/event-stream"
    assert answer["X-Accel-Buffering"] == "no"
    assert "no-" in answer["Cache-Control"]
    assert await anext(events) == b"retry: 2000\n\n"
    assert await anext(events) == hub.encoded
    await events.aclose()  # type: ignore[attr-defined]


async def test_too_many_are_sent_away(user: User, hub: Hub) -> None:
    hub.readers = 2
    answer, _ = await events_of(user)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "10"


@pytest.mark.parametrize("how", ["signed out", "deactivated", "without a role", "other password"])
async def test_who_may_listen_no_longer_is_cut_off(
    user: User, hub: Hub, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(listeners, "LOOK_S", 0.0)
    _, events = await events_of(user)
    await anext(events)
    await anext(events)
    await hub.tick()
    assert await anext(events) == hub.encoded  # still there, and looked at since

    @sync_to_async
    def change() -> None:
        if how == "signed out":
            Session.objects.all().delete()
        elif how == "deactivated":
            User.objects.update(is_active=False)
        elif how == "without a role":
            user.groups.clear()
        else:
            user.set_password("another long password")
            user.save()

    await change()
    await hub.tick()
    async with asyncio.timeout(PATIENCE_S):
        assert [event async for event in events] == []
    assert hub.readers == 0
