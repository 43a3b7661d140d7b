"""Mail for a dead destination is deferred without a try: recorded, counted and logged like any other, its data left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import Status, Verdict
from mailcore.frames import Delivered
from mailcore.log.disk import Disk
from mailcore.manager.manager import Manager
from mailcore.queue.records import Administrative, Delivery
from mailcore.queue.sizes import Amount
from tests.manager.manager_in_process import NEXT_HOP, Deliverers, Home, turns

REFUSED = "connect to mx.example.org[192.0.2.1]:25: Connection refused"
MESSAGES = 400
# Dead after the first failure, so that a test need not make a cohort of them.
TRANSPORT = Transport(initial_destination_concurrency=1)


class Watched(Disk):
    """Remembers what is asked of it by name."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[tuple[str, str]] = []


def _watch(name: str) -> None:
    plain = getattr(Disk, name)

    def watched(self: Watched, *arguments: object) -> object:
        self.named += [(name, argument) for argument in arguments if isinstance(argument, str)]
        return plain(self, *arguments)

    setattr(Watched, name, watched)


for _name in ("create", "open_read", "open_write", "size_of", "modified", "replace", "unlink", "list", "is_directory",
              "create_directory", "make_directory", "sync_directory", "exists"):  # fmt: skip
    _watch(_name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Watched:
    disk = Watched()
    monkeypatch.setattr("mailcore.manager.manager.Disk", lambda: disk)
    return disk


def fail(manager: Manager, deliverers: Deliverers, transport: bool = False) -> int:
    """Every entry given so far fails, as at a host that refuses connections; or for want of descriptors."""
    entries, deliverers.waiting = deliverers.waiting, []
    manager.flow.delivered(
        deliverers.link,
        [
            Delivered(
                entry.entry,
                tuple(Verdict(number, Status.DEFERRED, "4.4.1", REFUSED) for number, _ in entry.recipients),
                "mx.example.org[192.0.2.1]:25", "", not transport, 0.0, 0.0, transport,
            )
            for entry in entries
        ],
    )  # fmt: skip
    return len(entries)


def in_spool(disk: Watched, home: Home) -> list[tuple[str, str]]:
    return [(call, path) for call, path in disk.named if path.startswith(str(home.path / "spool"))]


def logged(manager: Manager, home: Home) -> Iterator[dict[str, object]]:
    manager.log.flush()
    for line in (home.path / "log" / "mail.jsonl").read_text().splitlines():
        yield json.loads(line)


async def test_one_failure_is_enough_and_the_others_are_deferred_unseen(home: Home) -> None:
    manager = home.start(transport=TRANSPORT)
    deliverers = Deliverers(manager)
    for _ in range(MESSAGES):
        home.accept(1)
    tried = 0

    def each() -> None:
        nonlocal tried
        tried += fail(manager, deliverers)

    await turns(manager, lambda: manager.context.counters.get("replaced") == MESSAGES, each)
    assert tried == 1
    assert manager.context.counters["put_off"] == MESSAGES - 1
    assert manager.context.scheduler.active_messages == 0
    assert manager.context.queue.sizes.summary().destinations == {NEXT_HOP: MESSAGES}
    verdicts = [line for line in logged(manager, home) if line["event"] == "delivery"]
    assert len(verdicts) == MESSAGES
    unseen = [line for line in verdicts if line["relay"] == "none"]
    assert len(unseen) == MESSAGES - 1
    assert {(line["dsn"], line["status"], line["reply"]) for line in unseen} == {
        ("4.4.1", "deferred", f"delivery temporarily suspended: {REFUSED}")
    }


async def test_from_retry_lane_to_retry_lane_no_spool_file_is_named(home: Home, disk: Watched) -> None:
    spooled = Queue(segment_bytes=1 << 20, reserve_bytes=0, retry_ladder_s=(1,), carry_limit=0, refer_deferred=False)
    manager = home.start(Scheduler(minimal_backoff_time=1000.0), TRANSPORT, queue=spooled)
    deliverers = Deliverers(manager)
    for _ in range(MESSAGES):
        home.accept(1)
    counters = manager.context.counters
    await turns(manager, lambda: counters.get("replaced") == MESSAGES, lambda: fail(manager, deliverers))
    stored = {path for call, path in in_spool(disk, home) if call == "create"}
    assert len(stored) == MESSAGES, "new mail that has to wait is moved to the spool once"
    await manager.context.commit.wait()
    await manager._checkpoint()
    disk.named.clear()
    await turns(manager, lambda: counters["replaced"] == 2 * MESSAGES)
    assert counters["put_off"] == 2 * MESSAGES - 1
    assert disk.named, "it is watched"
    assert in_spool(disk, home) == []
    assert not deliverers.waiting


async def test_feedback_is_logged_where_it_is_asked_for(home: Home) -> None:
    manager = home.start(
        transport=Transport(initial_destination_concurrency=2, destination_concurrency_feedback_debug=True)
    )
    deliverers = Deliverers(manager)
    for _ in range(4):
        home.accept(1)
    await turns(manager, lambda: len(deliverers.waiting) == 2)
    deliverers.answer()
    await turns(manager, lambda: len(deliverers.waiting) == 2)
    fail(manager, deliverers)
    await turns(manager, lambda: manager.context.counters.get("replaced") == 2)
    changes: list[dict[str, object]] = []
    windows: list[int] = []

    def is_smaller() -> bool:  # the next turn logs it
        changes[:] = [line for line in logged(manager, home) if line["event"] == "window_changed"]
        windows[:] = [int(str(line["window"])) for line in changes]
        return windows[-1] < 3

    await turns(manager, is_smaller)
    assert windows[0] == 3
    assert {line["destination"] for line in changes} == {NEXT_HOP}
    assert all(line["limit"] == 20 for line in changes)


async def test_what_the_transport_lacks_suspends_all_of_it(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    for _ in range(30):
        home.accept(1)
    await turns(manager, lambda: deliverers.waiting)
    tried = fail(manager, deliverers, transport=True)
    await turns(manager, lambda: manager.context.counters.get("replaced") == 30, lambda: fail(manager, deliverers))
    unseen = [line for line in logged(manager, home) if line.get("relay") == "none"]
    assert len(unseen) >= 30 - 2 * tried
    assert {line["dsn"] for line in unseen} == {"4.3.0"}


async def test_a_crash_before_the_record_is_synced_forgets_nobody(home: Home) -> None:
    manager = home.start(transport=TRANSPORT)
    deliverers = Deliverers(manager)
    home.accept(5_000)
    await turns(manager, lambda: deliverers.waiting)
    fail(manager, deliverers)
    await turns(manager, lambda: manager.context.counters.get("put_off"))
    home.kill()
    manager = home.start()
    deliverers = Deliverers(manager)
    got: list[int] = []
    await turns(manager, lambda: manager.context.counters.get("finished"), lambda: got.extend(deliverers.answer()))
    assert sorted(got) == list(range(5_000))


async def test_on_a_full_disk_nothing_is_put_off(home: Home) -> None:
    manager = home.start(transport=TRANSPORT)
    deliverers = Deliverers(manager)
    for _ in range(5):
        home.accept(1)
    await turns(manager, lambda: deliverers.waiting)
    manager.context.stalled = "the disk is full"
    fail(manager, deliverers)
    await manager.context.commit.wait()
    for _ in range(10):
        manager.go_on()
        await turns(manager, iter([False, True]).__next__)
    assert "put_off" not in manager.context.counters
    manager.context.stalled = ""
    manager.go_on()
    await turns(manager, lambda: manager.context.counters.get("put_off") == 4)


async def test_an_order_for_what_is_being_put_off_is_obeyed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = home.start(transport=TRANSPORT)
    deliverers = Deliverers(manager)
    home.accept(1)
    await turns(manager, lambda: deliverers.waiting)
    fail(manager, deliverers)
    await turns(manager, lambda: manager.context.counters.get("replaced"))
    recorded: list[Delivery] = []
    deliver = manager.context.queue.deliver

    def held_meanwhile(record: Delivery) -> None:
        recorded.append(record)
        deliver(record)

    monkeypatch.setattr(manager.context.queue, "deliver", held_meanwhile)
    queue_id = home.accept(1)
    await turns(manager, lambda: recorded)
    active = manager.context.queue.active[queue_id]
    order = Administrative("hold", queue_id, "operator", "because", manager.context.wall())
    manager.context.queue.administer(order)
    active.orders.append(order)
    manager.flow.stop_for_order(active)
    await turns(manager, lambda: queue_id not in manager.context.queue.active)
    assert manager.context.queue.sizes.summary().lanes["hold"] == Amount(messages=1, recipients=1)
