"""The laws with a store: after any commit the node is gone with its disk, and another one makes its files from the store.

law: local-after-commit
"""

from __future__ import annotations

import random

import pytest

from mailcore.log.positions import NAME, PREVIOUS
from mailcore.log.record import GARBAGE, LIVE, RETAINED
from mailcore.log.segment import SUFFIX
from mailcore.queue.spool import DATA_AT
from tests.queue.audit import audit
from tests.queue.memory_store import MemoryStore
from tests.queue.outside_memory import OutsideMemory
from tests.queue.simulated_machine import HOME, SPOOL
from tests.queue.test_laws_histories import SEGMENT_BYTES, Story, retired_segments, short_lists, to_the_end
from tests.simulated_disk import SimulatedDisk

__all__ = ["short_lists"]  # a fixture

MARKS = {LIVE, RETAINED, GARBAGE}


def check_local(disk: SimulatedDisk, store: MemoryStore) -> None:
    """The local disk has nothing that the store lacks, but for marks, and files that count only with a record."""
    for path in [*below(disk, HOME), *below(disk, SPOOL)]:
        if not path.endswith(SUFFIX) and not path.startswith(SPOOL):
            continue
        if path in store.gone and path not in store.files:
            continue  # it goes here after it went there
        local, kept = disk.image(path), store.files.get(path, b"")
        assert len(local) <= len(kept), f"{path} has {len(local)} bytes here, and {len(kept)} are kept"
        unlike = [at for at, byte in enumerate(local) if byte != kept[at]]
        assert all(
            {local[at], kept[at]} <= MARKS or (path.startswith(SPOOL) and at < DATA_AT and not local[at])
            for at in unlike
        ), f"{path} differs at {unlike}"
    for name in (NAME, PREVIOUS):
        path = f"{HOME}/{name}"
        assert not disk.exists(path) or disk.image(path) in store.ever[f"{HOME}/{NAME}"]


def below(disk: SimulatedDisk, directory: str) -> list[str]:
    found = []
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        found += below(disk, path) if disk.is_directory(path) else [path]
    return found


def watch(store: MemoryStore, outside: OutsideMemory, rng: random.Random, how_often: float) -> None:
    """Around a commit, now and then: the node is gone, and what another one finds is audited; that one goes, too."""

    def look(is_kept: bool) -> None:
        if rng.random() > how_often:
            return
        found = store.copy()
        if rng.random() < 0.4:
            inner = random.Random(rng.getrandbits(32))

            def again(is_kept: bool) -> None:
                if inner.random() < 0.3:
                    second = found.copy()
                    audit(second.disk(), outside, SEGMENT_BYTES, store=second)

            found.on_commit = again
        audit(found.disk(), outside, SEGMENT_BYTES, store=found)

    store.on_commit = look


def run(seed: int, steps: int, lives: int, how_often: float) -> int:
    rng = random.Random(seed)
    store, outside = MemoryStore(), OutsideMemory()
    for _ in range(lives):
        disk = store.disk()
        store.on_commit = None
        story = Story(disk, outside, rng, store)
        watch(store, outside, rng, how_often)

        def check(call: str, path: str, disk: SimulatedDisk = disk) -> None:
            if rng.random() < how_often / 4:
                check_local(disk, store)

        disk.on_change = check
        for _ in range(steps):
            story.step()
    store.on_commit = None
    disk = store.disk()
    machine = audit(disk, outside, SEGMENT_BYTES, store=store)
    to_the_end(machine, outside, seed)
    check_local(disk, store)
    kept = sorted(path for path in store.files if path.endswith(SUFFIX) or path.startswith(SPOOL))
    here = [path for path in below(disk, HOME) if path.endswith(SUFFIX)] + below(disk, SPOOL)
    assert kept == sorted(here), "what is deleted here is deleted there; the sweep finds what no envelope names"
    assert not retired_segments(store.disk())
    return store.commits


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_there_twice_whenever_the_node_goes(seed: int) -> None:
    assert run(seed, steps=40, lives=3, how_often=0.15) > 50


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_nothing_is_lost_or_there_twice_in_long_histories_whenever_the_node_goes(seed: int) -> None:
    run(seed, steps=150, lives=5, how_often=0.25)
