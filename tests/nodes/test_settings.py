"""Real nodes that have joined: what is set live, and managed, at one of them is in force at all.

Proves law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.faults import Code
from tests.eventually import eventually
from tests.nodes.joined import Joined, JoinedNode, joined
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink, sinking

SCOPE = "smtp:example.org"


@pytest.fixture
async def sink() -> AsyncIterator[CountingSink]:
    async with sinking() as sink:
        yield sink


@pytest.fixture
async def nodes(cluster: Cluster, tmp_path: Path, sink: CountingSink) -> AsyncIterator[Joined]:
    async with joined(tmp_path, cluster, sink, names="ab") as nodes:
        for node in nodes.nodes.values():
            await has_taken(node)
        yield nodes


async def call(node: JoinedNode, operation: str, why: str = "", **arguments: Any) -> Any:
    async with node.client() as client:
        return await client.call(operation, arguments, why=why)


async def has_taken(node: JoinedNode) -> None:
    """Until the node has all that the database has."""

    async def taken() -> bool:
        _, out, _ = await node.waypost("node", "settings", "--json")
        return f'"name": "{node.name}"' in out and '"behind": true' not in out

    await eventually(taken, lambda: f"{node.name} has the settings of all nodes\n{node._tail()}")


async def value(node: JoinedNode, parameter: str, scope: str = SCOPE) -> Any:
    """What is in force: (value, end)."""
    try:
        scopes = (await call(node, "transports", destination=scope))["scopes"][scope]
    except ControlError:
        return None  # it begins again
    found = scopes.get(parameter)
    return None if found is None else (found["value"], found.get("until"))


async def until_value(node: JoinedNode, parameter: str, wanted: Any) -> None:
    async def so() -> bool:
        return bool(await value(node, parameter) == wanted)

    await eventually(so, lambda: f"{parameter} is {wanted} at {node.name}\n{node._tail()}")


async def limit(node: JoinedNode) -> Any:
    """[receiver] recipient_limit, if it is in force; else None."""
    try:
        known = await call(node, "settings")
    except ControlError:
        return None
    if not known["in_force"]:
        return None
    return next((each["value"] for each in known["settings"] if each["key"] == ["receiver", "recipient_limit"]), 0)


async def until_limit(node: JoinedNode, wanted: int) -> None:
    async def so() -> bool:
        return bool(await limit(node) == wanted)

    await eventually(so, lambda: f"recipient_limit is {wanted} at {node.name}\n{node._tail()}")


async def manage(node: JoinedNode, wanted: int, why: str = "") -> Any:
    revision = (await call(node, "settings"))["revision"]
    changes = [{"key": ["receiver", "recipient_limit"], "value": wanted}]
    return await call(node, "settings_change", why, changes=changes, revision=revision)


async def test_law_settings_a_value_set_live_at_one_node_is_in_force_at_all(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    await call(a, "set", "busy", scope=SCOPE, parameter="destination_rate_delay", value=2)
    await until_value(b, "destination_rate_delay", (2.0, None))
    until = round(time.time() + 3600, 3)
    await call(b, "set", scope=SCOPE, parameter="destination_rate_delay", value=5, until=until)
    await eventually(lambda: is_timed(a, 5.0, until), "the value for an hour at a")
    await call(a, "suspend", destination=SCOPE)
    await until_value(b, "suspended_until", (None, None))
    await b.kill("manager")
    assert await value(b, "suspended_until") == (None, None), "it survives a restart"
    await call(b, "resume", destination=SCOPE)
    await until_value(a, "suspended_until", None)
    await call(a, "set", scope=SCOPE, parameter="destination_rate_delay", value=None)
    await until_value(b, "destination_rate_delay", (0.0, None))


async def is_timed(node: JoinedNode, wanted: float, until: float) -> bool:
    found = await value(node, "destination_rate_delay")
    return found is not None and found[0] == wanted and found[1] is not None and abs(found[1] - until) < 1


async def test_law_settings_a_managed_change_at_one_node_is_in_force_at_all_and_is_undone_at_another(
    nodes: Joined,
) -> None:
    a, b = nodes.nodes.values()
    await manage(a, 33, "too many")
    await until_limit(b, 33)
    await until_limit(a, 33)
    await manage(b, 44)
    await until_limit(a, 44)
    await until_limit(b, 44)
    states = (await call(a, "settings_history"))["states"]
    assert [(each["node"], each["why"]) for each in states][:2] == [("b", ""), ("a", "too many")]
    revision = (await call(a, "settings"))["revision"]
    await call(a, "settings_return", to=states[1]["revision"], revision=revision)
    await until_limit(b, 33)
    await until_limit(a, 33)
    await nodes.accept("a", 3)
    await nodes.takes_more(3)


async def test_law_settings_of_two_administrators_at_two_nodes_one_is_told_what_the_other_did(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    both = await asyncio.gather(manage(a, 33, "first"), manage(b, 44, "second"), return_exceptions=True)
    (made,) = [index for index, each in enumerate(both) if isinstance(each, dict)]
    (refused,) = [each for each in both if isinstance(each, ControlError)]
    assert refused.code is Code.CONFLICT
    assert "changed" in str(refused)
    for node in (a, b):
        await until_limit(node, (33, 44)[made])
    await manage(b, 55)
    await until_limit(a, 55)


async def test_a_node_that_was_down_takes_over_what_was_changed(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    b.stop()
    await call(a, "set", scope=SCOPE, parameter="destination_rate_delay", value=2)
    await manage(a, 33)
    await until_limit(a, 33)
    await manage(a, 44)
    await until_limit(a, 44)
    status, out, _ = await a.waypost("node", "settings")
    assert status == 1
    assert "behind" in out
    await b.start()
    await until_limit(b, 44)
    await until_value(b, "destination_rate_delay", (2.0, None))
    assert len((await call(b, "settings_history"))["states"]) == 3
    await has_taken(b)


async def test_managers_and_what_watches_are_killed_while_values_are_set(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    for number in range(1, 7):
        setting = asyncio.create_task(set_whatever_happens(a, number))
        await asyncio.sleep(0.02 * number)
        for node, name in ((a, "manager"), (b, "manager"), (b, "spare")):
            with contextlib.suppress(ProcessLookupError, KeyError):  # it is gone since the last turn
                os.kill(node.processes()[name], signal.SIGKILL)
        await setting
        for node in (a, b):
            await node.ready()
    await eventually(lambda: are_equal(a, b), "the same value at both nodes")
    await set_whatever_happens(a, 9)
    await until_value(b, "destination_rate_delay", (9.0, None))
    for node in (a, b):
        await has_taken(node)


async def set_whatever_happens(node: JoinedNode, number: int) -> None:
    """Once: its outcome may be unknown. The one before may be there, and not be known here yet: then it is asked again."""
    refused = ""
    try:
        await call(node, "set", scope=SCOPE, parameter="destination_rate_delay", value=number)
    except ControlError as error:
        if error.code is Code.CONFLICT:
            refused = str(error)
        elif error.code not in (Code.UNAVAILABLE, Code.OUTCOME_UNKNOWN):
            raise
    if refused:
        assert f"was changed meanwhile by root (uid {os.getuid()}) at node {node.name}; look again" in refused
        await set_whatever_happens(node, number)


async def are_equal(a: JoinedNode, b: JoinedNode) -> bool:
    found = [await value(node, "destination_rate_delay") for node in (a, b)]
    return found[0] is not None and found[0] == found[1]


async def test_with_the_database_away_changes_are_refused_and_nothing_is_half_done(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    await manage(a, 33)
    for node in (a, b):
        await until_limit(node, 33)
    for node in (a, b):  # the manager, too, has begun again behind the reload
        await until_value(node, "destination_rate_delay", (0.0, None))
    primary = nodes.cluster.primary
    primary.kill()
    try:
        await are_refused(a, b)
    finally:
        primary.start()
    await manage_again(b, 44)
    await until_limit(a, 44)


async def are_refused(a: JoinedNode, b: JoinedNode) -> None:
    for operation, arguments in (
        ("set", {"scope": SCOPE, "parameter": "destination_rate_delay", "value": 7}),
        ("suspend", {"destination": SCOPE}),
    ):
        with pytest.raises(ControlError, match="nothing was changed") as refused:
            await call(a, operation, **arguments)
        assert refused.value.code is Code.UNAVAILABLE
    with pytest.raises(ControlError, match="nothing was changed"):
        await manage(b, 44)
    for node in (a, b):
        scopes = (await call(node, "transports", destination=SCOPE))["scopes"][SCOPE]
        assert scopes["destination_rate_delay"]["value"] == 0
        assert "suspended_until" not in scopes
        assert await limit(node) == 33
    await eventually(lambda: says_that_it_is_away(a), "the reason is written down")


async def says_that_it_is_away(node: JoinedNode) -> bool:
    return "the database of the nodes cannot be asked" in (await call(node, "settings"))["nodes"]


async def manage_again(node: JoinedNode, wanted: int) -> None:
    async def done() -> bool:
        try:
            await manage(node, wanted)
        except ControlError as error:
            if error.code not in (Code.UNAVAILABLE, Code.CONFLICT):
                raise
            return False
        return True

    await eventually(done, "a change behind the return of the database", look_every_s=0.5)


async def test_a_hand_edit_stays_and_is_shown_until_a_person_decides(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    managed = b.home / "managed.toml"
    managed.write_text("[receiver]\nrecipient_limit = 77\n")
    await manage(a, 33)
    await until_limit(a, 33)
    await eventually(lambda: is_shown(a, "was changed by hand"), "the edit at a")
    assert managed.read_text() == "[receiver]\nrecipient_limit = 77\n"
    with pytest.raises(ControlError, match="was changed by hand"):
        await manage(b, 44)
    _, out, err = await b.waypost("settings", "list")
    assert "this node has other settings than the others, or may have: " in out + err
    _, out, err = await b.waypost("status")
    assert "settings of all nodes: " in out + err
    _, out, err = await b.waypost("doctor")
    assert "was changed by hand" in " ".join((out + err).split())
    await b.does("node", "settings", "--give", "managed", "--why", "it is right")
    await until_limit(a, 77)
    await until_limit(b, 77)
    await eventually(lambda: is_shown(a, "as all nodes"), "that all have the same")


async def is_shown(node: JoinedNode, words: str) -> bool:
    _, out, _ = await node.waypost("node", "settings")
    return words in " ".join(out.split())


async def test_what_is_each_nodes_own_is_refused(nodes: Joined) -> None:
    a = nodes.nodes["a"]
    changes = [{"key": ["receiver", "hostname"], "value": "mail.example.org"}]
    revision = (await call(a, "settings"))["revision"]
    answer = await call(a, "settings_change", changes=changes, revision=revision)
    assert not answer["applied"]
    (fault,) = answer["faults"]
    assert "is each node's own" in fault["reason"]
    listen = next(each for each in (await call(a, "settings"))["settings"] if each["key"] == ["receiver", "listen"])
    assert "each node's own" in listen["fixed"]


async def test_a_key_that_one_node_keeps_is_used_by_all(nodes: Joined) -> None:
    a, b = nodes.nodes.values()
    made = await call(a, "kept_make", kind="dkim", domain="example.org", selector="s1", algorithm="ed25519")
    used = await call(a, "kept_use", file=made["file"], place=["dkim"])
    revision = (await call(a, "settings"))["revision"]
    await call(a, "settings_change", changes=used["changes"], revision=revision)

    async def signs() -> bool:
        try:
            known = await call(b, "settings")
        except ControlError:
            return False
        return known["in_force"] and any(each["key"] == ["dkim"] for each in known["settings"])

    await eventually(signs, lambda: f"the key at b\n{b._tail()}")
    kept = [each.read_bytes() for node in (a, b) for each in (node.home / "kept" / "dkim").iterdir()]
    assert len(kept) == 2
    assert kept[0] == kept[1]
