"""The deliverer process, between a manager made of frames and servers on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from mailcore import processes
from mailcore.config.host_finder_of import host_finder_of
from mailcore.config.settings import Settings, TlsPolicy
from mailcore.deliverer.client import Client
from mailcore.deliverer.deliverer import MANAGER_SOCKET, Deliverer
from mailcore.envelope import Status
from mailcore.frames import Deliver, Delivered, Durable, Frame, FrameDecoder, Hello, NextHop, encode
from mailcore.log.data_blocks import sums_of
from mailcore.supervisor.child import SETTINGS_NAME, store_settings
from mailcore.supervisor.listen import SUN_PATH_MAX
from tests.deliverer.delivery import BODY, LIMITS, outcomes
from tests.deliverer.dns_server import NameServer, answering
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.exhausted import no_descriptors
from tests.routing.nameserver import name_server


class Manager:
    """The manager's end: the frames of each connection, in the order of connecting."""

    def __init__(self) -> None:
        self.links: asyncio.Queue[Link] = asyncio.Queue()

    async def listen(self, path: Path) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = Link(reader, writer)
            self.links.put_nowait(link)
            await link.closed.wait()

        # Through the directory's descriptor, as a path may be too long for a socket's address.
        directory = os.open(path.parent, os.O_PATH)
        try:
            return await asyncio.start_unix_server(accept, f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)


class Link:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []
        self.closed = asyncio.Event()

    def send(self, *frames: Frame) -> None:
        self._writer.write(b"".join(encode(frame) for frame in frames))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self) -> Frame:
        while not self._frames:
            data = await self._reader.read(65_536)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def result(self) -> Delivered:
        frame = await self.next()
        assert isinstance(frame, Delivered)
        return frame

    def close(self) -> None:
        self._writer.close()
        self.closed.set()


class Running:
    """A deliverer in this process, its manager, and a segment with a message."""

    def __init__(self, directory: Path, manager: Manager, settings: Settings) -> None:
        self.directory = directory
        self.manager = manager
        self.settings = settings
        self.segment = directory / "00000000000000000000.seg"
        self.segment.write_bytes(b"envelope" + BODY + b"the next record")

    async def link(self) -> Link:
        link = await self.manager.links.get()
        hello = await link.next()
        assert hello == Hello("deliverer", 3, os.getpid(), self.settings.deliverer.concurrency)
        return link

    def work(self, entry: int, port: int, **changes: object) -> Deliver:
        work = Deliver(
            entry=entry,
            queue_id=f"Q{entry}",
            transport="smtp",
            next_hop=NextHop("127.0.0.1", port, False),
            sender="from@example.net",
            recipients=((4, "a@example.org"), (7, "b@example.org")),
            path=str(self.segment),
            offset=8,
            length=len(BODY),
            eight_bit=False,
            smtputf8=False,
        )
        for name, value in changes.items():
            work = replace_field(work, name, value)
        return work


def replace_field(work: Deliver, name: str, value: object) -> Deliver:
    return Deliver(**{field: getattr(work, field) for field in work.__struct_fields__} | {name: value})


def settings_in(directory: Path, **limits: object) -> Settings:
    return Settings(
        home=directory,
        queue_directory=directory,
        spool_directory=directory,
        run_directory=directory,
        log_directory=directory,
        deliverer=replace(LIMITS, **limits),  # type: ignore[arg-type]
    )


@contextlib.asynccontextmanager
async def running(directory: Path, greeting: str = "", **limits: object) -> AsyncIterator[Running]:
    settings = settings_in(directory, **limits)
    settings = replace(settings, receiver=replace(settings.receiver, hostname=greeting))
    manager = Manager()
    server = await manager.listen(directory / MANAGER_SOCKET)
    deliverer = Deliverer(settings, 3, asyncio.get_running_loop())
    task = asyncio.create_task(deliverer.run())
    try:
        yield Running(directory, manager, settings)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        deliverer.close()
        server.close()


async def test_entries_come_back_as_verdicts(tmp_path: Path) -> None:
    async with running(tmp_path) as ours, serving(ScriptedServer()) as server:
        link = await ours.link()
        link.send(ours.work(1, server.port), ours.work(2, server.port))
        results = {result.entry: result for result in (await link.result(), await link.result())}
        assert results.keys() == {1, 2}
        for result in results.values():
            assert [(verdict.number, verdict.status) for verdict in result.verdicts] == [
                (4, Status.DELIVERED),
                (7, Status.DELIVERED),
            ]
            assert result.relay == f"127.0.0.1[127.0.0.1]:{server.port}"
        assert [message.data for message in server.messages] == [BODY, BODY]
        link.close()


@pytest.mark.parametrize(("own", "said"), [("", "relay.example.com"), ("out.example.com", "out.example.com")])
async def test_ehlo_has_the_name_of_the_greeting_unless_it_has_its_own(tmp_path: Path, own: str, said: str) -> None:
    async with running(tmp_path, "relay.example.com", hostname=own) as ours, serving(ScriptedServer()) as server:
        link = await ours.link()
        link.send(ours.work(1, server.port))
        await link.result()
        assert server.sessions[0].lines[0] == f"EHLO {said}"
        link.close()


async def test_no_more_deliveries_run_than_agreed_whatever_the_manager_sends(tmp_path: Path) -> None:
    async with running(tmp_path, concurrency=3) as ours, serving(ScriptedServer()) as server:
        server.data_go_on.clear()
        link = await ours.link()
        link.send(*(ours.work(entry, server.port) for entry in range(50)))
        await server.data_begun.wait()
        await asyncio.sleep(0.1)  # time enough for more
        assert len(server.sessions) <= 3
        server.data_go_on.set()
        entries = {(await link.result()).entry for _ in range(50)}
        assert entries == set(range(50))
        assert len(server.sessions) <= 3  # kept, and used again
        link.close()


@pytest.mark.parametrize(
    ("broken", "event"),
    [
        ({"path": "/nowhere/at/all"}, "data_unreadable"),
        ({"path": "/"}, "data_unreadable"),
        ({"offset": 1_000_000}, "data_damaged"),
        ({"length": 1_000}, "data_damaged"),
        ({"length": 5_000_000}, "data_damaged"),
        ({"data_sums": sums_of(b"of other data")}, "data_damaged"),
        ({"spool_bytes": 1_000_000}, "data_damaged"),
    ],
)
async def test_data_that_is_not_there_or_does_not_match_defers_loudly_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: dict[str, object], event: str
) -> None:
    async with running(tmp_path) as ours, serving(ScriptedServer()) as server:
        link = await ours.link()
        link.send(ours.work(1, server.port, **broken))
        result = await link.result()
        assert outcomes(result) == [("deferred", "4.3.0")] * 2
        assert (result.relay, result.site_failure) == ("none", False)
        assert bool(result.damage) == (event == "data_damaged")
        events = [json.loads(record.message) for record in caplog.records if record.levelno == logging.CRITICAL]
        assert [(each["event"], each["queue_id"]) for each in events] == [(event, "Q1")]
        link.send(ours.work(2, server.port))
        assert outcomes(await link.result()) == [("delivered", "2.0.0")] * 2
        link.close()


async def test_data_that_no_descriptor_is_left_for_is_a_failure_of_the_transport(tmp_path: Path) -> None:
    async with running(tmp_path) as ours, serving(ScriptedServer()) as server:
        link = await ours.link()
        with no_descriptors():
            link.send(ours.work(1, server.port))
            result = await link.result()
        assert outcomes(result) == [("deferred", "4.3.0")] * 2
        assert (result.site_failure, result.transport_failure) == (False, True)
        link.send(ours.work(2, server.port))
        assert outcomes(await link.result()) == [("delivered", "2.0.0")] * 2
        link.close()


async def test_a_bug_defers_one_entry_loudly_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as ours, serving(ScriptedServer()) as server:
        link = await ours.link()
        with monkeypatch.context() as patched:
            patched.setattr(Client, "deliver", None)
            link.send(ours.work(1, server.port))
            assert outcomes(await link.result()) == [("deferred", "4.3.0")] * 2
        event = json.loads(caplog.records[-1].message)
        assert event["event"] == "delivery_failed"
        assert "TypeError" in event["traceback"]
        link.send(ours.work(2, server.port))
        assert outcomes(await link.result()) == [("delivered", "2.0.0")] * 2
        link.close()


async def test_when_the_manager_goes_deliveries_without_their_dot_never_get_it(tmp_path: Path) -> None:
    async with running(tmp_path) as ours, serving(ScriptedServer()) as server:
        big = tmp_path / "spooled"
        big.write_bytes((b"x" * 76 + b"\r\n") * 200_000)
        server.data_go_on.clear()
        link = await ours.link()
        link.send(ours.work(1, server.port, path=str(big), offset=0, length=big.stat().st_size))
        await server.data_begun.wait()
        link.close()
        again = await ours.link()  # it is back by itself
        server.data_go_on.set()
        await server.sessions[0].ended.wait()
        assert server.messages == []
        again.send(ours.work(2, server.port))
        result = await again.result()
        assert (result.entry, outcomes(result)) == (2, [("delivered", "2.0.0")] * 2)
        again.close()


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", encode(Durable("lane", 1, 1, 1))])
async def test_a_manager_that_talks_nonsense_is_left_and_sought_anew(tmp_path: Path, nonsense: bytes) -> None:
    async with running(tmp_path) as ours:
        link = await ours.link()
        link.write(nonsense)
        with pytest.raises((EOFError, ConnectionError)):
            await link.next()
        link.close()
        (await ours.link()).close()


async def test_it_waits_for_a_manager_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deliverer = Deliverer(settings_in(tmp_path), 3, asyncio.get_running_loop())
    task = asyncio.create_task(deliverer.run())
    await asyncio.sleep(0.2)  # time enough for several tries
    manager = Manager()
    server = await manager.listen(tmp_path / MANAGER_SOCKET)
    link = await manager.links.get()
    assert isinstance(await link.next(), Hello)
    assert [json.loads(record.message)["event"] for record in caplog.records] == ["manager_away"]  # said once
    task.cancel()
    link.close()
    server.close()


async def test_the_path_of_the_socket_may_be_longer_than_the_kernel_takes(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * SUN_PATH_MAX)
    directory.mkdir()
    async with running(directory) as ours:
        (await ours.link()).close()


async def test_mail_finds_its_host_by_mx_past_a_dead_one(tmp_path: Path) -> None:
    zone = """
dest IN MX 10 dead.example.
dest IN MX 20 alive.example.
null IN MX 0 .
dead IN A 127.0.0.3
alive IN A 127.0.0.4
"""
    async with serving(ScriptedServer(), "127.0.0.4") as server:
        with name_server(tmp_path, {"example": zone}) as names:
            async with running(tmp_path, nameservers=(names.text,)) as ours:
                link = await ours.link()
                link.send(ours.work(1, 0, next_hop=NextHop("dest.example", server.port, True)))
                result = await link.result()
                assert outcomes(result) == [("delivered", "2.0.0")] * 2
                assert result.relay == f"alive.example[127.0.0.4]:{server.port}"
                link.send(ours.work(2, 0, next_hop=NextHop("null.example", server.port, True)))
                assert outcomes(await link.result()) == [("bounced", "5.1.10")] * 2
                link.close()


async def test_the_process_serves_raises_its_file_limit_and_dies_of_any_signal(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, concurrency=7, hostname="our.example.net")
    stored = tmp_path / SETTINGS_NAME
    store_settings(settings, stored)
    manager = Manager()
    listening = await manager.listen(tmp_path / MANAGER_SOCKET)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", processes.__name__, "deliverer", "5", str(os.getpid()), str(stored),
    )  # fmt: skip
    try:
        async with asyncio.timeout(30):  # it may have ended instead
            link = await manager.links.get()
        assert await link.next() == Hello("deliverer", 5, process.pid, 7)
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
        async with serving(ScriptedServer()) as server:
            ours = Running(tmp_path, manager, settings)
            link.send(ours.work(1, server.port))
            assert outcomes(await link.result()) == [("delivered", "2.0.0")] * 2
            assert server.sessions[0].lines[0] == "EHLO our.example.net"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == -signal.SIGTERM
        link.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        listening.close()


@pytest.mark.parametrize(
    ("level", "signed", "logged"),
    [("dane", ("org",), 1), ("dane-only", (), 1), ("dane", (".",), 0), ("may", (), 0)],
)
async def test_a_name_server_that_does_not_validate_is_logged_once_with_dane(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: str, signed: tuple[str, ...], logged: int
) -> None:
    names = NameServer({". SOA": ["a. b. 1 2 3 4 5"]}, signed=signed)
    async with answering(names):
        settings = settings_in(tmp_path, nameservers=(names.text,))
        policy = {"example.org": TlsPolicy(level=level)}
        deliverer = Deliverer(replace(settings, tls_policy=policy), 3, asyncio.get_running_loop())
        task = asyncio.create_task(deliverer.run())
        await eventually(lambda: "manager_away" in caplog.text)
        if deliverer._looking is not None:
            await deliverer._looking
        task.cancel()
    lines = [json.loads(record.message) for record in caplog.records if "dane_not" in record.message]
    assert [line["levels"] for line in lines] == ["[tls_policy] example.org"] * logged
    assert len(names.asked) == (level != "may")


async def test_a_name_server_of_another_host_does_not_validate(tmp_path: Path) -> None:
    finder = host_finder_of(settings_in(tmp_path, nameservers=("192.0.2.53",)), asyncio.get_running_loop().time)
    assert await finder.why_not_validated() == "none of the name servers is on this host"
