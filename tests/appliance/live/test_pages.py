"""The overview, the stream and the lines as a signed-in reader gets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.db import OperationalError
from django.test import AsyncClient, Client
from django.utils import timezone

from appliance.accounts.session_store import Session
from appliance.common.door import async_door
from appliance.live import listeners, listening
from appliance.live.fragments import LiveState, Part
from appliance.live.hub import Hub
from appliance.status import overview_views
from appliance.status.overview_views import live_part
from tests.appliance.fake_core import FakeCore
from tests.appliance.live.answers import answers, row, state
from tests.appliance.markup import collapsed, markup_of
from tests.eventually import PATIENCE_S

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user() -> User:
    made = User.objects.create_user("viewer", password="secret")
    made.groups.add(Group.objects.get_or_create(name="viewer")[0])
    return made


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """One that has asked once."""
    made = Hub(lambda timeout_s: async_door("test", timeout_s), readers_max=2)
    reply = {"at": 3.0, "reply": "<script>x</script>\u202e", "status": "deferred", "dsn": "", "relay": "", "times": 1}
    rows = {"smtp:<b>.example": row(dead_until=9.0, last_replies=[reply])}
    told = {
        "destinations": rows,
        "without_mail": {},
        "queued": {},
        "suspended": {},
        "states": {"smtp:<b>.example": [["dead", 9.0]]},
    }
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
    assert "No data yet." in answer.content.decode()


FIRST = '<section id="first" class="empty" aria-labelledby="first-title"'


@pytest.mark.parametrize(
    ("totals", "core", "shown"),
    [
        ({}, {}, True),
        ({"accepted": 1}, {}, False),
        ({"queued_at_start": 1, "queued": 1}, {}, False),
        ({"note": "restart positions were damaged"}, {}, False),  # what was before is not known
        ({}, {"running": False}, False),
    ],
)
async def test_what_to_do_first_is_shown_until_there_was_mail(
    user: User, hub: Hub, totals: dict[str, Any], core: dict[str, Any], shown: bool
) -> None:
    hub.snapshot["totals"] = dict.fromkeys(hub.snapshot["totals"], 0) | {"started_at": 1.0, "note": ""} | totals
    hub.snapshot["core"] |= core
    text = (await sync_to_async(lambda: signed_in(user).get("/"))()).content.decode()
    assert (f"{FIRST}>" in text) is shown
    assert (f"{FIRST} hidden>" in text) is not shown


async def test_a_fault_of_the_manager_is_shown(user: User, hub: Hub) -> None:
    hub.snapshot["core"]["stalled"] = "the disk of /q is full"
    answer = await sync_to_async(lambda: signed_in(user).get("/"))()
    assert "Deliveries go out one at a time: the disk of /q is full" in answer.content.decode()


async def test_that_mail_is_held_after_a_restore_is_shown(user: User, hub: Hub) -> None:
    hub.snapshot["core"]["restored"] = "restored from the backup of 2026-11-21; it may have been delivered since"
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


def decoded(event: bytes) -> dict[str, Any]:
    kind, data = event.decode().rstrip("\n").split("\n")
    assert kind == "event: live"
    told: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return told


async def events_of(user: User, path: str = "/live/stream", **cookies: str) -> tuple[Any, AsyncIterator[bytes]]:
    client = AsyncClient()
    await client.aforce_login(user)
    client.cookies.load(cookies)
    answer = await client.get(path)
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
    event = decoded(await anext(events))
    assert event["number"] == hub.snapshot["number"]
    assert 'data-state="running">core: running<' in event["fragments"]["core-status"]
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
    assert decoded(await anext(events))["number"] == hub.snapshot["number"]  # still there, and looked at since

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


async def test_the_stream_renders_the_same_elements_as_the_page(user: User, hub: Hub) -> None:
    page = markup_of(await sync_to_async(lambda: signed_in(user).get("/"))())
    _, events = await events_of(user, "/live/overview")
    await anext(events)
    event = decoded(await anext(events))
    assert {"needs", "rates", "trouble", "lanes", "balance", "processes", "disks"} < event["fragments"].keys()
    for name in ("needs", "rates", "trouble", "lanes", "balance", "disks"):
        assert collapsed(event["fragments"][name]) in page, name
    assert event["pace"] == hub.snapshot["pace"]
    await events.aclose()  # type: ignore[attr-defined]


async def test_only_what_changed_is_sent_again_and_a_reader_that_missed_events_gets_all(user: User, hub: Hub) -> None:
    _, events = await events_of(user, "/live/overview")
    await anext(events)
    await anext(events)
    hub.snapshot["core"]["stalled"] = "the disk of /q is full"
    await hub._publish()
    fragments = decoded(await anext(events))["fragments"]
    assert "Deliveries go out one at a time: the disk of /q is full" in fragments["needs"]
    assert not fragments.keys() & {"rates", "lanes", "balance", "disks"}
    await hub._publish()
    await hub._publish()  # two at once: the reader has missed one
    assert {"rates", "lanes", "balance", "disks"} <= decoded(await anext(events))["fragments"].keys()
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_page_is_rendered_once_for_all_its_readers_and_in_the_time_zone_of_each(
    user: User, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[str] = []

    def part(state: LiveState) -> Part:
        rendered.append(str(timezone.get_current_timezone()))
        return live_part(state)

    monkeypatch.setattr(overview_views, "live_part", part)
    hub._readers_max = 40
    streams = [(await events_of(user, "/live/overview", waypost_zone="Asia/Tokyo"))[1] for _ in range(20)]
    streams += [(await events_of(user, "/live/overview"))[1] for _ in range(10)]
    for events in streams:
        await anext(events)
        await anext(events)
    assert sorted(rendered) == ["Asia/Tokyo", "UTC"]
    await hub._publish()
    for events in streams:
        await anext(events)
    assert sorted(rendered) == ["Asia/Tokyo", "Asia/Tokyo", "UTC", "UTC"]
    for events in streams:
        await events.aclose()  # type: ignore[attr-defined]


async def test_a_database_that_is_away_does_not_hide_that_the_core_is_gone(
    user: User, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: LiveState) -> Part:
        raise OperationalError("the database is away")

    monkeypatch.setattr(overview_views, "live_part", fails)
    _, events = await events_of(user, "/live/overview")
    await anext(events)
    await anext(events)
    hub.snapshot["core"] |= {"running": False, "words": "not running", "notice": "The core is not running."}
    await hub._publish()
    fragments = decoded(await anext(events))["fragments"]
    assert "core: not running" in fragments["core-status"]
    assert "The core is not running." in fragments["stale"]
    await events.aclose()  # type: ignore[attr-defined]


async def test_the_cells_of_destinations_are_those_of_their_page(user: User, hub: Hub) -> None:
    _, events = await events_of(user, "/destinations/live")
    await anext(events)
    event = decoded(await anext(events))
    name = "smtp:<b>.example"
    assert event["names"] == {name: True}
    assert "dead until" in event["fragments"][f"states@{name}"]
    assert "&lt;script&gt;x&lt;/script&gt;\\u202e" in event["fragments"][f"reply@{name}"]
    assert "<script>" not in json.dumps(event)
    await events.aclose()  # type: ignore[attr-defined]


async def test_one_destination_has_its_state_and_the_values_of_its_lines(user: User, hub: Hub) -> None:
    _, events = await events_of(user, f"/destinations/{quote('smtp:<b>.example')}/live")
    await anext(events)
    event = decoded(await anext(events))
    assert "dead until" in event["fragments"]["destination-states"]
    assert "Window / limit" in event["fragments"]["destination-cards"]
    assert event["destination"]["window"] == 5
    await events.aclose()  # type: ignore[attr-defined]
