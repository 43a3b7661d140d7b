"""Three nodes with mail for one destination, each with a home and processes of its own, that share its limit over mutual TLS.

The next hop counts the connections that it has, and says what was the most (law: shares-within-limit).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import ssl
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.supervisor.ending import END
from tests.eventually import eventually
from tests.nodes.joined import LIMIT, Joined, joined
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink, sinking

ROUNDS = 10


@pytest.fixture
async def sink() -> AsyncIterator[CountingSink]:
    async with sinking(takes_s=0.1) as sink:
        yield sink


@pytest.fixture
async def nodes(
    cluster: Cluster, tmp_path: Path, sink: CountingSink, request: pytest.FixtureRequest
) -> AsyncIterator[Joined]:
    async with joined(tmp_path, cluster, sink, sections=getattr(request, "param", None)) as nodes:
        yield nodes


async def test_law_shares_all_have_a_part_and_one_alone_has_all_of_it(nodes: Joined) -> None:
    nodes.sink.takes_s = 2.0  # until all have mail, however long that takes
    for name in "ab":
        await nodes.accept(name, 60)
    await nodes.accept("c", 300)
    await eventually(lambda: all(nodes.in_use), lambda: f"a connection of each; there are {nodes.in_use}")
    nodes.sink.takes_s = 0.1
    await eventually(lambda: sum(nodes.in_use) == LIMIT, "all of the limit in use")
    await nodes.until("the last one alone", 0, 0, LIMIT)
    assert nodes.sink.most == LIMIT


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_law_shares_whoever_alone_has_mail_soon_has_the_whole_limit(nodes: Joined) -> None:
    """How soon is printed: once behind the last message of the others, once behind its own first message."""
    behind_others, behind_own = list[float](), list[float]()
    for number in range(ROUNDS):
        nodes.sink.takes_s = 2.0  # until all have mail, however long that takes
        for name, count in (("c", 100), ("a", 10), ("b", 10)):
            await nodes.accept(name, count, first=1000 * number)
        await eventually(lambda: all(nodes.in_use), lambda: f"a connection of each; there are {nodes.in_use}")
        nodes.sink.takes_s = 0.3
        await eventually(lambda: nodes.sink.by_sender["a"] == nodes.sink.by_sender["b"] == 10 * (number + 1))  # noqa: B023
        others_at = max(at for at, recipient in nodes.sink.messages if recipient[0] != "c")
        behind_others.append(await _seconds_to_all_of_the_limit(nodes, others_at))
        await eventually(lambda: not nodes.sink.sessions, "the end of all connections")
        await nodes.accept("c", 1, first=1000 * number + 500)
        own_at = time.monotonic()
        await nodes.accept("c", 30, first=1000 * number + 501)
        behind_own.append(await _seconds_to_all_of_the_limit(nodes, own_at))
        await eventually(lambda: not nodes.sink.sessions, "the end of all connections")
    for what, seconds in (("the others' last", behind_others), ("its own first", behind_own)):
        middle = statistics.median(seconds)
        print(f"\nall {LIMIT} in use {middle:.2f} s behind {what} message, {max(seconds):.2f} s at most, of {ROUNDS}")
    assert nodes.sink.most == LIMIT


async def _seconds_to_all_of_the_limit(nodes: Joined, since: float) -> float:
    await eventually(lambda: nodes.sink.of("c") == LIMIT, lambda: f"all of the limit for c; {nodes.in_use}")
    return time.monotonic() - since


@pytest.mark.long
@pytest.mark.parametrize("kills", [4, 12])
@pytest.mark.timeout(900)
async def test_law_shares_nodes_are_killed_in_turn_and_a_limit_is_never_exceeded(nodes: Joined, kills: int) -> None:
    """All processes of a node, or its manager alone; each is the giver at some time."""
    rng = random.Random(kills)
    nodes.sink.takes_s = 2.0  # until all have mail, however long that takes
    for name in nodes.nodes:
        await nodes.accept(name, 60 * kills)
    await eventually(lambda: all(nodes.in_use), lambda: f"a connection of each; there are {nodes.in_use}")
    nodes.sink.takes_s = 0.1
    givers = set()
    for _ in range(kills):
        epoch, giver = nodes.giver()
        givers.add(giver)
        node = nodes.nodes[giver]
        node.stop()
        await eventually(lambda: nodes.giver()[0] > epoch, "another giver")  # noqa: B023
        taken = len(nodes.sink.messages)
        # On a slow machine the mail of before may be out.
        await nodes.accept(next(name for name in nodes.nodes if name != giver), 30)
        await nodes.takes_more(rng.randrange(1, 30), taken)
        await node.start()
    assert len(givers) > 1
    nodes.sink.takes_s = 2.0
    for name in nodes.nodes:
        await nodes.accept(name, 20)
    await eventually(lambda: sum(nodes.in_use) == LIMIT, lambda: f"all of the limit in use; there are {nodes.in_use}")
    assert nodes.sink.most <= LIMIT


@pytest.mark.long
async def test_law_shares_nodes_that_cannot_reach_the_giver_keep_to_the_end_of_their_shares(nodes: Joined) -> None:
    """The database answers all of them, so no other manager is elected. Deliveries that are under way end with the shares."""
    nodes.sink.takes_s = 1.0
    for name in nodes.nodes:
        await nodes.accept(name, 60)
    await eventually(lambda: all(nodes.in_use), lambda: f"a connection of each; {nodes.in_use}")
    nodes.sink.takes_s = 3600.0
    await eventually(
        lambda: all(nodes.in_use) and sum(nodes.in_use) == LIMIT, lambda: f"a connection of each; {nodes.in_use}"
    )
    epoch, giver = nodes.giver()
    others = [name for name in nodes.nodes if name != giver]
    nodes.cables[giver].is_cut = True
    await eventually(lambda: not any(map(nodes.sink.of, others)), lambda: f"the end of all others; {nodes.in_use}")
    await eventually(lambda: nodes.sink.of(giver) == LIMIT, lambda: f"all of the limit for the giver; {nodes.in_use}")
    node = nodes.nodes[others[0]]

    async def says() -> bool:
        return f"node {giver} at" in await node.trouble()

    await node.until(says, "the reason")
    assert nodes.giver() == (epoch, giver)
    nodes.cables[giver].is_cut = False
    nodes.sink.takes_s = 0.1
    before = {name: nodes.sink.by_sender[name] for name in others}
    nodes.nodes[giver].stop()  # its deliveries would take an hour
    await eventually(
        lambda: all(nodes.sink.by_sender[name] > before[name] for name in others),
        lambda: f"the others again; {nodes.in_use}",
    )
    assert nodes.sink.most == LIMIT


@pytest.mark.long
@pytest.mark.parametrize(
    "nodes",
    [{"transports.smtp": {"destination_rate_delay": 0.1}}, {"transports.smtp": {"transport_rate_delay": 0.1}}],
    ids=["destination", "transport"],
    indirect=True,
)
async def test_a_rate_over_all_nodes_is_never_exceeded(nodes: Joined) -> None:
    """Of a slow machine it can only be said that it is not faster; how fast it is is printed."""
    nodes.sink.takes_s = 0.0
    for name in nodes.nodes:
        await nodes.accept(name, 150)
    await eventually(lambda: all(nodes.sink.by_sender[name] for name in nodes.nodes), "mail of each")
    await nodes.takes_more(10)
    first = len(nodes.sink.messages)
    await nodes.takes_more(200)
    times = [at for at, _ in nodes.sink.messages[first:]]
    print(f"\n{(len(times) - 1) / (times[-1] - times[0]):.2f} messages a second of 10")
    assert (len(times) - len(nodes.nodes)) / (times[-1] - times[0]) <= 10.5


async def test_a_node_that_is_removed_delivers_nothing_until_it_joins_again(nodes: Joined) -> None:
    """law: trust-is-a-row. Whether it was the giver or not."""
    nodes.sink.takes_s = 2.0
    for name in nodes.nodes:
        await nodes.accept(name, 100)
    await eventually(lambda: all(nodes.in_use), lambda: f"a connection of each; there are {nodes.in_use}")
    nodes.sink.takes_s = 0.5
    removed = nodes.nodes[nodes.giver()[1]]
    others = [node for node in nodes.nodes.values() if node is not removed]
    await others[0].does("node", "remove", removed.name)
    await eventually(lambda: nodes.sink.of(removed.name) == 0, "the end of its connections")
    await eventually(
        lambda: sum(nodes.in_use) == LIMIT and nodes.sink.of(removed.name) == 0, "all of the limit for the others"
    )
    assert nodes.giver()[1] != removed.name

    async def says() -> bool:
        return "is not in" in await removed.trouble()

    await removed.until(says, "its trouble")
    token = await others[0].does("node", "add", removed.name)
    await removed.does("node", "join", stdin=token)
    await eventually(lambda: nodes.sink.of(removed.name) > 0, "a connection of the node that is in again")
    assert nodes.sink.most <= LIMIT


async def test_a_manager_that_is_asked_to_end_takes_its_name_out_of_the_row(nodes: Joined) -> None:
    """Nobody has to watch it then."""
    epoch, giver = nodes.giver()
    others = [node.processes()["manager"] for name, node in nodes.nodes.items() if name != giver]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)  # each would take the row at once
    try:
        os.kill(nodes.nodes[giver].processes()["manager"], END)  # as by a reload
        await eventually(lambda: nodes.giver() == (epoch, ""), "the row without a name")
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    await eventually(lambda: nodes.giver()[0] > epoch, "another giver")


async def test_strangers_do_not_disturb_the_giver(nodes: Joined) -> None:
    """law: trust-is-a-row. The manager, which ends with any error that it does not know, works on."""
    node = nodes.nodes[nodes.giver()[1]]
    before = node.processes()["manager"]
    unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unknown.check_hostname, unknown.verify_mode = False, ssl.CERT_NONE
    for context, data in ((None, b"GET / HTTP/1.1\r\n\r\n"), (None, b""), (unknown, b"\xff\xff\xff\xff")):
        for _ in range(5):
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", node.peer_port, ssl=context)
                writer.write(data)
                if data:
                    await reader.read(100)
                writer.transport.abort()
    await nodes.accept(node.name, 20)
    await eventually(lambda: nodes.sink.by_sender[node.name] == 20, "all of its mail")
    assert node.processes()["manager"] == before
