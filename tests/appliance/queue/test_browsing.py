"""Filters as URLs have them, pages and their neighbours, and a page that is filled step by step."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.queue.amounts import duration_of, moment_of, size_of
from appliance.queue.browsing import Place
from appliance.queue.filters import FilterForm
from tests.appliance.fake_core import FakeCore
from tests.appliance.markup import markup_of
from tests.appliance.queue.test_export import ITEM


def test_amounts_are_read_as_people_write_them() -> None:
    assert [duration_of(each) for each in ("90", "15m", "15 min", "1d12h", "2W")] == [90, 900, 900, 129_600, 1_209_600]
    assert [size_of(each) for each in ("512", "20k", "1.5 MB")] == [512, 20_000, 1_500_000]
    assert moment_of("2026-11-21T10:00Z") == moment_of("2026-11-21T11:00+01:00") == 1_795_255_200
    for read, wrong in (
        (duration_of, "soon"),
        (duration_of, "0"),
        (size_of, "-1"),
        (moment_of, "nan"),
        (moment_of, "x"),
    ):
        with pytest.raises(ValueError, match=r"^Not a valid |^The (duration|size|time) must be "):
            read(wrong)


def test_a_filter_has_the_words_of_the_core_and_the_words_of_people() -> None:
    asked = FilterForm.of({"sender": "a@*", "older_than_s": "600", "larger_than": "1k", "lane": "x\u202ey"})
    assert asked.is_valid()
    assert asked.core == {"sender": "a@*", "lane": "x\u202ey", "older_than_s": 600.0, "larger_than_bytes": 1000}
    assert asked.words == "sender a@* · lane x\\u202ey · older than 600 · larger than 1k"
    assert dict(parse_qsl(asked.query))["older_than"] == "600"


def test_pages_know_the_way_back() -> None:
    third = Place().next("a:1").next("b:2")
    again = Place.of(dict(parse_qsl(third.query("sender=x"), keep_blank_values=True)))
    assert again == third
    second = again.previous
    assert second is not None
    assert (second.cursor, second.number) == ("a:1", 2)
    assert second.previous == Place()


@pytest.fixture
def client(db: None) -> Client:
    user = User.objects.create(username="viewer")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize(("away", "whole"), [(False, True), (True, False)])
def test_the_first_page_asks_once_and_reads_on_from_there(client: Client, away: bool, whole: bool) -> None:
    """Without the manager, or with a shard that does not answer, there may be more mail than what was read."""

    def answer(arguments: dict[str, Any]) -> Any:
        cursor = "retry.600:9" if not arguments["cursor"] else None
        return {
            "items": [ITEM],
            "cursor": cursor,
            "examined": 1000,
            "manager_away": away and cursor is None,
            "note": "<i>the manager is away</i>",
        }

    with FakeCore({"list": answer}) as core:
        text = markup_of(client.get("/queue/?sender=*"))
        assert len(core.requests) == 1
        assert "examined so far" in text
        assert "have=1&amp;examined=1000&amp;from=retry.600%3A9" in text
        assert "&lt;i&gt;the manager is away" in text
        piece = markup_of(client.get("/queue/rows/?sender=*&have=1&examined=1000&from=retry.600:9"))
    assert core.asked("list")[1] == {"filter": {"sender": "*"}, "cursor": "retry.600:9", "limit": 99}
    assert ("2 messages: all that match<" in piece, "2 messages<" in piece) == (whole, not whole)
    assert ("data-whole" in piece) == whole
    assert "2\u202f000 records examined" in piece
    assert piece.count("<tr role") == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("lane=hold", "No message is held"), ("lane=deleted", "No deleted message can be restored"),
        ("sender=x@*", "No message matches"), ("", "No mail was found"),
    ],
)  # fmt: skip
def test_a_list_without_a_shard_is_not_said_to_be_empty(client: Client, query: str, words: str) -> None:
    """law: silent-is-unknown."""
    page: dict[str, Any] = {
        "items": [],
        "cursor": None,
        "examined": 7,
        "manager_away": True,
        "note": "shard 3 at c does not answer",
    }
    with FakeCore({"list": page | {"unanswered": "shard 3 at c does not answer"}}) as core:
        assert f"<h2>{words} in the shards that answer</h2>" in markup_of(client.get(f"/queue/?{query}"))
        core.answers["list"] = page
        assert "in the shards that answer" not in markup_of(client.get(f"/queue/?{query}"))


def test_nothing_hostile_is_markup(client: Client) -> None:
    text = "<img src=x>\u202e\x1b"
    item = (
        ITEM
        | dict.fromkeys(("sender", "reason", "lane"), text)
        | {key: [text] for key in ("recipients", "destinations")}
    )
    with FakeCore({"list": {"items": [item], "cursor": None, "examined": 1, "manager_away": False, "note": ""}}):
        page = markup_of(client.get("/queue/?reason=<img src=x>%E2%80%AE"))
    assert "<img src=x" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page.replace('value="&lt;img src=x&gt;\u202e"', "")  # what was typed stays in its field
