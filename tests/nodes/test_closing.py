"""A shard whose home does not come back is closed when it has drained, and not before; nothing of it is used again.

Proves law: closed-when-drained (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.lab.lab import Lab
from mailcore.nodes.closing import CannotClose, close, tidy
from mailcore.nodes.owner import Gone
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.taking_in import CannotTakeIn
from mailcore.replication.batch import Batch
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced
from mailcore.replication.shard import ShardRow, read_shard, renew, take_over
from mailcore.replication.writer import StoreWriter
from tests.eventually import eventually
from tests.nodes.node import Node
from tests.nodes.test_adoption import row_of
from tests.nodes.test_owner import Ends, Said, Step, appended, at_its_first_pause, home, owned
from tests.nodes.test_taking_in import Forked, disk_has_it, given_up, queue_on_disk, taken_in
from tests.nodes.test_ways_in import SMALL, injected, messages, over_smtp
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard
from tests.running.running_core import recipients_of

SECTIONS: dict[str, dict[str, object]] = {"export": {"enabled": True, "interval_s": 0.2}}
DAY = "events/dt=2026-01-02/events-1.parquet"


def empty(_: Settings) -> str:
    return ""


def adopted_by(settings: Settings, shard: str = "old") -> ShardRow:
    """A shard of another node that this home has, with a row of everything."""
    connection = Connection.open(parameters_of(settings))
    try:
        seen = read_shard(connection, shard)
        assert seen is not None
        row = take_over(connection, seen, "a/x/y/z", state="draining")
    finally:
        connection.close()
    assert row is not None
    writer = StoreWriter(parameters_of(settings), shard, "m", row.epoch)
    writer.begin()
    batch = Batch()
    for name in ("queue/journal/00000000000000000000.seg", "spool/1f/ABC", DAY, "zoo"):
        batch.append(name, 0, [b"bytes"])
    batch.put("queue/restart", b"positions")
    batch.put("events/_exported/positions.json", b"{}")
    writer.commit(batch, {"journal": (0, 5)})
    writer.close()
    return row


def closed(settings: Settings, shard: str = "old", left: str = "") -> ShardRow:
    connection = Connection.open(parameters_of(settings))
    try:
        return close(connection, settings, shard, lambda _: left)
    finally:
        connection.close()


def files_in(cluster: Cluster, shard: str = "old") -> list[str]:
    chunks = cluster.primary.sql(f"select file from waypost.chunk where shard = '{shard}'")
    states = cluster.primary.sql(f"select file from waypost.state where shard = '{shard}'")
    return sorted(row[0] for row in chunks + states)


def test_a_closed_shard_keeps_its_events_and_its_number_and_nothing_else(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    add_shard(cluster.primary, name="old", number=7, owner="gone/x/y/z")
    row = adopted_by(settings)
    lease = Connection.open(parameters_of(settings))
    found = closed(settings)
    assert (found.state, found.number, found.node, found.epoch) == ("closed", 7, "", row.epoch + 1)
    assert files_in(cluster) == ["events/_exported/positions.json", DAY]
    assert cluster.primary.sql("select 1 from waypost.writer where shard = 'old'") == []
    with pytest.raises(Fenced):
        renew(lease, row, row.beat, row.beat + 1)
    lease.close()
    assert closed(settings).state == "closed", "again"
    assert owned(settings).number == 8, "its number is not lent again"
    # Old events go, and those of the days that are kept stay.
    connection = Connection.open(parameters_of(settings))
    now = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, 0))
    assert not tidy(connection, found, 100, now)
    assert tidy(connection, found, 30, now)
    connection.close()
    assert files_in(cluster) == ["events/_exported/positions.json"]


def test_a_writer_that_is_under_way_is_waited_for_or_fenced(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    add_shard(cluster.primary, name="old", number=7, owner="gone/x/y/z")
    row = adopted_by(settings)
    writer = StoreWriter(parameters_of(settings), "old", "e", row.epoch)
    writer.begin()
    closed(settings)
    with pytest.raises(Fenced):
        writer.commit(appended("queue/late", b"late"), {})
    writer.close()
    assert files_in(cluster) == ["events/_exported/positions.json", DAY]


@pytest.mark.parametrize(
    ("change", "left", "why"),
    [
        ("state = 'open'", "", "only a shard that another node has adopted can be closed"),
        ("owner = 'b/x/y/z'", "", "give the command there"),
        ("wanted = 'gone'", "", "moves to gone at this moment"),
        ("state = 'draining'", "3 messages", "it still has 3 messages"),
    ],
)
def test_what_is_not_drained_or_not_ours_is_not_closed(
    cluster: Cluster, tmp_path: Path, change: str, left: str, why: str
) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    add_shard(cluster.primary, name="old", number=7, owner="gone/x/y/z")
    adopted_by(settings)
    cluster.primary.sql(f"update waypost.shard set {change} where name = 'old'")
    with pytest.raises(CannotClose, match=why):
        closed(settings, left=left)
    assert len(files_in(cluster)) == 6


@pytest.mark.parametrize("change", ["wanted = 'gone'", "epoch = epoch + 1, owner = 'gone/x/y/z'", "state = 'open'"])
def test_a_home_that_comes_back_while_the_shard_is_looked_at_has_it(
    cluster: Cluster, tmp_path: Path, change: str
) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    add_shard(cluster.primary, name="old", number=7, owner="gone/x/y/z")
    adopted_by(settings)
    connection = Connection.open(parameters_of(settings))

    def comes_back(_: Settings) -> str:
        cluster.primary.sql(f"update waypost.shard set {change} where name = 'old'")
        return ""

    with pytest.raises(CannotClose, match="has changed at this moment"):
        close(connection, settings, "old", comes_back)
    connection.close()
    assert len(files_in(cluster)) == 6


def test_it_is_killed_in_front_of_each_step_and_given_again(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    for number in range(20):
        name = f"old{number}"
        add_shard(cluster.primary, name=name, number=10 + number, owner="gone/x/y/z")
        adopted_by(settings, name)

        def work(step: object, name: str = name) -> None:
            connection = Connection.open(parameters_of(settings))
            close(connection, settings, name, empty, step=step)  # type: ignore[arg-type]

        steps = Forked(work, lambda at, _: at == number).wait()  # noqa: B023
        if steps is None:
            break
        (state,) = cluster.primary.sql(f"select state from waypost.shard where name = '{name}'")
        assert state == ("draining" if steps == ["close"] else "closed",)
        if steps == ["close"]:
            assert len(files_in(cluster, name)) == 6
        assert closed(settings, name).state == "closed"
        assert len(files_in(cluster, name)) == 2
    assert number == 3


def test_a_home_that_comes_back_does_not_use_it_again(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster, "a", "own")
    gone = home(tmp_path, cluster, "gone", "old")
    owned(gone)
    cluster.primary.sql("update waypost.shard set owner = 'a/x/y/z', state = 'draining', epoch = 2")
    closed(settings)

    class Waits(Exception):
        pass

    def ends() -> None:
        raise Waits

    step = Step(gone, each=ends)
    with pytest.raises(Waits):
        step.run()
    assert "shard old is closed for good" in step.said[-1]
    (gone.queue_directory / "restart").write_bytes(b"positions")  # what it has on its disk was delivered by others
    with pytest.raises(Said, match="is a copy of shard old") as said:
        owned(dataclasses.replace(gone, nodes=dataclasses.replace(gone.nodes, shard="new")))
    assert "move the queue and the spool away" in str(said.value)
    adopting = dataclasses.replace(settings, shard=1, nodes=dataclasses.replace(settings.nodes, shard="old"))
    with pytest.raises(Gone):
        Step(adopting).run()


def test_a_home_that_never_heard_that_its_mail_was_taken_in_does_not_have_it_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its command was killed behind the last step; then others have delivered everything, and closed the shard."""
    settings = home(tmp_path, cluster, "a", "own")
    gone = queue_on_disk(tmp_path, cluster, "old", "gone")
    assert Forked(lambda step: taken_in(gone, step), lambda _, name: name == "finish").wait()
    adopted_by(settings)
    assert closed(settings).state == "closed"
    with pytest.raises(CannotTakeIn, match="has all of the mail already"):
        given_up(gone)
    assert not disk_has_it(gone)
    step = Step(gone, each=at_its_first_pause)
    with pytest.raises(Ends):
        step.run()
    assert "shard old is closed for good" in step.said[-1]
    assert not disk_has_it(gone)


async def test_the_shard_of_a_node_that_is_gone_for_ever_is_closed_and_its_processes_end(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        a, b = (Node(tmp_path, name, own_cluster, lab, SECTIONS, shard=name) for name in "ab")
        try:
            await a.start()
            await b.start()
            await asyncio.to_thread(over_smtp, a, "of-a@example.net", SMALL)
            held = await injected(a, "held@example.net", SMALL)
            async with a.client() as client:
                await client.call("hold", {"queue_ids": [held]})

            async def is_held() -> bool:
                return (await messages(a)).get("held@example.net") == "held"

            await a.until(is_held, "the held message")
            a.destroy()
            a._process = None
            await b.until(lambda: b.adopted() == {"a"}, "the shard of a on b")

            async def refused_for(words: str) -> bool:
                code, _, err = await b._run("shard", "close", "a")
                assert code == 1
                return words in err

            await b.until(lambda: refused_for("2 messages"), "the refusal")
            await lab.hops[0].set_behaviour("accept")
            await b.until(lambda: "of-a@example.net" in recipients_of(lab.messages), "its mail")
            await b.until(lambda: refused_for("1 message"), "the refusal for the held one")
            async with b.client() as client:
                await client.call("delete", {"queue_ids": [held]})
            await b.until(lambda: refused_for("deleted mail that can be undeleted"), "that for the deleted one")
            async with b.client() as client:
                await client.call("undelete", {"queue_ids": [held]})

                async def released() -> bool:
                    return (await client.call("release", {"queue_ids": [held]}))["changed"] == 1  # type: ignore[no-any-return]

                await b.until(released, "the held one")
            await b.until(lambda: "held@example.net" in recipients_of(lab.messages), "the held one")

            said = ""

            async def is_closed() -> bool:
                nonlocal said
                code, _, said = await b._run("shard", "close", "a")
                return code == 0

            await eventually(is_closed, lambda: f"the shard to be closed: {said}")
            assert row_of(own_cluster, "a")[:2] == ("", "closed")
            await b.until(lambda: not b.adopted() and "manager@1" not in b.processes(), "the end of its processes")
            assert {name.partition("/")[0] for name in files_in(own_cluster, "a")} == {"events"}
            await asyncio.to_thread(over_smtp, b, "of-b@example.net", SMALL)
            await b.until(lambda: "of-b@example.net" in recipients_of(lab.messages), "the mail of b")
            a.launch()
            await a.until(lambda: "is closed for good" in a.said(), "the refusal at its home")
            assert row_of(own_cluster, "a")[:2] == ("", "closed")
        finally:
            for node in (a, b):
                if node._process is not None:
                    node.stop()
