"""What the mail queue of Apache James promises for several servers, on three nodes (docs/james.md).

James keeps one queue over RabbitMQ, Cassandra and an object store. Each step here is one of its operations; it says that it
does not have delays.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import alive, free_port
from tests.eventually import eventually
from tests.nodes.joined import joined
from tests.peers.test_one_place import WAITING, ids_of, listed, sees
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink

EACH = 3  # messages of a node
# A next hop that did not answer is tried again soon; a message of it waits all the same.
TAKING_OVER = WAITING | {
    "nodes": {"takes_over": True},
    "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 600.0},
}


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_each_line_of_the_contract_on_three_nodes(own_cluster: Cluster, tmp_path: Path) -> None:
    sink = CountingSink()
    sink.port = free_port()  # nothing listens there yet
    async with joined(tmp_path, own_cluster, sink, "abc", TAKING_OVER) as nodes:
        a, b, c = nodes.nodes.values()
        every = (a, b, c)
        # enqueue: any server takes mail
        for node in every:
            await nodes.accept(node.name, EACH)
        for node in every:
            await sees(node, 3 * EACH, shards=3)

        # browse: the same on each server, in order, page by page; getSize: the same on each
        pages = [await listed(node, limit) for node in every for limit in (2, 100)]
        assert all(ids_of(page) == ids_of(pages[0]) for page in pages)
        assert len(set(ids_of(pages[0]))) == 3 * EACH

        # delete: from any server, by id and by condition; what is deleted is in no list and no size, and can be brought back
        of_b = ids_of(await listed(a), "b@")
        await c.does("queue", "delete", of_b[0], "--why", "by id")
        gone = json.loads(await a.does("queue", "purge", "--sender", "b@*", "--yes", "--json", "--why", "by sender"))
        assert gone["changed"] == EACH - 1
        for node in every:
            await sees(node, 2 * EACH, shards=3)
            assert not ids_of(await listed(node), "b@")
        await b.does("queue", "undelete", "--all-matching", "--lane", "deleted", "--yes", "--why", "brought back")
        await sees(a, 3 * EACH, shards=3)

        # delays: James has none. A message waits for a time, wherever it is.
        late = ids_of(await listed(a), "c@")[0]
        await a.does("queue", "delay", late, "--until", "+2h", "--why", "later")
        (item,) = [each for each in await listed(b) if each["queue_id"] == late]
        assert item["state"] == "delayed", item

        # flush: the wait is over for all that match, and for one that a person has delayed when it is named
        async with Lab([f"accept:127.0.0.1:{sink.port}"]) as lab:
            await b.does("queue", "retry", "--all", "--yes", "--why", "the next hop is back")
            # dequeue: each message by one server, once
            await eventually(lambda: len(lab.messages) == 3 * EACH - 1, lambda: f"{len(lab.messages)} came")
            await a.does("queue", "retry", late, "--why", "now")
            await eventually(lambda: len(lab.messages) == 3 * EACH, lambda: f"{len(lab.messages)} came")
            await sees(c, 0, shards=3)
        assert sorted(each.recipients[0] for each in lab.messages) == sorted(
            f"{name}{number}@example.org" for name in "abc" for number in range(EACH)
        )

        # a server is lost with its disk: its mail is listed, changed and delivered by the others
        await nodes.accept("b", EACH)
        await sees(a, EACH, shards=3)
        processes = b.kill_all()
        await eventually(lambda: not any(map(alive, processes.values())), "b to be gone")
        await asyncio.to_thread(shutil.rmtree, b.home)
        await sees(a, EACH, shards=3)
        assert len(ids_of(await listed(c), "b@")) == EACH
