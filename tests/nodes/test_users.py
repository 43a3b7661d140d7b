"""Real nodes that have joined: a user who is made at one of them logs in at all, and a removed one at none.

Proves law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.client import ControlError
from mailcore.faults import Code
from mailcore.users.user_file import read_users
from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_mail_users import PASSWORD, can_log_in
from tests.eventually import eventually
from tests.nodes.joined import Joined, JoinedNode, joined
from tests.nodes.test_settings import call, has_taken, is_shown
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import sinking

ANNA, BERT = "anna@example.org", "bert@example.org"


@dataclass
class Submission:
    """The nodes, and a port for submission at each."""

    nodes: Joined
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def a(self) -> JoinedNode:
        return self.nodes.nodes["a"]

    @property
    def b(self) -> JoinedNode:
        return self.nodes.nodes["b"]

    async def logs_in(self, node: JoinedNode, name: str, can: bool = True, password: str = PASSWORD) -> None:
        async def seen() -> bool:
            return await can_log_in(self.ports[node.name], name, password) is can

        await eventually(seen, lambda: f"{name} to log in at {node.name}: {can}\n{node._tail()}")


@contextlib.asynccontextmanager
async def submission(
    tmp_path: Path, cluster: Cluster, more: Mapping[str, Mapping[str, object]] | None = None
) -> AsyncIterator[Submission]:
    pem, ports = certificate(tmp_path, "mail.example.org", 90), dict[str, int]()

    def prepare(node: JoinedNode) -> None:
        ports[node.name] = free_port()
        with node.config.open("a") as file:
            file.write(f"\n[[listener]]\naddress = '127.0.0.1:{ports[node.name]}'\npurpose = 'submission'\n")

    sections = {"receiver": {"tls_certificate": str(pem), "tls_key": str(pem)}, **(more or {})}
    async with sinking() as sink, joined(tmp_path, cluster, sink, "ab", sections, prepare) as nodes:
        for node in nodes.nodes.values():
            await has_taken(node)
        yield Submission(nodes, ports)


@pytest.fixture
async def both(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Submission]:
    async with submission(tmp_path, cluster) as both:
        yield both


async def add(node: JoinedNode, name: str) -> Any:
    return await call(node, "user_put", name=name, new=True, password=PASSWORD)


def names(node: JoinedNode) -> list[str]:
    return [each.name for each in read_users(node.home / "users.jsonl")]


async def test_law_settings_a_user_who_is_made_at_one_node_logs_in_at_the_other_and_removed_there_at_none(
    both: Submission,
) -> None:
    await add(both.a, ANNA)
    for node in (both.a, both.b):
        await both.logs_in(node, ANNA)
    await both.b.does("user", "password", ANNA, "--password-stdin", stdin="another password\n")
    await both.logs_in(both.a, ANNA, False)
    await both.logs_in(both.a, ANNA, password="another password")
    await both.b.does("user", "disable", ANNA)
    await both.logs_in(both.a, ANNA, False, "another password")
    await both.a.does("user", "enable", ANNA)
    await both.logs_in(both.b, ANNA, password="another password")
    await both.b.does("user", "remove", ANNA, "--yes")
    for node in (both.b, both.a):
        await both.logs_in(node, ANNA, False, "another password")
    assert ANNA not in await both.a.does("user", "list")


async def test_law_settings_two_administrators_at_two_nodes_change_users_at_once(both: Submission) -> None:
    """Different users: both changes are there. The same one: one change is refused."""
    await asyncio.gather(add(both.a, ANNA), add(both.b, BERT))
    for node in (both.a, both.b):
        await both.logs_in(node, ANNA)
        await both.logs_in(node, BERT)
    known = {each["name"]: each for each in (await call(both.a, "users"))["users"]}
    given = {"name": ANNA, "revision": known[ANNA]["revision"]}
    answers = await asyncio.gather(
        call(both.a, "user_put", messages_per_hour=5, **given),
        call(both.b, "user_put", messages_per_hour=7, **given),
        return_exceptions=True,
    )
    (refused,) = [each for each in answers if isinstance(each, ControlError)]
    assert refused.code is Code.CONFLICT
    assert f"user {ANNA} was changed meanwhile" in str(refused)
    (made,) = [each["user"]["messages_per_hour"] for each in answers if isinstance(each, dict)]
    for node in (both.a, both.b):
        await eventually(lambda node=node: limit_of(node) == made, f"the limit {made} at {node.name}")


def limit_of(node: JoinedNode) -> int | None:
    found = read_users(node.home / "users.jsonl").get(ANNA)
    return found.messages_per_hour if found is not None else None


async def test_with_the_database_away_users_are_not_changed_and_log_in(both: Submission) -> None:
    await add(both.a, ANNA)
    for node in (both.a, both.b):
        await both.logs_in(node, ANNA)
    primary = both.nodes.cluster.primary
    primary.kill()
    try:
        with pytest.raises(ControlError, match="nothing was changed") as refused:
            await add(both.b, BERT)
        assert refused.value.code is Code.UNAVAILABLE
        status, _, err = await both.a.waypost("user", "remove", ANNA, "--yes")
        assert status != 0
        assert "nothing was changed" in err
        for node in (both.a, both.b):
            await both.logs_in(node, ANNA)
            assert names(node) == [ANNA]
    finally:
        primary.start()

    async def added() -> bool:
        with contextlib.suppress(ControlError):
            await add(both.b, BERT)
        return BERT in names(both.b)

    await eventually(added, "a change behind the return of the database", look_every_s=0.5)
    await both.logs_in(both.a, BERT)


async def test_a_node_that_is_down_is_told_later_and_changes_users_in_the_database_itself(both: Submission) -> None:
    """``waypost user`` at a node whose processes do not run writes into the database, and the file here."""
    both.b.stop()
    await add(both.a, ANNA)
    await both.b.does("user", "add", BERT, "--password-stdin", stdin=f"{PASSWORD}\n")
    assert names(both.b) == [ANNA, BERT]
    await both.logs_in(both.a, BERT)
    await both.a.does("user", "remove", ANNA, "--yes")
    await both.b.start()
    await both.logs_in(both.b, BERT)
    await both.logs_in(both.b, ANNA, False)
    await has_taken(both.b)


async def test_users_are_changed_at_a_node_that_waits_as_a_spare(both: Submission) -> None:
    """It has no control process; its home is new, and takes over what there is."""
    await add(both.a, ANNA)
    both.b.stop()
    shutil.rmtree(both.b.home)
    both.b.home.mkdir()
    both.b.config.write_text(both.b.config.read_text().replace('shard = "b"', 'shard = "a"'))
    token = await both.a.does("node", "add", "b")
    await both.b.does("node", "join", stdin=f"{token}\n")
    both.b.launch()
    await eventually(lambda: names(both.b) == [ANNA], lambda: f"the users at the spare\n{both.b._tail()}")
    await both.b.does("user", "add", BERT, "--password-stdin", stdin=f"{PASSWORD}\n")
    await both.b.does("user", "remove", ANNA, "--yes")
    assert names(both.b) == [BERT]
    await both.logs_in(both.a, BERT)
    await both.logs_in(both.a, ANNA, False)
    await has_taken(both.b)


async def test_control_and_what_watches_are_killed_while_users_are_changed(both: Submission) -> None:
    for number in range(1, 7):
        changing = asyncio.create_task(add_whatever_happens(both.a, f"u{number}@example.org"))
        await asyncio.sleep(0.02 * number)
        for node, name in ((both.a, "control"), (both.a, "spare"), (both.b, "spare")):
            with contextlib.suppress(ProcessLookupError, KeyError):  # it is gone since the last turn
                os.kill(node.processes()[name], signal.SIGKILL)
        await changing
        for node in (both.a, both.b):
            await node.ready()
    await add_whatever_happens(both.b, "last@example.org")

    async def same() -> bool:
        return "last@example.org" in names(both.a) and names(both.a) == names(both.b)

    await eventually(same, lambda: f"the same users: {names(both.a)}, {names(both.b)}")
    for node in (both.a, both.b):
        await has_taken(node)


async def add_whatever_happens(node: JoinedNode, name: str) -> None:
    """Once: its outcome may be unknown, and the process that is asked be killed."""
    with contextlib.suppress(ControlError, OSError, EOFError):
        await add(node, name)


async def test_a_hand_edit_of_the_users_stays_and_is_shown_until_a_person_decides(both: Submission) -> None:
    await add(both.a, ANNA)
    await both.logs_in(both.b, ANNA)
    file = both.b.home / "users.jsonl"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if ANNA not in line))
    await both.logs_in(both.b, ANNA, False)
    await eventually(lambda: is_shown(both.a, "users.jsonl was changed by hand"), "the edit at a")
    await both.logs_in(both.a, ANNA)
    with pytest.raises(ControlError, match="was changed by hand"):
        await add(both.b, BERT)
    _, out, err = await both.b.waypost("status")
    assert "users of all nodes: " in out + err
    status, out, err = await both.b.waypost("user", "list")
    assert status == 1
    assert "this node has other users than the others, or may have: " in out + err
    _, out, err = await both.b.waypost("doctor")
    assert "users of all nodes" in out + err
    await both.b.does("node", "settings", "--give", "users", "--why", "anna has left")
    await both.logs_in(both.a, ANNA, False)
    for node in (both.a, both.b):
        await has_taken(node)
