"""A manager with a lease gives nothing out beyond it, and one with a store has what the store has."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mailcore.envelope import Status
from mailcore.frames import Deliver, Hello, Lease, encode
from mailcore.log.disk import Disk
from mailcore.log.positions import NAME
from mailcore.log.segment import SUFFIX
from mailcore.manager.links import Link
from mailcore.manager.manager import Manager
from tests.manager.manager_in_process import Deliverers, Home, turns
from tests.queue.memory_store import MemoryStore


class GivenLease:
    """Holds or not, as the test says."""

    def __init__(self) -> None:
        self.until = float("-inf")
        self.held = False
        self.trouble = ""
        self.wanted = ""

    def holds(self) -> bool:
        return self.held

    def renew(self, until: float) -> None:
        self.until, self.held = until, True


class Leased(Deliverers):
    """A deliverer that also hears until when."""

    def __init__(self, manager: Manager) -> None:
        self.told: list[float] = []
        super().__init__(manager)

    def send(self, frame: Deliver | Lease) -> None:
        if isinstance(frame, Lease):
            self.told.append(frame.until)
        else:
            super().send(frame)


def nothing_left(manager: Manager) -> Callable[[], bool]:
    return lambda: not manager.context.queue.active and not manager.flow.is_under_way


async def test_nothing_is_given_out_without_a_lease_and_a_renewal_goes_to_all(home: Home) -> None:
    """law: no-dot-after-lease."""
    lease = GivenLease()
    manager = home.start(lease=lease)
    assert manager.leasing is not None
    deliverer = Leased(manager)
    queue_id = home.accept(1)
    await turns(manager, lambda: queue_id in manager.context.queue.active)
    manager.leasing.look()
    (reason,) = manager.state.explain({"queue_id": queue_id}).reasons
    assert reason.state == "lease over"
    assert deliverer.waiting == []

    lease.renew(1006.0)
    manager.leasing.look()
    assert deliverer.told == [1006.0], "before the first entry"
    await turns(manager, lambda: deliverer.waiting)
    lease.held = False
    later = home.accept(1)
    await turns(manager, lambda: later in manager.context.queue.active)
    manager.leasing.look()
    assert len(deliverer.answer()) == 1
    await turns(manager, lambda: queue_id not in manager.context.queue.active)
    assert deliverer.waiting == [], "nothing begins behind the end"

    lease.renew(1012.0)
    manager.leasing.look()
    assert deliverer.told == [1006.0, 1012.0]
    await turns(manager, lambda: deliverer.waiting)
    deliverer.answer()
    await turns(manager, nothing_left(manager))


async def test_a_deliverer_that_comes_hears_until_when_before_it_gets_an_entry(home: Home) -> None:
    lease = GivenLease()
    lease.renew(1006.0)
    manager = home.start(lease=lease)
    link = Link(manager)
    sent: list[bytes] = []

    class Transport:
        def write(self, data: bytes) -> None:
            sent.append(bytes(data))

        def is_closing(self) -> bool:
            return False

    link.connection_made(Transport())  # type: ignore[arg-type]
    home.accept(1)
    link.data_received(encode(Hello("deliverer", 0, 4711, 10)))
    await turns(manager, lambda: b"".join(sent).count(b"example.org"))
    assert b"".join(sent).startswith(encode(Lease(1006.0)))


async def test_the_state_says_when_the_lease_is_over_and_why(home: Home) -> None:
    lease = GivenLease()
    manager = home.start(lease=lease, store=MemoryStore())
    lease.renew(time.clock_gettime(time.CLOCK_BOOTTIME) + 1000.0)
    shard = manager.state.state({}).shard
    assert shard is not None
    assert 900 < shard.lease_s <= 1000
    assert (shard.commit_waits_s, shard.trouble) == (0.0, "")
    lease.held, lease.trouble = False, "no standby"
    ended = manager.state.state({}).shard
    assert ended is not None
    assert (ended.lease_s, ended.trouble) == (0.0, "no standby")


async def test_a_queue_that_is_alone_has_no_lease_to_tell_of(home: Home) -> None:
    assert home.start().state.state({}).shard is None


async def serve(manager: Manager, deliverer: Deliverers) -> int:
    """Takes the first recipient of each message, and defers the others, until nothing is left to do; returns for how many."""
    count = 0
    await turns(manager, lambda: deliverer.waiting)
    while deliverer.waiting:
        count += len(deliverer.answer(lambda number: Status.DEFERRED if number else Status.DELIVERED))
        await turns(manager, lambda: deliverer.waiting or not manager.context.queue.active)
    return count


async def test_a_manager_with_a_store_has_the_files_that_the_store_has(home: Home, tmp_path: Path) -> None:
    """law: local-after-commit. Mail that ended, mail that was deferred, and a second start."""
    store = home.writer.store = MemoryStore()
    for _ in range(2):
        manager = home.start(store=store)
        for _ in range(5):
            home.accept(2)
        assert await serve(manager, Deliverers(manager)) == 10
        await manager._checkpoint()
        await manager._checkpoint()
        local = {str(path) for path in (tmp_path / "queue").rglob(f"*{SUFFIX}")}
        assert local == {path for path in store.files if path.endswith(SUFFIX)}
        for path in [*sorted(local), str(tmp_path / "queue" / NAME)]:
            assert Disk().read_whole(path) == bytes(store.files[path]), path
        home.kill()
