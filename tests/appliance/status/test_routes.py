"""Routes: the table as configured, and where an address would go, before a core that answers what the test gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

ROUTES = {
    "routes": [{"pattern": "example.org", "transport": "smtp", "next_hop": "[192.0.2.1]:2525", "line": None}],
    "default": {"pattern": "*", "transport": "smtp", "next_hop": "", "line": None},
    "transports": ["smtp", "slow"],
}
FOUND: dict[str, Any] = {
    "address": "a@example.com", "transport": "smtp", "destination": "smtp:example.com", "next_hop": "example.com",
    "matched": "*", "refused": "", "dns_error": "",
    "hosts": [{"preference": 10, "name": "mx.example.com", "addresses": ["192.0.2.7", "2001:db8::7"]}],
}  # fmt: skip


@pytest.fixture
def core() -> Iterator[FakeCore]:
    with FakeCore({"routes": ROUTES, "resolve": FOUND}) as running:
        yield running


@pytest.fixture
def viewer() -> Client:
    user = User.objects.create_user("viewer", password="secret")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


def piece(client: Client, address: str) -> str:
    return markup_of(client.get("/routes/resolve/", {"address": address}, headers={"HX-Request": "true"}))


def test_a_route_of_a_file_is_shown_with_its_line(viewer: Client) -> None:
    row = {"pattern": "example.net", "transport": "slow", "next_hop": "", "line": 7, "file": "/etc/waypost/transport"}
    answers = {
        "routes": ROUTES | {"routes": [row], "more": 3},
        "resolve": FOUND | {"written": "/etc/waypost/senders:2"},
    }
    with FakeCore(answers):
        page = markup_of(viewer.get("/routes/"))
        assert "<bdi>/etc/waypost/transport</bdi>:7" in page
        assert "3 more routes not shown" in page
        assert "/etc/waypost/senders:2" in piece(viewer, "a@example.com")


def test_the_page_says_why_the_files_are_not_in_use(viewer: Client, core: FakeCore) -> None:
    assert "cannot be used" not in markup_of(viewer.get("/routes/"))
    faults = ["/etc/waypost/transport:3: '<b>' must have a route behind it"]
    core.answers["routes"] = ROUTES | {"faults": faults}
    page = markup_of(viewer.get("/routes/"))
    assert "The files of [route_maps] cannot be used." in page
    assert "The routes read before stay in use" in page
    assert "/etc/waypost/transport:3: &#x27;&lt;b&gt;&#x27; must have a route behind it" in page
    assert "example.org" in page
    core.answers["routes"] = ROUTES | {"faults": faults, "routes": [], "default": None}
    page = markup_of(viewer.get("/routes/"))
    assert "No routes are in force; mail waits until it is corrected." in page
    assert "/etc/waypost/transport:3:" in page
    assert "all others" not in page


def test_fallback_next_hops_are_shown_with_their_place(viewer: Client, core: FakeCore) -> None:
    assert "Fallback" not in markup_of(viewer.get("/routes/"))
    assert "Fallback" not in piece(viewer, "a@example.com")
    of_file = {"scope": "smtp:.b.example", "next_hops": [], "line": 3, "file": "/etc/waypost/fallback"}
    of_transport = {"scope": "smtp", "next_hops": ["[a.example]:587", "<b>.example"], "line": None}
    core.answers["routes"] = ROUTES | {"fallbacks": [of_transport, of_file], "more_fallbacks": 2}
    page = markup_of(viewer.get("/routes/"))
    assert "<bdi>[a.example]:587</bdi>, <bdi>&lt;b&gt;.example</bdi>" in page
    assert "<bdi>/etc/waypost/fallback</bdi>:3" in page
    assert "2 more rows not shown" in page
    place = {"fallback_scope": "smtp", "fallback_written": "/etc/waypost/fallback:9"}
    core.answers["resolve"] = FOUND | place | {"fallbacks": ["[a.example]:587", "<b>.example"]}
    found = piece(viewer, "a@example.com")
    assert "<bdi>[a.example]:587</bdi>, <bdi>&lt;b&gt;.example</bdi>" in found
    assert "<bdi>/etc/waypost/fallback:9</bdi>" in found
    core.answers["resolve"] = FOUND | place
    assert "none" in piece(viewer, "a@example.com")


def test_routes_are_shown_in_the_order_in_which_they_count(viewer: Client, core: FakeCore) -> None:
    text = markup_of(viewer.get("/routes/"))
    assert text.index("example.org") < text.index("all others")
    assert "[192.0.2.1]:2525" in text
    assert core.asked("resolve") == []


def test_an_address_is_followed_to_its_hosts(viewer: Client, core: FakeCore) -> None:
    text = piece(viewer, " a@example.com ")
    assert core.asked("resolve") == [{"address": "a@example.com"}]
    for words in ("mx.example.com", "192.0.2.7", "2001:db8::7", "/destinations/smtp:example.com/"):
        assert words in text
    assert "mx.example.com" in markup_of(viewer.get("/routes/", {"address": "a@example.com"}))


def test_trouble_with_dns_is_told_in_words(viewer: Client, core: FakeCore) -> None:
    core.answers["resolve"] = FOUND | {"hosts": [], "dns_error": "no answer in 5 s <b>"}
    assert "no answer in 5 s &lt;b&gt;" in piece(viewer, "a@example.com")
    core.answers["resolve"] = FOUND | {"destination": "", "transport": "", "refused": "Bad <i>address</i>", "hosts": []}
    text = piece(viewer, "<i>")
    assert "would go nowhere" in text
    assert "Bad &lt;i&gt;address" in text


def test_an_address_that_is_none_is_not_asked_for(viewer: Client, core: FakeCore) -> None:
    assert "1 to 512 characters" in piece(viewer, " ")
    assert "1 to 512 characters" in piece(viewer, "a" * 513)
    assert core.asked("resolve") == []


def test_a_core_that_says_no_is_heard(viewer: Client, core: FakeCore) -> None:
    core.answers["resolve"] = Refusal("resolve: address: Expected <b>")
    answer = viewer.get("/routes/resolve/", {"address": "a@b"}, headers={"HX-Request": "true"})
    assert answer.status_code == 409
    assert "Expected &lt;b&gt;" in markup_of(answer)
