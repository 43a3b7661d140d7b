"""The routes of a process: replaced as a whole when files change, and never by a bad file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mailcore.config.live_routes import LiveRoutes
from mailcore.config.load import load_text
from mailcore.config.settings import Settings
from mailcore.envelope import Status
from mailcore.frames import NextHop
from mailcore.routing.resolve import Refused, Resolved, Routing
from tests.eventually import eventually


class Log:
    """Keeps the lines that the routes log."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int, int]] = []
        self.refused: list[tuple[list[str], bool]] = []

    def routes_read(self, files: int, routes: int, fallbacks: int) -> None:
        self.read.append((files, routes, fallbacks))

    def routes_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        self.refused.append((list(faults), in_use))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_text(tmp_path / "waypost.toml", '[route_maps]\nsender_routes = ["map"]\n')


async def looking(routes: LiveRoutes, true: Callable[[], object]) -> None:
    def so() -> object:
        routes.look()
        return true()

    await eventually(so)


def destination(routing: Routing) -> str:
    found = routing.of_message("kim@sender.example", "")("a@any.example", "")
    return found.destination if isinstance(found, Resolved) else f"{found.status.name} {found.reply}"


async def test_a_change_replaces_the_routing_and_a_bad_file_does_not(
    settings: Settings, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """law: routes-stay-good."""
    file, log, swapped = tmp_path / "map", Log(), list[Routing]()
    file.write_text("other.example relay:[192.0.2.1]\n")
    routes = LiveRoutes(settings, log, threads, swapped.append)
    before = routes.routing
    assert destination(before) == "smtp:any.example"
    file.write_text("sender.example relay:[192.0.2.2]\n")
    await looking(routes, lambda: log.read)
    assert log.read == [(1, 2, 0)]
    assert swapped == [routes.routing]
    assert destination(routes.routing) == "relay:[192.0.2.2]"
    assert destination(before) == "smtp:any.example", "it is another one"
    file.write_text("sender.example nowhere\n")
    await looking(routes, lambda: log.refused)
    for _ in range(10):
        routes.look()
    ((faults, in_use),) = log.refused
    assert faults[0].startswith(f"{file}:1: 'sender.example' must name a transport that is defined")
    assert in_use
    assert destination(routes.routing) == "relay:[192.0.2.2]"
    assert len(swapped) == 1
    file.unlink()
    await looking(routes, lambda: len(log.refused) == 2)
    assert "No such file" in log.refused[1][0][0]
    assert destination(routes.routing) == "relay:[192.0.2.2]"


async def test_without_any_usable_file_mail_waits_and_an_operator_may_reroute_it(
    settings: Settings, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    log = Log()
    routes = LiveRoutes(settings, log, threads, keeps_tables=True)
    assert log.refused == [([f"{tmp_path}/map: cannot be read: No such file or directory"], False)]
    assert destination(routes.routing) == "DEFERRED the files of [route_maps] cannot be used"
    assert routes.tables.routes == {}
    rerouted = routes.routing.resolve("a@any.example", "smtp:[192.0.2.7]")
    assert isinstance(rerouted, Resolved)
    bad = routes.routing.resolve("nonsense")
    assert isinstance(bad, Refused)
    assert bad.status is Status.BOUNCED
    (tmp_path / "map").write_text("sender.example bulk\n")
    await looking(routes, lambda: log.read)
    assert destination(routes.routing) == "bulk:any.example"
    assert routes.tables.places["sender_routes"]["sender.example"].line == 1


async def test_without_files_nothing_is_watched(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    routes = LiveRoutes(load_text(tmp_path / "waypost.toml", '[sender_routes]\n"<>" = "bulk"\n'), None, threads)
    await routes.watch()
    routes.look()
    assert routes.tables.sender_routes == {"<>": "bulk"}
    assert destination(routes.routing) == "smtp:any.example"


async def test_without_a_usable_file_of_fallbacks_there_is_no_fallback(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    """law: routes-stay-good. Mail that an operator reroutes goes meanwhile: to its next hop, or nowhere."""
    text = '[transports.smtp]\nfallback_relay = ["toml.example"]\n[route_maps]\n'
    of_transport = (NextHop("toml.example", 25, True),)
    other = LiveRoutes(load_text(tmp_path / "waypost.toml", text + 'routes = ["map"]\n'), None, threads)
    assert other.routing.fallbacks.of("smtp:any.example") == of_transport
    log = Log()
    settings = load_text(tmp_path / "waypost.toml", text + 'fallback_relay = ["map"]\n')
    routes = LiveRoutes(settings, log, threads, keeps_tables=True)
    assert log.refused
    assert isinstance(routes.routing.resolve("a@any.example", "smtp:[192.0.2.7]"), Resolved)
    assert routes.routing.fallbacks.of("smtp:[192.0.2.7]") == ()
    (tmp_path / "map").write_text("smtp:.example [192.0.2.8]\n")
    await looking(routes, lambda: log.read)
    assert log.read == [(1, 1, 2)]
    assert routes.routing.fallbacks.of("smtp:[192.0.2.7]") == of_transport
    assert routes.routing.fallbacks.of("smtp:any.example") == (NextHop("192.0.2.8", 25, False),)
    before = routes.routing
    (tmp_path / "map").write_text("smtp:.example 192.0.2.9\n")
    await looking(routes, lambda: len(log.refused) == 2)
    assert routes.routing is before
    assert routes.tables.places["fallback_relay"]["smtp:.example"].line == 1
