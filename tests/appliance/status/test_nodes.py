"""The page of the nodes: words and colours of each state, and that nothing old looks as if it were of now."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from appliance.audit.models import Entry
from tests.appliance.fake_core import FakeCore

NODE = {
    "name": "mx1",
    "state": "open",
    "alive": True,
    "seen_s_ago": 0.4,
    "since": 1.0,
    "shards": ["north"],
    "is_in": True,
}
SHARD = {"name": "north", "number": 3, "state": "open", "node": "mx1", "epoch": 7, "renewed_s_ago": 1.0}
STANDBY = {
    "name": "db2", "address": "192.0.2.2", "state": "streaming", "sync_state": "sync", "behind_bytes": 0, "behind_s": None,
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "is_on": True, "node": "mx1", "age_s": 1.0, "is_current": True, "fault": "", "server": "db1:5432",
    "nodes": [NODE], "shards": [SHARD], "standbys": [STANDBY], "giver": "mx1",
}  # fmt: skip


@pytest.fixture
def client(db: None) -> Client:
    user = User.objects.create_user("viewer", password="secret")
    user.groups.add(Group.objects.get(name="viewer"))
    client = Client()
    client.force_login(user)
    return client


def badges(client: Client, **change: Any) -> list[tuple[str, str]]:
    """The class and the words of each badge on the page."""
    with FakeCore({"nodes": ANSWER | change}):
        text = client.get("/nodes/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in text
    return re.findall(r'<span class="badge ([a-z]*)">([^<]*)</span>', text)


def test_all_is_well(client: Client) -> None:
    assert badges(client) == [("good", "lives"), ("good", "takes mail"), ("good", "synchronous")]


@pytest.mark.parametrize(
    ("change", "badge"),
    [
        ({"alive": False, "seen_s_ago": 40.0}, ("bad", "silent")),
        ({"alive": False, "seen_s_ago": None}, ("warn", "never seen")),
        ({"state": "drained"}, ("warn", "lives, drained")),
    ],
)
def test_a_node(client: Client, change: dict[str, Any], badge: tuple[str, str]) -> None:
    assert badges(client, nodes=[NODE | change])[0] == badge


def test_why_this_node_does_not_do_what_it_is_asked_is_said(client: Client) -> None:
    with FakeCore({"nodes": ANSWER | {"troubles": ["the drain waits: <b> did not take shard x"]}}):
        text = client.get("/nodes/").content.decode()
    assert "The drain waits: &lt;b&gt; did not take shard x." in text


def test_why_another_node_does_not_do_what_it_is_asked_is_said_as_its_own_words(client: Client) -> None:
    troubles = ["the drain waits: <b> did not take shard x"]
    nodes = [NODE | {"troubles": ["of this node, and said once"]}, NODE | {"name": "mx2", "troubles": troubles}]
    with FakeCore({"nodes": ANSWER | {"nodes": nodes}}):
        text = client.get("/nodes/").content.decode()
    assert "Node mx2 says: the drain waits: &lt;b&gt; did not take shard x." in text
    assert "said once" not in text


def test_a_drain_that_waits_says_for_what(client: Client) -> None:
    drains, other = NODE | {"state": "draining"}, NODE | {"name": "mx2", "shards": []}
    waits = ("bad", "draining, waits: no other node lives and takes shards")
    for others, badge in (
        ([], waits),
        ([other | {"alive": False}], waits),
        ([other | {"state": "draining"}], waits),
        ([other], ("warn", "lives, draining")),
    ):
        assert badges(client, nodes=[drains, *others])[0] == badge
    assert badges(client, nodes=[drains | {"shards": []}])[0] == ("warn", "lives, draining")


@pytest.mark.parametrize(
    ("change", "badge"),
    [
        ({"renewed_s_ago": 9.0}, ("bad", "its owner is silent")),
        ({"moves_to": "mx2"}, ("warn", "moving to mx2")),
        ({"moves_to": "mx2", "handed_over": True, "renewed_s_ago": 20.0}, ("warn", "handed over to mx2")),
        ({"state": "draining"}, ("warn", "delivers, takes no mail")),
        ({"state": "held"}, ("warn", "held")),
        ({"state": "held", "renewed_s_ago": 900.0}, ("warn", "held")),
        ({"state": "closed", "node": "", "renewed_s_ago": 90_000.0}, ("", "closed")),
    ],
)
def test_a_shard(client: Client, change: dict[str, Any], badge: tuple[str, str]) -> None:
    assert badges(client, shards=[SHARD | change])[1] == badge


def test_an_old_look_says_of_nothing_that_it_lives(client: Client) -> None:
    assert set(badges(client, is_current=False, age_s=700.0, fault="no server answers")) == {("warn", "unknown")}
    with FakeCore({"nodes": ANSWER | {"is_current": False, "age_s": 700.0, "fault": "no server <b> answers"}}):
        text = re.sub(r"</?(strong|bdi)>", "", " ".join(client.get("/nodes/").content.decode().split()))
    assert "Nothing is known for 11 min 40 s. No server &lt;b&gt; answers. Below is" in text
    assert text.count("11 min 40 s ago") + text.count("11 min 41 s ago") == 2  # not: 0 s ago
    assert "db1:5432 took the commits." in text
    assert "Which node divides the limits of destinations is unknown." in text


@pytest.mark.parametrize(
    ("standbys", "words"), [([], "No standby is connected: commits wait"), (None, "Run GRANT pg_monitor")]
)
def test_servers_that_are_missing_or_not_visible(client: Client, standbys: Any, words: str) -> None:
    with FakeCore({"nodes": ANSWER | {"standbys": standbys}}):
        assert words in " ".join(client.get("/nodes/").content.decode().split())


def test_one_node_says_that_it_is_one_and_has_no_section(client: Client) -> None:
    off = {"is_on": False, "nodes": [], "shards": [], "standbys": None, "server": "", "giver": ""}
    with FakeCore({"nodes": ANSWER | off}):
        text = client.get("/nodes/").content.decode()
    assert "This is one node" in text
    assert 'href="/nodes/"' not in text  # nor in the navigation
    assert client.get("/nodes/").status_code == 503  # the core is away


@pytest.fixture
def operator(db: None) -> Client:
    user = User.objects.create_user("olga", password="secret")
    user.groups.add(Group.objects.get(name="operator"))
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize(
    ("path", "given", "order"),
    [
        ("shards/north/move", {"node": "mx2"}, {"order": "move", "node": "mx2", "shard": "north"}),
        ("mx1/drain", {}, {"order": "drain", "node": "mx1"}),
        ("mx1/resume", {}, {"order": "resume", "node": "mx1"}),
    ],
)
def test_an_order_has_a_reason_and_is_in_the_audit_log(
    operator: Client, path: str, given: dict[str, str], order: dict[str, str]
) -> None:
    two = {"nodes": [NODE, NODE | {"name": "mx2"}, NODE | {"name": "mx3", "alive": False}]}
    with FakeCore({"nodes": ANSWER | two, "node_order": order | {"shard": order.get("shard", "")}}) as core:
        page = operator.get("/nodes/").content.decode()
        assert f"/nodes/{path}/" in page or path == "mx1/resume"
        dialog = operator.get(f"/nodes/{path}/", headers={"HX-Request": "true"}).content.decode()
        assert ">mx3<" not in dialog
        assert operator.post(f"/nodes/{path}/", given | {"why": ""}).status_code == 422
        assert core.asked("node_order") == []
        assert operator.post(f"/nodes/{path}/", given | {"why": "maintenance"}).status_code == 302
        assert core.asked("node_order") == [order]
    entry = Entry.objects.exclude(action__startswith="sign_in").get()
    assert (entry.who, entry.why, entry.after) == ("olga", "maintenance", order)


def test_nothing_is_ordered_by_a_viewer_or_by_an_old_look(client: Client, operator: Client) -> None:
    with FakeCore({"nodes": ANSWER}) as core:
        assert "Move…" not in client.get("/nodes/").content.decode()
        assert client.post("/nodes/mx1/drain/", {"why": "maintenance"}).status_code == 403
        core.answers["nodes"] = ANSWER | {"is_current": False, "age_s": 60.0}
        assert "Move…" not in operator.get("/nodes/").content.decode()
        assert core.asked("node_order") == []
