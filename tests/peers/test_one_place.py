"""Two nodes are one place: from each, the mail of both is listed, counted and changed, and what a silent node has is unknown.

Proves law: peer-decides-rights, law: trust-is-a-row, law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.faults import Code
from mailcore.frames import ForClient, FrameDecoder, Request, Response, encode
from mailcore.nodes.authority import ORGANISATION
from mailcore.nodes.node_files import CERTIFICATE, KEY
from mailcore.peers.asked import SERVICE, WATCH
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S, eventually
from tests.nodes.joined import Joined, JoinedNode, joined
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink
from tests.test_tidy import ROOT

A, B = 3, 4  # messages
NOBODY = 65_534
# Nothing listens at the next hop, and mail waits.
WAITING: dict[str, dict[str, object]] = {
    "nodes": {"takes_over": False},
    "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
    "queue": {"retry_ladder_s": [600]},
    "transports.smtp": {"destination_concurrency_limit": 1},
}


@pytest.fixture
async def nodes(own_cluster: Cluster, tmp_path: Path) -> AsyncIterator[Joined]:
    """The nodes a and b, each with some mail, which know each other."""
    sink = CountingSink()
    sink.port = free_port()
    async with joined(tmp_path, own_cluster, sink, "ab", WAITING) as found:
        await found.accept("a", A)
        await found.accept("b", B)
        for node in found.nodes.values():
            await sees(node, A + B)
        yield found


async def sees(node: JoinedNode, messages: int, shards: int = 2) -> None:
    """Until all mail of all nodes waits, in lanes where it stays, and all of it is seen from a node."""
    answers: list[Any] = []

    async def all_there() -> bool:
        with contextlib.suppress(ControlError):
            async with node.everywhere() as client:
                state, size = await client.call("state"), await client.call("size")
                page = await client.call("list", {"filter": {}, "limit": 100})
                waits = [item["lane"].startswith(("retry", "hold")) for item in page["items"]]
                answers[:] = [size["messages"], size["unheard"], page["note"], len(waits), all(waits)]
                answers.append([row["answers"] for row in state["shards"]])
                return answers == [messages, [], "", messages, True, [True] * shards] and not state["active_messages"]
        return False

    await eventually(all_there, lambda: f"{messages} messages seen from {node.name}: {answers}\n{node._tail()}")


async def listed(node: JoinedNode, limit: int = 100, **conditions: Any) -> list[dict[str, Any]]:
    """Every message of all nodes that matches, page by page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    async with node.everywhere() as client:
        while cursor is not None:
            page = await client.call("list", {"cursor": cursor, "limit": limit, "filter": conditions})
            assert not page["note"], page
            found += page["items"]
            cursor = page["cursor"]
    return found


def ids_of(items: list[dict[str, Any]], sender: str = "") -> list[str]:
    return sorted(item["queue_id"] for item in items if item["sender"].startswith(sender))


async def test_both_show_all_mail_in_one_list_over_one_cursor(nodes: Joined) -> None:
    found = {}
    for name, node in nodes.nodes.items():
        for limit in (1, 2, 100):
            items = await listed(node, limit)
            assert len(items) == A + B
            found[name, limit] = ids_of(items)
            assert len(set(found[name, limit])) == A + B, "each is there once"
        filtered = await listed(node, 2, sender="b@*")
        assert [item["sender"] for item in filtered] == ["b@sender.example"] * B
    assert len(set(map(tuple, found.values()))) == 1, "both show the same"


async def test_each_changes_what_the_other_has(nodes: Joined) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    of_b = ids_of(await listed(a), "b@")
    await a.does("queue", "hold", of_b[0], "--why", "asked for")
    held = await listed(b, lane="hold")
    assert ids_of(held) == of_b[:1]
    shown = await b.does("queue", "history", of_b[0])
    assert f"(uid {os.getuid()}) at a" in shown, "the record says who did it, and at which node"

    async with b.everywhere() as client:
        counted = await client.call("change_matching", {"change": "hold", "filter": {}, "dry_run": True})
        assert counted["matched"] == A + B - 1
        changed = await client.call("change_matching", {"change": "hold", "filter": {}, "cut": counted["cut"]})
        assert changed["changed"] == A + B - 1
    assert len(await listed(a, lane="hold")) == A + B

    await b.does("queue", "release", *ids_of(await listed(a), "a@"), "--why", "released")
    assert ids_of(await listed(a, lane="hold")) == of_b
    await a.does("queue", "delete", of_b[1], "--why", "deleted from a")
    await sees(b, A + B - 1)
    _, shown, _ = await b.waypost("queue", "history", of_b[1])
    assert "deleted from a" in shown
    _, shown, _ = await a.waypost("queue", "history", of_b[1])
    assert "deleted from a" in shown


async def test_what_a_silent_node_has_is_unknown_and_named(nodes: Joined) -> None:
    """law: silent-is-unknown."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    b.signal_all(signal.SIGSTOP)
    try:
        async with a.everywhere() as client:
            loop = asyncio.get_running_loop()
            before = loop.time()
            page = await client.call("list", {"filter": {}, "limit": 100})
            print(f"the first list took {loop.time() - before:.2f} s")
            assert page["manager_away"]
            assert (
                "shard 2 at b does not answer, and its mail is not in this list: node b does not answer" in page["note"]
            )
            assert len(page["items"]) == A
            size = await client.call("size")
            assert size["unheard"] == ["shard 2 at b"]
            state = await client.call("state")
            assert "shard 2 at b does not answer, and nothing of it is counted" in state["unanswered"]
            (row,) = [row for row in state["shards"] if row["node"] == "b"]
            assert (row["answers"], row["active_messages"], row["name"]) == (False, None, "b")
            for change in ("hold", "delete"):
                with pytest.raises(ControlError, match="nothing was changed in any shard; --here") as refused:
                    await client.call("change_matching", {"change": change, "filter": {"sender": "*"}})
                assert refused.value.code is Code.UNAVAILABLE
            suspended = await client.call("suspend", {"destination": "smtp:example.net"})
            assert suspended["scope"].startswith("smtp:example.net"), "node b takes it over when it is back"
        shown = await a.does("status")
        print(shown)
        assert "unknown: node b does not answer" in shown
        held = json.loads(await a.does("--here", "queue", "hold", "--all", "--yes", "--json", "--why", "of this node"))
        assert held["changed"] == A
    finally:
        b.signal_all(signal.SIGCONT)
    await sees(a, A + B)


async def test_a_node_that_is_gone_is_named_until_it_is_back(nodes: Joined) -> None:
    """law: silent-is-unknown."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    b.kill_all()
    async with a.everywhere() as client:

        async def named() -> bool:
            size = await client.call("size")
            return bool(size["unheard"] == ["shard 2 at b"])

        await eventually(named, "b to be named as silent")
        assert (await client.call("size"))["messages"] == A
    await b.start()
    await sees(a, A + B)
    await sees(b, A + B)


async def test_a_shard_that_moves_is_in_a_list_once(nodes: Joined) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    expected = ids_of(await listed(a))
    async with a.everywhere() as client:
        page = await client.call("list", {"filter": {}, "limit": 2, "cursor": ""})
        found = page["items"]
        await a.does("shard", "move", "b", "--to", "a")
        await sees(a, A + B)
        while page["cursor"] is not None:
            page = await client.call("list", {"filter": {}, "limit": 2, "cursor": page["cursor"]})
            assert not page["note"]
            found += page["items"]
    assert ids_of(found) == expected, found
    await sees(b, A + B)
    assert ids_of(await listed(b)) == expected, "the home of a shard that moved away shows it where it is"


# -- law: peer-decides-rights


ASKS = """
import json, os, sys
from mailcore.control.client import ControlClient, ControlError
import mailcore.control.protocol.table
# All modules are loaded by now: the interpreter may be in a directory that only root may read.
os.chdir(sys.argv[1])
os.setgroups([])
os.setregid({nobody}, {nobody})
os.setreuid({nobody}, {nobody})
for operation, arguments in json.loads(sys.argv[2]):
    with ControlClient("other.sock", who="root") as client:
        try:
            print(json.dumps(["", client.call(operation, arguments)]))
        except ControlError as error:
            print(json.dumps([str(error.code), str(error)]))
"""


async def as_nobody(directory: Path, *asked: tuple[str, dict[str, Any]]) -> list[Any]:
    """What a user without rights is answered over the socket other.sock of a directory."""
    program = ASKS.format(nobody=NOBODY)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(directory), json.dumps(asked), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_law_rights_a_reader_at_one_node_changes_nothing_at_the_other(nodes: Joined) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    place = a.home / "run" / "nodes" / "02"
    assert (place / "control.sock").stat().st_mode & 0o777 == 0o660, "as the control socket"
    (place / "control.sock").chmod(0o666)  # as an administrator may do
    (place / "other.sock").symlink_to("control.sock")
    (queue_id, *_) = ids_of(await listed(a), "b@")
    answers = await as_nobody(
        place,
        ("list", {"filter": {}, "limit": 100}),
        ("hold", {"queue_ids": [queue_id]}),
        ("change_matching", {"change": "delete", "filter": {"sender": "*"}}),
        ("suspend", {"destination": "example.org"}),
        ("settings", {}),
        ("places", {}),
    )
    assert len(answers[0][1]["items"]) == B, "it may look"
    name = pwd.getpwuid(NOBODY).pw_name
    for code, words in answers[1:]:
        assert code == "forbidden", words
        assert f"{name} (uid {NOBODY}) at a may not" in words
    assert len(await listed(b)) == A + B
    assert not await listed(b, lane="hold")


def first_frames(shard: int, *, may_change: bool, node: str = "") -> bytes:
    return encode(ForClient(shard, "anna", 1000, may_change, False, node))


class Link:
    """A connection to a node with the certificate of another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Any] = []

    @classmethod
    async def open(cls, to: JoinedNode, files: Path) -> Link:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(files / CERTIFICATE, files / KEY)
        context.set_alpn_protocols([SERVICE])
        return cls(*await asyncio.open_connection("127.0.0.1", to.peer_port + 1, ssl=context, server_hostname="x"))

    async def answer(self) -> Response | None:
        """The next one; None: the connection has ended."""
        while not self._frames:
            try:
                data = await asyncio.wait_for(self.reader.read(65536), PATIENCE_S)
            except (ConnectionError, ssl.SSLError):
                data = b""
            if not data:
                return None
            self._frames += self._decoder.feed(data)
        frame = self._frames.pop(0)
        assert isinstance(frame, Response)
        return frame

    async def ask(self, operation: str, arguments: dict[str, Any]) -> Response | None:
        with contextlib.suppress(ConnectionError):
            self.writer.write(encode(Request(1, operation, arguments)))
        return await self.answer()


async def test_law_rights_the_other_node_enforces_them_and_knows_by_itself_who_asks(nodes: Joined) -> None:
    """A node that speaks the protocol itself gets no more than it says its client has, and no name but its own."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    (queue_id, *_) = ids_of(await listed(a), "b@")
    link = await Link.open(b, a.home / "nodes")
    link.writer.write(first_frames(2, may_change=False, node="b"))
    opened = await link.answer()
    assert opened == Response(0), "its shard is connected"
    refused = await link.ask("hold", {"queue_ids": [queue_id]})
    assert refused is not None
    assert refused.error is not None
    assert refused.error.code is Code.FORBIDDEN
    assert "anna (uid 1000) at a may not hold" in refused.error.message
    answer = await link.ask("list", {"filter": {}, "limit": 100})
    assert answer is not None
    assert len(answer.result["items"]) == B
    link.writer.write(encode(ForClient(2, "root", 0, True, True)))  # once more
    assert await link.answer() is None, "the connection ends"
    link.writer.close()

    link = await Link.open(b, a.home / "nodes")
    link.writer.write(first_frames(2, may_change=True))
    assert await link.answer() == Response(0)
    held = await link.ask("hold", {"queue_ids": [queue_id]})
    assert held is not None
    assert held.error is None
    for operation in ("settings", "users", "inject", "processes", "log"):
        refused = await link.ask(operation, {})
        assert refused is not None
        assert refused.error is not None
        assert refused.error.code in (Code.FORBIDDEN, Code.INVALID), "what is about the machine is its own"
    link.writer.close()

    link = await Link.open(b, a.home / "nodes")
    link.writer.write(first_frames(1, may_change=True))
    missing = await link.answer()
    assert missing is not None
    assert missing.error is not None
    assert missing.error.code is Code.UNAVAILABLE
    link.writer.close()


async def test_law_trust_a_node_that_was_removed_asks_no_more_also_over_a_connection_that_it_has(
    nodes: Joined, tmp_path: Path
) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    link, watch = await Link.open(a, b.home / "nodes"), await Link.open(a, b.home / "nodes")
    link.writer.write(first_frames(1, may_change=True))
    watch.writer.write(first_frames(WATCH, may_change=False))
    assert await link.answer() == await watch.answer() == Response(0)
    assert (await link.ask("size", {})) is not None
    await a.does("node", "remove", "b")
    assert await link.answer() is None, "the connection ends"
    assert await watch.answer() is None
    another = await Link.open(a, b.home / "nodes")
    another.writer.write(first_frames(1, may_change=True))
    assert await another.answer() is None
    for each in (link, watch, another):
        each.writer.close()

    async def says() -> bool:
        async with b.everywhere() as client:
            page = await client.call("list", {"filter": {}, "limit": 100})
            return "node b is not in: run waypost node join" in page["note"] and len(page["items"]) == B

    await eventually(says, "b to know that it is not in")

    async def unknown() -> bool:
        async with a.everywhere() as client:
            page = await client.call("list", {"filter": {}, "limit": 100})
            return "node b is not in" in page["note"] and len(page["items"]) == A

    await eventually(unknown, "a to name b")
    token = await a.does("node", "add", "b")
    await b.does("node", "join", stdin=f"{token}\n")  # with another certificate
    await sees(a, A + B)
    await sees(b, A + B)


async def test_law_trust_ends_when_the_database_is_not_read_any_more(nodes: Joined, own_cluster: Cluster) -> None:
    """A node may have been removed meanwhile: what it asks is not answered, also over a connection that it has."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    link = await Link.open(a, b.home / "nodes")
    link.writer.write(first_frames(WATCH, may_change=False))
    assert await link.answer() == Response(0)
    await asyncio.to_thread(own_cluster.kill)
    assert await link.answer() is None, "the connection ends"
    another = await Link.open(a, b.home / "nodes")
    another.writer.write(first_frames(1, may_change=True))
    assert await another.answer() is None
    for each in (link, another):
        each.writer.close()
    async with a.everywhere() as client:
        said = ""

        async def says() -> bool:
            nonlocal said
            said = (await client.call("list", {"filter": {}, "limit": 100}))["note"]
            return "the database was not read for" in said

        await eventually(says, lambda: f"why b is not asked: {said}")


async def test_strangers_are_told_nothing(nodes: Joined) -> None:
    a = nodes.nodes["a"]
    plain_reader, plain = await asyncio.open_connection("127.0.0.1", a.peer_port + 1)
    plain.write(first_frames(1, may_change=True))
    heard = await asyncio.wait_for(plain_reader.read(100), PATIENCE_S)
    assert ORGANISATION.encode() not in heard
    assert not heard.startswith(encode(Response(0))[:4])
    plain.close()


async def test_the_process_begins_again_and_so_does_what_it_passes_on(nodes: Joined) -> None:
    a = nodes.nodes["a"]
    async with AsyncControlClient(a.home / "run" / "control.sock", timeout_s=PATIENCE_S) as client:
        assert (await client.call("size"))["messages"] == A + B
        os.kill(a.processes()["peers"], signal.SIGKILL)
        await sees(a, A + B)
        assert (await client.call("size"))["messages"] in (A, A + B)  # the connection that it had ended meanwhile
        await eventually(lambda: _counts(client, A + B), "both again")


async def test_a_change_under_way_when_the_connection_breaks_is_unknown_and_one_that_did_not_get_there_is_not(
    nodes: Joined,
) -> None:
    """law: never-sent-twice."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    (queue_id, *_) = ids_of(await listed(a), "b@")
    manager = b.processes()["manager"]
    async with a.everywhere() as client:
        await client.call("size")
        os.kill(manager, signal.SIGSTOP)
        try:
            asked = asyncio.create_task(client.call("hold", {"queue_ids": [queue_id]}))
            await asyncio.sleep(1.0)
            assert not asked.done()
            os.kill(a.processes()["peers"], signal.SIGKILL)
            with pytest.raises(ControlError) as unknown:
                await asked
            assert unknown.value.code is Code.OUTCOME_UNKNOWN
        finally:
            os.kill(manager, signal.SIGCONT)
    b.kill_all()
    async with a.everywhere() as client:

        async def is_silent() -> bool:
            return "node b does not answer" in (await client.call("state"))["unanswered"]

        await eventually(is_silent, "b to be silent")
        with pytest.raises(ControlError, match="node b does not answer") as refused:
            await client.call("delete", {"queue_ids": [queue_id]})
        assert refused.value.code is Code.UNAVAILABLE


async def _counts(client: AsyncControlClient, messages: int) -> bool:
    size = await client.call("size")
    return bool(size["messages"] == messages)
