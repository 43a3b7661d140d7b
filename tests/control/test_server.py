"""The control process as a server: bounded, and no client can harm another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.known_shards import KnownShard, Others, OtherShard, write_known, write_others
from mailcore.control import access, changes
from mailcore.control import server as server_module
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlClient, ControlError, NotRunning, Refused, TimedOut, Waits
from mailcore.control.protocol.scope import OF_THE_NODE
from mailcore.control.protocol.table import OPERATIONS
from mailcore.control.server import ControlServer
from mailcore.events.feed.feed import open_feed
from mailcore.events.read.archive import open_archive
from mailcore.faults import Code
from mailcore.frames import ForClient, FrameDecoder, Hello, Request, Response, encode
from mailcore.log.disk import Locked
from tests.config.test_waiting import written
from tests.control.fake_manager import Silence
from tests.control.running_control import RunningControl, open_control, stop
from tests.eventually import PATIENCE_S, eventually
from tests.lookup.sample_messages import envelope


async def raw(running: RunningControl, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(running.socket)
    writer.write(data)
    return reader, writer


async def test_the_socket_is_for_owner_and_group() -> None:
    async with open_control() as running:
        assert stat.S_IMODE(running.socket.stat().st_mode) == 0o660


async def test_a_stale_socket_is_replaced() -> None:
    async with open_control() as running:
        stale = running.socket.with_name("stale.sock")
        before = socket.socket(socket.AF_UNIX)
        before.bind(str(stale))
        before.close()
        stale.rename(running.socket.with_name("control.new"))  # as a process killed between bind and rename leaves it
        path = running.server._listen()
        path.close()
        assert not running.socket.with_name("control.new").exists()


async def test_a_server_cancelled_while_it_begins_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    listening: list[socket.socket] = []
    listen = ControlServer._listen

    def cancelled(server: ControlServer) -> socket.socket:
        listening.append(listen(server))
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # taken at the next await
        return listening[-1]

    monkeypatch.setattr(ControlServer, "_listen", cancelled)
    with tempfile.TemporaryDirectory(prefix="wp") as directory:
        running = RunningControl(Path(directory))
        # Awaited itself: who waits for the socket's file may see it before the cancelled server has ended.
        serving = asyncio.create_task(running.server.run())
        try:
            with pytest.raises(asyncio.CancelledError):
                await serving
        finally:
            await stop(running, serving)
    assert listening[0].fileno() < 0


async def test_a_second_control_process_leaves_the_first_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LOCK_WAIT_S", 0.05)
    async with open_control() as running:
        with pytest.raises(Locked):
            await ControlServer(running.settings, open_archive(running.settings), open_feed(running.settings)).run()
        async with running.client() as control:
            assert (await control.call("ping"))["pid"] == os.getpid()


async def test_what_is_no_frame_ends_its_own_connection_only() -> None:
    async with open_control() as running, running.client() as other:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", encode(Hello("manager", 0, 1)), b"\x04\0\0\0abcd"):
            reader, writer = await raw(running, garbage)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert (await other.call("ping"))["manager"] is True


async def test_a_frame_is_bounded() -> None:
    async with open_control() as running:
        reader, writer = await raw(running, struct.pack("<I", 2 << 20))
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_requests_of_one_connection_are_answered_in_order() -> None:
    async with open_control() as running:
        asked = [encode(Request(number, "ping", {})) for number in range(1, 501)]
        reader, writer = await raw(running, b"".join(asked))
        decoder = FrameDecoder()
        numbers: list[int] = []
        while len(numbers) < 500:
            for frame in decoder.feed(await reader.read(65_536)):
                assert isinstance(frame, Response)
                numbers.append(frame.number)
        assert numbers == list(range(1, 501))
        writer.close()


async def test_one_client_too_many_is_told_so() -> None:
    async with open_control() as running:
        running.server.clients_max = 2
        async with (
            running.client() as first,
            running.client() as second,
            running.client() as third,
        ):
            await first.call("ping")
            await second.call("ping")
            with pytest.raises(Refused, match=r"2 clients connected already"):
                await third.call("ping")
            await first.close()
            await eventually(lambda: len(running.server.clients) == 1)
            await third.close()
            await third.call("ping")


async def test_a_client_that_does_not_read_is_dropped_and_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "UNREAD_S_MAX", 0.2)
    async with open_control() as running:
        running.write("incoming.0", *(envelope([f"{n}@example.org" for n in range(10)]) for _ in range(1000)))
        deaf = socket.socket(socket.AF_UNIX)
        deaf.setblocking(False)
        await asyncio.get_running_loop().sock_connect(deaf, str(running.socket))
        await asyncio.get_running_loop().sock_sendall(
            deaf, b"".join(encode(Request(number, "list", {"limit": 1000})) for number in range(50))
        )
        async with running.client() as other:
            await other.call("ping")
            await eventually(lambda: len(running.server.clients) == 1)
        deaf.close()


async def test_a_slow_filter_does_not_stop_others() -> None:
    async with open_control() as running, running.client() as slow, running.client() as quick:
        go_on = threading.Event()
        running.write("incoming.0", envelope())
        first = running.server.view.browser.page

        def page(*arguments: Any) -> Any:
            go_on.wait(PATIENCE_S)
            return first(*arguments)

        running.server.view.browser.page = page  # type: ignore[assignment,method-assign]
        waiting = asyncio.create_task(slow.call("list"))
        try:
            assert (await quick.call("ping"))["manager"] is True
            assert not waiting.done()
        finally:
            go_on.set()
        assert len((await waiting)["items"]) == 1


async def test_a_client_that_goes_away_leaves_no_half_message() -> None:
    async with open_control() as running:
        async with running.client() as control:
            await control.call("inject_begin", {"sender": "", "recipients": ["you@example.org"]})
            await control.call("inject_data", {"data": b"half"})
            assert len(running.spool_files()) == 1
        await eventually(lambda: running.spool_files() == [])
        assert running.server.injecting._under_way == 0


async def test_a_client_that_goes_away_ends_its_change_of_all_that_match() -> None:
    async with open_control() as running:
        running.write("incoming.0", *(envelope() for _ in range(3000)))
        asked = asyncio.Event()

        def slowly(given: dict[str, Any]) -> dict[str, Any]:
            asked.set()
            return {"changed": len(given["messages"]), "errors": {}, "elsewhere": []}

        running.manager.answers["delete"] = slowly
        running.server.operations._changes._budget = running.server.operations._changes._budget.__class__(items=10)
        reader, writer = await raw(running, encode(Request(1, "change_matching", {"change": "delete", "filter": {}})))
        await asked.wait()
        writer.close()
        await eventually(lambda: not running.server.clients)
        del reader
        assert len(running.manager.asked("delete")) < 300


async def test_what_was_changed_before_the_manager_died_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MESSAGES_MAX", 10)
    async with open_control() as running, running.client() as control:
        running.write("incoming.0", *(envelope() for _ in range(30)))

        def twice(given: dict[str, Any]) -> dict[str, Any]:
            if len(running.manager.asked("delete")) > 2:
                raise ValueError("it is dying")
            return {"changed": len(given["messages"]), "errors": {}, "elsewhere": []}

        running.manager.answers["delete"] = twice
        told = []

        async def hear() -> None:
            async for part in control.parts("change_matching", {"change": "delete", "filter": {}}):
                told.append(part["changed"])

        with pytest.raises(ControlError, match="it is dying"):
            await hear()
        assert told == [10, 20]


async def test_a_stranger_may_look_and_not_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    def stranger(getsockopt: Any) -> access.Peer:
        return access.Peer(1, 65_534, frozenset({65_534}))

    monkeypatch.setattr(server_module, "peer_of", stranger)
    async with open_control() as running, running.client(who="root") as control:
        running.manager.answers["size"] = lambda _: {"messages": 0}
        assert (await control.call("size"))["messages"] == 0
        changes: dict[str, dict[str, Any]] = {
            "delete": {"queue_ids": ["1K0RDGV4BE900"]},
            "suspend": {"destination": "x"},
            "inject_begin": {"sender": "", "recipients": ["a@example.org"]},
            "transport_set": {"transport": "x", "parameter": "y", "value": 1},
            "change_matching": {"change": "delete", "filter": {}},
        }
        for operation, arguments in changes.items():
            with pytest.raises(Refused, match=rf"nobody \(uid 65534\) may not {operation}: root and the user"):
                await control.call(operation, arguments)
        assert [request.operation for request in running.manager.requests] == ["size"]


async def asked_for(running: RunningControl, client: ForClient, *requests: Request | ForClient) -> list[Response]:
    """What the connection of a client of another node is answered."""
    reader, writer = await raw(running, b"".join(encode(each) for each in (client, *requests)))
    decoder, found = FrameDecoder(), list[Response]()
    while len(found) < len(requests):
        data = await asyncio.wait_for(reader.read(1 << 16), PATIENCE_S)
        if not data:
            break
        found += [frame for frame in decoder.feed(data) if isinstance(frame, Response)]
    writer.close()
    return found


async def test_a_client_of_another_node_has_the_rights_that_its_node_names() -> None:
    hold = Request(1, "suspend", {"destination": "x"}, who="root", why="because")
    async with open_control() as running:
        running.manager.answers["suspend"] = lambda _: {}
        (refused,) = await asked_for(running, ForClient(0, "anna", 1000, False, False, "mx1"), hold)
        assert refused.error is not None
        assert refused.error.code is Code.FORBIDDEN
        assert "anna (uid 1000) at mx1 may not suspend" in refused.error.message
        assert running.manager.requests == []
        (done,) = await asked_for(running, ForClient(0, "anna", 1000, True, False, "mx1"), hold)
        assert done.error is None
        assert [request.who for request in running.manager.requests] == ["anna (uid 1000) at mx1"]


async def test_nothing_about_the_machine_is_asked_by_another_node() -> None:
    assert OPERATIONS.keys() >= OF_THE_NODE
    async with open_control() as running:
        for operation in ("settings", "users", "log", "processes", "parameters", "certificates", "routes"):
            (refused,) = await asked_for(running, ForClient(0, "root", 0, True, True, "mx1"), Request(1, operation, {}))
            assert refused.error is not None, operation
            assert refused.error.code in (Code.FORBIDDEN, Code.INVALID), operation
        (refused,) = await asked_for(running, ForClient(0, "root", 0, True, True, "mx1"), Request(1, "settings", {}))
        assert refused.error is not None
        assert "it is for clients of this node alone" in refused.error.message


async def test_only_waypost_itself_asks_for_clients_of_other_nodes_and_before_all_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = ForClient(0, "root", 0, True, True, "mx1")
    async with open_control() as running:
        reader, writer = await raw(running, encode(Request(1, "size", {})) + encode(client))
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"", "cut off"
        writer.close()
        assert await asked_for(running, client, client) == []
        monkeypatch.setattr(server_module, "peer_of", lambda _: access.Peer(1, 65_534, frozenset({65_534})))
        assert await asked_for(running, client, Request(1, "ping", {})) == []


async def test_a_bug_is_an_answer_and_not_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    async with open_control() as running, running.client() as control:
        running.server.view.browser.page = lambda *_: 1 // 0  # type: ignore[assignment,method-assign]
        with pytest.raises(Refused, match="internal error in the control process"):
            await control.call("list")
        assert (await control.call("ping"))["manager"] is True
    assert "Traceback" in capsys.readouterr().err


# -- the manager comes and goes


async def test_the_manager_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_control() as running, running.client() as control:
        running.manager.answers["size"] = lambda _: {"messages": 1}
        await control.call("size")
        await running.manager.stop()
        await eventually(lambda: bool(running.server.link.absence))
        with pytest.raises(Refused, match="the manager is not running; mail is still accepted while the disk has room"):
            await control.call("size")
        await running.manager.start()
        await eventually(lambda: not running.server.link.absence)
        assert (await control.call("size"))["messages"] == 1
        assert len(running.manager.hello) == 2


async def test_a_request_under_way_when_the_manager_dies_is_unknown() -> None:
    async with open_control() as running, running.client() as control:

        def never(_: dict[str, Any]) -> None:
            raise Silence

        running.manager.answers["suspend"] = never
        waiting = asyncio.create_task(control.call("suspend", {"destination": "smtp:example.org"}))
        await eventually(lambda: running.manager.asked("suspend"))
        await running.manager.stop()
        with pytest.raises(Refused, match="whether it was done is not known"):
            await waiting


async def test_a_change_that_the_manager_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.control.manager_link.ANSWER_S_MAX", 0.05)
    async with open_control() as running, running.client() as control:

        def never(_: dict[str, Any]) -> None:
            raise Silence

        running.manager.answers["suspend"] = never
        with pytest.raises(Refused, match=r"has not answered suspend for 0\.05 s; whether it was done is not known"):
            await control.call("suspend", {"destination": "smtp:example.org"})


async def test_a_silent_manager_is_asked_once_until_it_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.control.manager_link.QUESTION_S_MAX", 0.05)
    monkeypatch.setattr("mailcore.control.manager_link.PROBE_S", 0.05)
    async with open_control() as running, running.client() as control:

        def never(_: dict[str, Any]) -> None:
            raise Silence

        running.manager.answers["size"] = running.manager.answers["cut"] = never
        for _ in range(3):
            with pytest.raises(Refused) as caught:
                await control.call("size")
            assert caught.value.fault.code is Code.UNAVAILABLE
        assert len(running.manager.asked("size")) == 1
        running.manager.answers["cut"] = lambda _: {"lanes": {}}
        await eventually(lambda: not running.server.link.absence)


# -- the clients


async def test_the_blocking_client_asks_and_iterates() -> None:
    async with open_control() as running:
        message = envelope()
        running.write("incoming.0", message)

        def ask() -> tuple[Any, list[Any]]:
            with ControlClient(running.socket) as control:
                return control.call("ping"), list(control.parts("show", {"queue_id": message.queue_id}))

        ping, parts = await asyncio.to_thread(ask)
        assert ping["manager"] is True
        assert [sorted(part) for part in parts] == [
            ["changes", "envelope", "explain", "manager_away", "message", "note", "working"],
            ["recipients"],
        ]


async def test_the_blocking_client_goes_on_after_an_error_and_after_leaving_parts_unread() -> None:
    async with open_control() as running:
        message = envelope()
        running.write("incoming.0", message)

        def ask() -> Any:
            with ControlClient(running.socket) as control:
                with pytest.raises(Refused, match="no operation"):
                    control.call("nothing")
                for _ in control.parts("show", {"queue_id": message.queue_id}):
                    break
                return control.call("ping")

        assert (await asyncio.to_thread(ask))["manager"] is True


async def test_nobody_there_is_said_clearly() -> None:
    async with open_control() as running:
        stale = running.socket.with_name("stale.sock")
        with socket.socket(socket.AF_UNIX) as before:
            before.bind(str(stale))
        for path, words in ((stale, "no process listens"), (stale.with_name("none.sock"), "no control socket")):
            with pytest.raises(NotRunning, match=words):
                ControlClient(path).call("ping")
            with pytest.raises(NotRunning, match=words):
                await AsyncControlClient(path).call("ping")
        with pytest.raises(NotRunning, match="path too long"):
            ControlClient("/" + "x" * 200).call("ping")


async def test_a_spare_says_that_it_is_one(tmp_path: Path) -> None:
    written(tmp_path, os.getpid(), "owner")
    path = tmp_path / "control.sock"
    with pytest.raises(Waits, match="This node waits: shard north belongs to mx1; this node is its spare"):
        ControlClient(path).call("ping")
    with pytest.raises(Waits, match="this node is its spare"):
        await AsyncControlClient(path).call("ping")
    own = tmp_path / "shards" / "00"
    written(own, os.getpid(), "owner")
    write_known(tmp_path, [KnownShard(0, own, True, 1)])
    with pytest.raises(Waits, match="this node is its spare"):
        ControlClient(path).call("processes")
    write_others(tmp_path, Others("mx2", 1, [OtherShard(1, "north", "mx1")]))
    with pytest.raises(Waits, match="this node is its spare"):
        ControlClient(path).call("processes")


async def test_waiting_for_an_answer_ends() -> None:
    async with open_control() as running:

        def never(_: dict[str, Any]) -> None:
            raise Silence

        running.manager.answers["size"] = never

        def ask() -> None:
            with ControlClient(running.socket, timeout_s=0.1) as control:
                control.call("size")

        with pytest.raises(TimedOut, match="no answer to size"):
            await asyncio.to_thread(ask)
        async with running.client(timeout_s=0.1) as control:
            with pytest.raises(TimedOut, match="no answer to size"):
                await control.call("size")


@pytest.mark.parametrize(
    ("operation", "arguments", "code"),
    [
        ("show", {"queue_id": "1K0RDGV4BE900"}, Code.UNAVAILABLE),
        ("data", {"queue_id": "1K0RDGV4BE900"}, Code.UNAVAILABLE),
        ("change_matching", {"change": "hold", "filter": {}, "dry_run": True}, Code.UNAVAILABLE),
        ("change_matching", {"change": "hold", "filter": {}}, Code.OUTCOME_UNKNOWN),
        ("suspend", {"destination": "smtp:a.example"}, Code.OUTCOME_UNKNOWN),
    ],
)
def test_only_what_changes_something_says_that_it_may_have(
    tmp_path: Path, operation: str, arguments: dict[str, Any], code: Code
) -> None:
    path = tmp_path / "c"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with ControlClient(path, timeout_s=0.05) as control, pytest.raises(TimedOut) as raised:
            control.call(operation, arguments)
    assert raised.value.code is code


async def test_a_question_during_which_the_manager_ends_claims_no_change() -> None:
    async with open_control() as running, running.client() as control:

        def end(_: dict[str, Any]) -> None:
            running.server.start(asyncio.ensure_future(running.manager.stop()))
            raise Silence

        running.manager.answers["size"] = end
        with pytest.raises(Refused) as raised:
            await control.call("size")
        assert raised.value.code is Code.UNAVAILABLE


async def test_a_connection_that_breaks_is_an_error_and_the_next_call_connects_anew() -> None:
    async with open_control() as running:

        def never(_: dict[str, Any]) -> None:
            raise Silence

        running.manager.answers["size"] = never
        async with running.client() as control:
            waiting = asyncio.create_task(control.call("size"))
            await eventually(lambda: running.manager.asked("size"))
            for client in list(running.server.clients):
                client._transport.abort()
            with pytest.raises(ControlError):
                await waiting
            assert (await control.call("ping"))["manager"] is True
