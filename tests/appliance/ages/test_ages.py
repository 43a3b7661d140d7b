"""The ages: counts become a heat map whose cells lead into the queue; a count that takes long is shown as it goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.queue.ages import heat_map, short
from mailcore.control.protocol.messages import AgesPart
from mailcore.lookup.ages import BOUNDS_S
from tests.appliance.fake_core import FakeCore, Parts

pytestmark = pytest.mark.django_db

HOSTILE = "smtp:<b>x</b>\u202e.example"
ANSWER: dict[str, Any] = {
    "buckets_s": [300, 600, 1200, None],
    "rows": [
        {"destination": "smtp:a.example", "counts": [1, 10, 0, 1000], "total": 1011},
        {"destination": HOSTILE, "counts": [0, 0, 2, 0], "total": 2},
        {"destination": "others", "counts": [5, 0, 0, 0], "total": 5},
    ],
    "total": 1014,
    "counts": [4, 9, 1, 1000],
    "by_state": {"queued": 7, "active": 0, "deferred": 1010, "held": 0},
    "oldest": {
        "queue_id": "0123456789ABC",
        "arrived_at": 5.0,
        "sender": "<i>",
        "destination": "smtp:a.example",
        "state": "deferred",
    },
    "as_of": time.time(),
    "took_s": 0.5,
    "examined": 2_000,
    "note": "",
    "done": True,
}
EMPTY = ANSWER | {"rows": [], "total": 0, "counts": [0, 0, 0, 0], "oldest": None}
PROGRESS = EMPTY | {"buckets_s": [], "counts": [], "by_state": {}, "examined": 900, "total": 500, "done": False}


def table(answer: dict[str, Any]) -> AgesPart:
    return msgspec.convert(answer, AgesPart)


@pytest.fixture
def viewer() -> Client:
    user = User.objects.create_user("viewer", password="secret")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def core() -> Iterator[FakeCore]:
    with FakeCore({"ages": ANSWER, "size": {"messages": 2_000}}) as running:
        yield running


def query_of(link: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(link).query)


def test_a_cell_leads_to_the_messages_it_counts() -> None:
    line = heat_map(table(ANSWER), "/queue/").lines[0]
    assert [query_of(cell.link) for cell in line.cells] == [
        {"destination": ["smtp:a.example"], "younger_than_s": ["300"]},
        {"destination": ["smtp:a.example"], "older_than_s": ["300"], "younger_than_s": ["600"]},
        {"destination": ["smtp:a.example"], "older_than_s": ["600"], "younger_than_s": ["1200"]},
        {"destination": ["smtp:a.example"], "older_than_s": ["1200"]},
    ]
    assert query_of(line.total.link) == {"destination": ["smtp:a.example"]}


def test_colours_go_by_the_logarithm_of_the_share() -> None:
    heats = heat_map(table(ANSWER), "/queue/").lines[0].cells
    assert [cell.heat for cell in heats] == [1, 3, 0, 7]
    alone = ANSWER | {"rows": [{"destination": "smtp:a", "counts": [0, 1, 0, 0], "total": 1}]}
    assert [cell.heat for cell in heat_map(table(alone), "/").lines[0].cells] == [0, 7, 0, 0]
    assert heat_map(table(EMPTY), "/").lines == []


def test_the_first_row_counts_each_message_of_the_queue_once() -> None:
    sums = heat_map(table(ANSWER), "/queue/").sums
    assert [cell.count for cell in sums.cells] == [4, 9, 1, 1000]
    assert sums.total.count == sum(cell.count for cell in sums.cells) == 1014
    assert query_of(sums.cells[1].link) == {"older_than_s": ["300"], "younger_than_s": ["600"]}


def test_those_without_a_name_lead_nowhere() -> None:
    others = heat_map(table(ANSWER), "/queue/").lines[2]
    assert {cell.link for cell in others.cells} == {""}


def test_a_column_is_named_for_its_end_by_a_round_number() -> None:
    """The core's own bounds: a heading of 5.33 h would be read twice."""
    headings = [short(high, 0) for high in BOUNDS_S]
    assert headings == [
        "5 min", "10 min", "20 min", "40 min", "1 h", "2 h", "4 h", "8 h", "16 h", "1 d", "2 d", "5 d",
    ]  # fmt: skip
    assert short(None, BOUNDS_S[-1]) == "> 5 d"


def test_the_page_shows_numbers_and_strangers_names_harmlessly(viewer: Client, core: FakeCore) -> None:
    text = viewer.get("/queue/ages/").content.decode()
    assert "1\u202f014" in text
    assert "/queue/?destination=smtp%3Aa.example&amp;older_than_s=1200" in text
    assert "smtp:&lt;b&gt;x&lt;/b&gt;\\u202e.example" in text
    assert "<b>x" not in text
    assert "<i>" not in text
    assert text.count("hx-trigger") == 1  # that of the palette; nothing more is asked
    assert core.asked("ages") == [{"refresh": False}]


def test_a_count_that_takes_long_shows_how_far_it_is_and_the_piece_asks_on(viewer: Client, core: FakeCore) -> None:
    def slowly(_: dict[str, Any]) -> Parts:
        time.sleep(0.35)  # longer than the page's patience; then it has the first part
        return Parts([PROGRESS, ANSWER])

    core.answers["ages"] = slowly
    text = viewer.get("/queue/ages/?refresh=1").content.decode()
    assert "Counting: 500 of about 2\u202f000 messages" in text
    assert 'width="25.0"' in text
    assert 'hx-get="/queue/ages/?refresh=1"' in text  # a count anew goes on as one
    assert core.asked("ages") == [{"refresh": True}]
    core.answers["ages"] = ANSWER
    piece = viewer.get("/queue/ages/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in piece
    assert "1\u202f014" in piece


def test_an_empty_queue_is_said_to_be_empty(viewer: Client, core: FakeCore) -> None:
    core.answers["ages"] = EMPTY
    assert "The queue is empty." in viewer.get("/queue/ages/").content.decode()


def test_without_a_core_the_page_says_so(viewer: Client) -> None:
    assert viewer.get("/queue/ages/").status_code == 503
