"""Filters of the portal: an empty field limits nothing, and the form shows an error beside each value that is not allowed."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.queue.ages import _link
from appliance.queue.change_forms import must_be_typed
from appliance.queue.filters import AMOUNTS, FIELDS
from appliance.queue.models import Change
from appliance.reports.tables import link_of
from mailcore.faults import Code
from mailcore.lookup.pattern import address_matcher, text_matcher
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of
from tests.appliance.queue.test_export import ITEM

PAGE = {"items": [ITEM], "cursor": None, "examined": 1, "manager_away": False, "note": ""}
BLANK = (" ", "\t", "\u3000", "  \n")
ADDRESS = 'we?rd*"\\@example.org'


@pytest.fixture
def client(db: None) -> Client:
    user = User.objects.create(username="operator")
    user.groups.add(Group.objects.get(name="operator"))
    client = Client()
    client.force_login(user)
    return client


def told(client: Client, core: FakeCore, field: str, value: str) -> str:
    """What the page says at the field; the core is not asked."""
    answer = client.get("/queue/", {field: value})
    page = markup_of(answer)
    assert answer.status_code == 422
    assert core.requests == []
    assert f'aria-describedby="id_{field}-error"' in page
    return page.partition(f'id="id_{field}-error"')[2].partition("</ul>")[0]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", BLANK)
def test_blanks_are_not_an_empty_field(client: Client, field: str, value: str) -> None:
    with FakeCore({"list": PAGE, "change_matching": Refusal("never asked")}) as core:
        assert "blank" in told(client, core, field, value)
        for url in ("/queue/rows/", "/queue/csv/"):
            assert client.get(url, {field: value}).status_code == 400
        begun = client.post("/queue/changes/count/", {"operation": "delete", field: value})
        assert begun.status_code == 409
        assert core.requests == []
    assert Change.objects.count() == 0


@pytest.mark.parametrize("field", FIELDS)
def test_a_nul_is_told_at_its_field(client: Client, field: str) -> None:
    with FakeCore({"list": PAGE}) as core:
        assert told(client, core, field, "a\0b")
        assert told(client, core, field, "\0")


@pytest.mark.parametrize(("field", "alias"), [(name, alias) for name, (alias, _) in AMOUNTS.items()])
@pytest.mark.parametrize("value", ["0", " ", "-1", "nan", "inf", "1e400"])
def test_an_amount_that_limits_nothing_is_told_at_its_field(client: Client, field: str, alias: str, value: str) -> None:
    with FakeCore({"list": PAGE}) as core:
        assert told(client, core, field, value)
        assert client.get("/queue/", {alias: value}).status_code == 422
        assert core.requests == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sender", "a\\"), ("recipient", "a\\b"), ("destination", "\\"), ("lane", "hold\\"), ("sender", "<a@example.org>"),
        ("recipient", "<>"), ("reason", "\x1b[2J"),
    ],
)  # fmt: skip
def test_what_is_not_a_pattern_is_told_at_its_field(client: Client, field: str, value: str) -> None:
    with FakeCore({"list": PAGE}) as core:
        assert told(client, core, field, value)


def test_empty_fields_are_not_given_and_blanks_around_a_value_do_not_matter(client: Client) -> None:
    with FakeCore({"list": PAGE}) as core:
        assert client.get("/queue/", dict.fromkeys(FIELDS, "")).status_code == 200
        assert client.get("/queue/", {"sender": " a@example.org "}).status_code == 200
    assert [each["filter"] for each in core.asked("list")] == [{}, {"sender": "a@example.org"}]


def test_a_field_that_is_given_twice_is_told(client: Client) -> None:
    """Otherwise the last one would count, although it may be empty."""
    with FakeCore({"list": PAGE}) as core:
        for query in ("sender=a@example.org&sender=", "sender=a@example.org&sender=b@example.org", "lane=&lane=hold"):
            answer = client.get(f"/queue/?{query}")
            assert answer.status_code == 422
            assert f'id="id_{query.partition("=")[0]}-error"' in markup_of(answer)
        assert core.requests == []
        assert client.get("/queue/?sender=&sender=").status_code == 200


def test_a_lane_that_does_not_exist_is_told_at_its_field(client: Client) -> None:
    refusal = Refusal("filter.lane: there is no lane 'x'; there are hold", Code.INVALID, "filter.lane")
    with FakeCore({"list": refusal}):
        answer = client.get("/queue/", {"lane": "x"})
    page = markup_of(answer)
    assert answer.status_code == 422
    assert "There is no lane" in page.partition('id="id_lane-error"')[2].partition("</ul>")[0]


def test_another_refusal_is_not_taken_for_one_of_the_filter(client: Client) -> None:
    with FakeCore({"list": Refusal("there is no such cursor", Code.INVALID, "cursor")}):
        assert client.get("/queue/", {"lane": "x"}).status_code == 409


def test_a_filter_that_is_not_valid_counts_nothing_and_names_the_field(client: Client) -> None:
    with FakeCore({}) as core:
        answer = client.post("/queue/changes/count/", {"operation": "delete", "sender": "a\\"})
        assert answer.status_code == 409
        assert "sender" in markup_of(answer)
        assert core.requests == []


def test_the_number_is_asked_for_when_the_filter_limits_nothing() -> None:
    filters: list[dict[str, Any]] = [{}, {"sender": "*"}, {"sender": "*", "lane": "**"}]
    for filter_ in filters:
        assert must_be_typed(Change(matched=1, filter=filter_))
    filters = [{"sender": "<>"}, {"sender": "*@*"}, {"sender": "*", "older_than_s": 5.0}, {"reason": "*"}]
    for filter_ in filters:
        assert not must_be_typed(Change(matched=1, filter=filter_))


def test_the_empty_sender_is_shown_with_brackets(client: Client) -> None:
    with FakeCore({"list": PAGE | {"items": [ITEM | {"sender": ""}]}}) as core:
        page = markup_of(client.get("/queue/", {"sender": "<>"}))
    assert core.asked("list")[0]["filter"] == {"sender": "<>"}
    assert "&lt;&gt;" in page.partition("<tbody")[2]


def test_a_link_to_mail_selects_this_address_or_destination_alone() -> None:
    def given(url: str, name: str) -> str:
        return parse_qs(urlsplit(url).query)[name][0]

    destination = "smtp:we?rd*@[192.0.2.1]"
    for url in (
        link_of("destination", {"destination": destination}),
        link_of("top_destination", {"top_destination": destination}),
        _link("/queue/", destination),
    ):
        matches = text_matcher(given(url, "destination"))
        assert matches(destination)
        assert not matches(destination.replace("*", "xx"))
    for column in ("sender", "recipient"):
        matches = address_matcher(given(link_of(column, {column: ADDRESS}), "q"))
        assert matches(ADDRESS)
        assert not matches(ADDRESS.replace("*", "xx"))
    assert given(link_of("sender", {"sender": ""}), "sender") == "<>"


def search(client: Client, typed: str, **more: str) -> tuple[str, list[str]]:
    """The page of a search, and the kinds that it asks for."""
    page = markup_of(client.get("/queue/search/?" + urlencode({"q": typed, **more})))
    return page, [kind for kind in ("recipient", "sender", "message_id") if f'id="reading-{kind}"' in page]


def test_a_search_looks_only_where_the_text_can_be(client: Client) -> None:
    assert search(client, "a@example.org")[1] == ["recipient", "sender", "message_id"]
    assert search(client, "<one@example.org>")[1] == ["message_id"]
    assert search(client, "<>")[1] == ["sender"]
    assert search(client, "a@example.org", **{"in": "sender"})[1] == ["sender"]


@pytest.mark.parametrize(
    ("typed", "kind"), [("a\\", ""), ("a\0b", ""), (" ", ""), ("<>", "recipient"), ("a\\", "sender")]
)
def test_a_search_says_at_its_field_what_is_wrong(client: Client, typed: str, kind: str) -> None:
    page, kinds = search(client, typed, **{"in": kind})
    assert kinds == []
    assert 'id="q-error"' in page
    with FakeCore({}) as core:
        piece = client.get("/queue/search/found/", {"q": typed, "in": kind or "sender"})
        assert piece.status_code == 400
        assert core.requests == []
