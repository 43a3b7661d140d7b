"""Queue ids over restarts: none is given out twice, whatever the clock, a power failure or a disk does.

Proves law: ids-never-reused (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from mailcore.log.disk import Disk
from mailcore.queue.queue_id import QueueIds, arrival_of
from mailcore.queue.reserved_time import AHEAD_S, ReservedFile, ReservedTime, ReservedTooNew, read_reserved
from mailcore.queue.versions import NotOurs, look_at_versions
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk, every

PATH = "/queue/incoming.0/ids"
NOW = 1_790_000_000.0


def on_a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/queue/incoming.0")
    return disk


def ids_of(disk: Disk, clock: Callable[[], float], threads: Executor | None = None, path: str = PATH) -> QueueIds:
    return QueueIds(0, clock, ReservedTime(ReservedFile(disk, path)), threads)


def test_a_process_that_starts_with_an_earlier_clock_begins_behind_all_ids_before() -> None:
    disk = on_a_disk()
    first = ids_of(disk, lambda: NOW)
    before = [first.next() for _ in range(50)]
    second = ids_of(disk.kill(), lambda: NOW - 86_400)
    after = [second.next() for _ in range(50)]
    assert sorted({*before, *after}) == [*before, *after]
    assert arrival_of(after[-1]) <= NOW + AHEAD_S + 1


def test_law_ids_none_is_given_out_twice_after_a_power_failure_at_any_call() -> None:
    """Two lives whose clocks go back, each with ids before and behind an extension."""

    def history(disk: SimulatedDisk, given_out: list[str]) -> None:
        for clock in (NOW, NOW - 7_200):
            times = iter([clock, clock, clock + AHEAD_S - 1, clock + AHEAD_S + 1, clock + 3 * AHEAD_S, clock])
            ids = ids_of(disk, lambda times=times: next(times))  # type: ignore[misc]
            for _ in range(6):
                given_out.append(ids.next())

    whole = on_a_disk()
    history(whole, [])
    assert whole.changes > 10
    for point in range(1, whole.changes + 2):
        disk = on_a_disk()
        given_out: list[str] = []
        disk.crash_before(point)
        with contextlib.suppress(PowerLoss):
            history(disk, given_out)
        for choice in every(500):
            ids = ids_of(disk.crash(choice), lambda: NOW - 86_400)
            assert [each for each in given_out if each >= ids.next()] == [], f"crash before call {point}"


@pytest.mark.parametrize("seed", range(40))
def test_law_ids_they_ascend_over_many_lives_with_any_clock_and_failing_syncs(seed: int) -> None:
    rng = random.Random(seed)
    disk, given_out = on_a_disk(), [""]
    for _ in range(12):
        clock = [NOW + rng.choice([-1e6, -20.0, -5.0, 0.0, 5.0, 20.0, 1e6])]
        ids = ids_of(disk, lambda clock=clock: clock[0])  # type: ignore[misc]
        for _ in range(rng.randrange(1, 30)):
            clock[0] += rng.choice([0.0, 0.001, 4.0, -30.0, 30.0])
            if rng.random() < 0.1:
                disk.fail("sync", in_path="ids", lying=rng.random() < 0.5)
            with contextlib.suppress(OSError):
                given_out.append(ids.next())
        disk = disk.kill() if rng.random() < 0.3 else disk.crash(RandomChoice(rng.randrange(1 << 30)))
    assert sorted(set(given_out)) == given_out


def test_a_restart_in_a_loop_does_not_carry_the_ids_far_ahead_of_the_clock() -> None:
    disk = on_a_disk()
    for _ in range(100):
        last = ids_of(disk, lambda: NOW).next()
        disk = disk.kill()
    assert arrival_of(last) < NOW + 2 * AHEAD_S + 1


def test_an_id_that_finds_nothing_reserved_is_not_given_out() -> None:
    disk = on_a_disk()
    ids = ids_of(disk, lambda: NOW)
    disk.fail("sync", in_path="ids", times=2)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            ids.next()
    assert arrival_of(ids.next()) == pytest.approx(NOW, abs=1)
    assert read_reserved(disk, PATH) >= (NOW + AHEAD_S) * 1e6


def test_a_sync_that_failed_is_not_tried_again_on_that_file() -> None:
    disk, now = on_a_disk(), NOW
    ids = ids_of(disk, lambda: now)
    ids.next()
    disk.fail("sync", in_path="ids", lying=True)  # the next sync of this file would say OK, and the disk has zeros
    now += 2 * AHEAD_S
    with pytest.raises(OSError, match="Input/output"):
        ids.next()
    before = len(disk.log)
    given_out = ids.next()
    assert [path for call, path in disk.log[before:] if call == "sync"] == [f"{PATH}.new"]
    assert ids_of(disk.crash(RandomChoice(1)), lambda: NOW - 100).next() > given_out


class InOrder(Executor):
    """Does at once what is submitted, or keeps it while the disk hangs."""

    def __init__(self) -> None:
        self.hangs = False
        self.kept: list[Callable[[], object]] = []

    def submit(self, call: Any, /, *arguments: Any, **_: Any) -> Any:
        self.kept.append(lambda: call(*arguments))
        if not self.hangs:
            self.go_on()

    def go_on(self) -> None:
        while self.kept:
            self.kept.pop(0)()


def test_with_threads_more_is_reserved_before_it_is_needed() -> None:
    clock, disk, threads = [NOW], on_a_disk(), InOrder()
    ids = ids_of(disk, lambda: clock[0], threads)
    for passed_s, until_s in ((0.0, 10.0), (4.0, 10.0), (6.0, 16.0), (16.0, 26.0), (500.0, 510.0)):
        clock[0] = NOW + passed_s
        ids.prepare()
        assert read_reserved(disk, PATH) == int((NOW + until_s) * 1e6)
        assert arrival_of(ids.next()) == pytest.approx(clock[0], abs=0.001)


def test_with_threads_an_id_is_a_little_older_while_the_disk_hangs_and_none_comes_twice() -> None:
    clock, disk, threads = [NOW], on_a_disk(), InOrder()
    ids = ids_of(disk, lambda: clock[0], threads)
    ids.prepare()
    given_out = [ids.next()]
    threads.hangs = True
    for passed_s in (20.0, 40.0, 65.0):
        clock[0] = NOW + passed_s
        ids.prepare()
        given_out += [ids.next(), ids.next()]
        assert arrival_of(given_out[-1]) == pytest.approx(NOW + 9, abs=0.001)
    assert read_reserved(disk, PATH) == int((NOW + 10) * 1e6)
    clock[0] = NOW + 75.0  # the age of a file is judged by its id: this one waits for the disk
    given_out.append(ids.next())
    assert arrival_of(given_out[-1]) == pytest.approx(NOW + 75, abs=0.001)
    assert sorted(set(given_out)) == given_out
    threads.go_on()
    assert ids_of(disk.kill(), lambda: NOW - 100).next() > given_out[-1]


def test_with_threads_a_clock_that_was_set_back_begins_behind_what_was_reserved() -> None:
    disk = on_a_disk()
    before = ids_of(disk, lambda: NOW).next()
    ids = ids_of(disk.kill(), lambda: NOW - 3_600, InOrder())
    ids.prepare()
    assert ids.next() > before
    assert read_reserved(disk, PATH) <= (NOW + AHEAD_S + 1) * 1e6


def test_a_torn_block_leaves_the_other_and_two_reserve_nothing(tmp_path: Path) -> None:
    path, now = tmp_path / "ids", NOW
    ids = ids_of(Disk(), lambda: now, path=str(path))
    for _ in range(2):
        ids.next()
        now += 2 * AHEAD_S
    whole = path.read_bytes()
    found = []
    for at in (0, 4096):
        path.write_bytes(whole[:at] + b"\xff" * 4096 + whole[at + 4096 :])
        found.append(read_reserved(Disk(), str(path)) / 1e6)
    assert sorted(found) == [NOW + AHEAD_S, NOW + 3 * AHEAD_S]
    for damaged in (b"", whole[:10], b"\xff" * len(whole), whole.replace(b"WAYIDS", b"WAYODS")):
        path.write_bytes(damaged)
        assert read_reserved(Disk(), str(path)) == 0
        assert arrival_of(ids_of(Disk(), lambda: NOW, path=str(path)).next()) == pytest.approx(NOW, abs=1)


def test_a_block_that_cannot_be_read_is_damage_and_another_error_is_not() -> None:
    disk = on_a_disk()
    ids_of(disk, lambda: NOW).next()
    disk.fail("read", in_path="ids")
    assert read_reserved(disk, PATH) == 0
    disk.fail("read", in_path="ids", error=errno.ENOMEM)
    with pytest.raises(OSError, match="memory"):
        read_reserved(disk, PATH)


@pytest.mark.parametrize("place", ["queue/incoming.0/ids", "queue/ids.control"])
def test_what_a_newer_waypost_reserved_stops_the_start(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    ids_of(Disk(), lambda: NOW, path=str(path)).next()
    parts = (Disk(), str(tmp_path), str(tmp_path / "queue"), str(tmp_path / "events"))
    look_at_versions(*parts)
    path.write_bytes(_of_version_two(path.read_bytes()))
    with pytest.raises(ReservedTooNew, match="format version 2, this Waypost reads up to 1"):
        read_reserved(Disk(), str(path))
    with pytest.raises(NotOurs, match="nothing was started or written"):
        look_at_versions(*parts)


def _of_version_two(content: bytes) -> bytes:
    head = content[:8] + b"\x02\0\0\0" + b"\0\0\0\0" + content[16:24]
    checksum = int(google_crc32c.value(head))
    return head[:12] + checksum.to_bytes(4, "little") + content[16:]
