"""Spool files that no message speaks of go; no other ever does."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from mailcore.envelope import DataPlace, Envelope, Status
from mailcore.log.disk import Disk
from mailcore.log.record import RETAINED
from mailcore.queue.active import Active
from mailcore.queue.identity import establish, guards_of, read_identity, write_identity
from mailcore.queue.lanes import AT_ONCE
from mailcore.queue.queue import Queue
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.recovery import recover
from mailcore.queue.spool import DATA_AT
from mailcore.queue.sweep import AGE_S, CHECKPOINTS, PASS_S, Sweep
from tests.lookup.sample_messages import Lane, envelope
from tests.queue.audit import audit
from tests.queue.simulated_machine import UNDO_S, OutsideMemory, SimulatedMachine
from tests.simulated_disk import SimulatedDisk

NOW = 1_795_000_000.0
LONG_AGO = NOW - 2 * AGE_S
_old_ids = QueueIds(3, lambda: LONG_AGO)
_new_ids = QueueIds(3, lambda: NOW - 60)


class SweptSpool:
    """A queue and its spool on a real disk, with hands on both clocks."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.incoming = Lane(home / "queue", "incoming.0", 64 << 10)
        self.wall, self.monotonic = NOW, 1000.0
        self.slept = 0.0
        self.disk = Disk()
        self.directories = {name: str(home / name) for name in ("home", "queue", "spool")}
        held = establish(self.disk, self.directories, str(home / "log"), "", NOW, lambda: "1" * 32)
        self.disk.guards = guards_of(self.directories, held.identity)
        recovered = recover(
            self.disk,
            str(home / "queue"),
            str(home / "spool"),
            segment_bytes=64 << 10,
            names_counted=10,
            undo_time_s=UNDO_S,
            clock=lambda: self.wall,
            salt=lambda: 42,
            on_damage=lambda damage: None,
        )
        self.queue: Queue = recovered.queue
        self.sweep = Sweep(self.queue, lambda: self.wall, lambda: self.monotonic, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept += seconds

    def file(self, queue_id: str, *, complete: bool = True, written: float = LONG_AGO) -> Path:
        spool = self.queue.spool
        file = spool.create(queue_id)
        file.write([b"Subject: x\r\n"])
        if complete:
            file.complete(message(queue_id))
        file.close()
        os.utime(file.path, (written, written))
        return Path(file.path)

    def one_pass(self) -> int:
        """What it removes."""
        before = self.sweep.removed
        for folder in self.sweep.folders():
            for queue_ids in self.sweep.old_ones(folder):
                search = self.sweep.watch(queue_ids)
                if search is not None:
                    search.run()
                    self.sweep.remove(self.sweep.orphans(search), search)
        self.sweep.remove_indexes()
        return self.sweep.removed - before

    def passes(self) -> int:
        """As many as it takes for an orphan to go."""
        removed = self.one_pass()
        self.wait(AGE_S)
        return removed + self.one_pass()

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds
        self.queue.sequence += CHECKPOINTS

    def arrive(self, *envelopes: Envelope) -> None:
        self.incoming.write(*envelopes)
        runner = self.queue.runners.get("incoming.0") or self.queue.add_runner("incoming.0", 0, 0)
        runner.extend(self.incoming.end)

    def begin(self) -> Active:
        runner = self.queue.runners["incoming.0"]
        head = runner.peek(self.wall, self.monotonic)
        assert head is not None
        active = self.queue.begin(runner, *head, self.monotonic)
        assert active is not None
        return active

    def carries(self, name: str, digits: str) -> None:
        """Gives a directory another identity, as if another Waypost's disk were mounted there."""
        identity = read_identity(Disk(), name, self.directories[name])
        assert identity is not None
        write_identity(Disk(), self.directories[name], msgspec.structs.replace(identity, identity=digits))


def message(queue_id: str) -> Envelope:
    return envelope(queue_id=queue_id, data=DataPlace.SPOOL, data_offset=DATA_AT, size_bytes=12)


@pytest.fixture
def swept(tmp_path: Path) -> SweptSpool:
    return SweptSpool(tmp_path)


def test_a_file_whose_envelope_was_never_written_goes_at_the_second_look(swept: SweptSpool) -> None:
    orphan = swept.file(_old_ids.next())
    assert swept.one_pass() == 0
    swept.wait(AGE_S - 1)
    assert swept.one_pass() == 0
    swept.wait(1)
    assert swept.one_pass() == 1
    assert not orphan.exists()


@pytest.mark.parametrize("name", ["queue", "spool"])
def test_nothing_goes_while_queue_or_spool_carries_another_identity(swept: SweptSpool, name: str) -> None:
    """Of another Waypost's spool no envelope here speaks; of this one's, those of a queue that is missing do."""
    file = swept.file(_old_ids.next())
    swept.carries(name, "2" * 32)
    for _ in range(3):
        with pytest.raises(OSError, match=f"the {name} directory .* belongs to another Waypost"):
            swept.one_pass()
        swept.wait(AGE_S)
    assert file.exists()
    swept.carries(name, "1" * 32)
    assert swept.passes() == 1


def test_nothing_goes_when_a_disk_is_exchanged_between_the_search_and_the_removal(swept: SweptSpool) -> None:
    file = swept.file(_old_ids.next())
    assert swept.one_pass() == 0
    swept.wait(AGE_S)
    search = swept.sweep.watch([file.name])
    assert search is not None
    search.run()
    orphans = swept.sweep.orphans(search)
    swept.carries("queue", "2" * 32)
    with pytest.raises(OSError, match="belongs to another Waypost"):
        swept.sweep.remove(orphans, search)
    assert file.exists()


def test_a_process_without_an_identity_sweeps_nothing(swept: SweptSpool) -> None:
    file = swept.file(_old_ids.next())
    swept.disk.guards = ()
    assert swept.passes() == 0
    assert file.exists()


def test_a_file_stays_until_both_kept_positions_are_from_after_the_first_look(swept: SweptSpool) -> None:
    """With older ones the FINISH behind it might not count, and the message need it (law: delete-after-both-positions)."""
    swept.file(_old_ids.next())
    swept.one_pass()
    swept.wait(AGE_S)
    swept.queue.sequence -= 1
    assert swept.one_pass() == 0
    swept.queue.sequence += 1
    assert swept.one_pass() == 1


def test_an_upload_that_was_never_completed_goes(swept: SweptSpool) -> None:
    orphan = swept.file(_old_ids.next(), complete=False)
    assert swept.passes() == 1
    assert not orphan.exists()


def test_a_file_that_an_envelope_at_rest_names_stays(swept: SweptSpool) -> None:
    queue_id = _old_ids.next()
    swept.file(queue_id)
    swept.arrive(message(queue_id))
    assert swept.passes() == 0


def test_a_file_stays_though_nobody_said_how_far_the_lane_is_durable(swept: SweptSpool) -> None:
    """The manager was away for hours, and the receiver went on."""
    queue_id = _old_ids.next()
    swept.file(queue_id)
    swept.incoming.write(message(queue_id))
    assert swept.passes() == 0


def test_a_file_of_a_message_being_worked_on_stays(swept: SweptSpool) -> None:
    queue_id = _old_ids.next()
    swept.file(queue_id)
    swept.arrive(message(queue_id))
    swept.begin()
    assert swept.passes() == 0


def test_a_file_that_only_garbage_names_goes(swept: SweptSpool) -> None:
    queue_id = _old_ids.next()
    swept.file(queue_id)
    (offset,) = swept.incoming.write(message(queue_id))
    swept.incoming.mark_garbage(offset)
    assert swept.passes() == 1


@pytest.mark.parametrize("covered", [False, True], ids=["in the tail", "in what the index covers"])
def test_a_file_that_only_a_retained_record_names_goes(
    swept: SweptSpool, *, covered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailcore.log.lane.INDEX_STRIDE", 4096)
    queue_id = _old_ids.next()
    swept.file(queue_id)
    (offset,) = swept.incoming.write(message(queue_id))
    swept.incoming.write(*(envelope() for _ in range(3000 if covered else 0)))
    swept.incoming.mark(offset, RETAINED)
    assert swept.passes() == 1


@pytest.mark.parametrize("filler", [0, 3000], ids=["in the tail", "in what the index covers"])
def test_a_message_is_found_wherever_it_lies_in_its_lane(
    swept: SweptSpool, filler: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailcore.log.lane.INDEX_STRIDE", 4096)
    kept, gone = _old_ids.next(), _old_ids.next()
    swept.file(kept)
    swept.file(gone)
    offset = swept.incoming.write(message(gone), message(kept))[0]
    swept.incoming.write(*(envelope() for _ in range(filler)))
    swept.incoming.mark_garbage(offset)
    assert swept.passes() == 1
    assert list(swept.queue.spool.queue_ids()) == [kept]


def test_a_young_file_is_not_looked_for(swept: SweptSpool) -> None:
    swept.file(_new_ids.next())
    assert [ids for folder in swept.sweep.folders() for ids in swept.sweep.old_ones(folder)] == []


def test_a_file_written_to_meanwhile_stays(swept: SweptSpool) -> None:
    """A client that was silent for long goes on."""
    file = swept.file(_old_ids.next(), complete=False)
    assert swept.one_pass() == 0
    swept.wait(AGE_S)
    os.utime(file, (swept.wall, swept.wall))
    assert swept.one_pass() == 0
    swept.wait(AGE_S)
    assert swept.one_pass() == 0, "this is the first look at it"


def test_a_jump_of_the_wall_clock_removes_nothing(swept: SweptSpool) -> None:
    swept.file(_new_ids.next(), written=NOW - 60)
    swept.wall += 10 * AGE_S
    assert swept.one_pass() == 0
    swept.monotonic += 60
    assert swept.one_pass() == 0


def test_a_name_we_never_gave_is_not_touched(swept: SweptSpool) -> None:
    file = swept.file(_old_ids.next())
    for name in ("notes.txt", "short"):
        foreign = file.with_name(name)
        foreign.write_bytes(b"somebody's")
        os.utime(foreign, (LONG_AGO, LONG_AGO))
    assert swept.passes() == 1
    assert sorted(path.name for path in file.parent.iterdir()) == ["notes.txt", "short"]


def test_where_a_lane_is_damaged_only_files_never_completed_go(swept: SweptSpool) -> None:
    whole, part = swept.file(_old_ids.next()), swept.file(_old_ids.next(), complete=False)
    first, _ = swept.incoming.write(message(whole.name), envelope())
    (segment,) = swept.incoming.directory.glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(first + 30)
        file.write(b"\xff\xff\xff")
    assert swept.passes() == 1
    assert whole.exists()
    assert not part.exists()


def test_a_message_that_moves_while_the_lanes_are_read_keeps_its_file(swept: SweptSpool) -> None:
    """From a lane not yet read into one already read: nobody sees its envelope, but the mark takes it out."""
    queue_id = _old_ids.next()
    swept.file(queue_id)
    swept.arrive(message(queue_id))
    search = swept.sweep.watch([queue_id])
    assert search is not None
    active = swept.begin()
    swept.queue.finish(active)
    swept.queue.journal.sync()
    swept.queue.journal_synced(swept.queue.journal.durable)
    assert search.run().named == set()
    assert swept.sweep.orphans(search) == []


def test_a_search_rests_nine_times_as_long_as_it_works(swept: SweptSpool) -> None:
    queue_id = _old_ids.next()
    swept.arrive(message(queue_id))
    search = swept.sweep.watch([queue_id])
    assert search is not None
    search.monotonic = iter(range(100)).__next__  # each look at it is a second later
    search.run()
    assert swept.slept == 9 * len(list((swept.home / "queue").glob("[!j]*/*.seg")))


def test_a_pass_comes_after_a_while_and_then_again(swept: SweptSpool) -> None:
    assert not swept.sweep.is_due()
    swept.wait(600)
    assert swept.sweep.is_due()
    assert not swept.sweep.is_due()
    swept.wait(PASS_S)
    assert swept.sweep.is_due()


def test_an_index_whose_segment_is_gone_goes(swept: SweptSpool) -> None:
    swept.arrive(envelope())
    stray = swept.incoming.directory / f"{'7'.zfill(20)}.idx"
    stray.write_bytes(b"left")
    there = swept.incoming.directory / f"{'0'.zfill(20)}.idx"
    there.write_bytes(b"")
    swept.one_pass()
    assert not stray.exists()
    assert there.exists()


@pytest.mark.parametrize("seed", range(10))
def test_no_message_of_a_random_history_loses_its_data(seed: int) -> None:
    """Every file looks old, and every pass is one that removes."""
    rng = random.Random(seed)
    machine = SimulatedMachine(SimulatedDisk(), OutsideMemory(), 6000)
    monotonic = iter(range(0, 1 << 30, int(2 * AGE_S)))
    sweep = Sweep(machine.queue, lambda: 1e15, lambda: float(next(monotonic)), lambda seconds: None)
    actives: list[Active] = []
    for _ in range(60):
        machine.accept(rng.choice([1, 3]), big=rng.random() < 0.5, size=300)
        machine.durable()
        while rng.random() < 0.6 and (active := machine.begin()) is not None:
            machine.load(active)
            actives.append(active)
        if actives and rng.random() < 0.7:
            active = actives.pop(rng.randrange(len(actives)))
            if rng.random() < 0.2:
                machine.order(active, "hold")
            else:
                verdict = rng.choice([Status.DELIVERED, Status.DEFERRED, Status.BOUNCED])
                machine.attempt(active, dict.fromkeys(active.pending, verdict))
                machine.end(active, AT_ONCE, 0.0)
        if rng.random() < 0.3:
            machine.checkpoint()
        ids = list(machine.queue.spool.queue_ids())
        for _ in range(2):
            search = sweep.watch(ids)
            if search is not None:
                if rng.random() < 0.3:
                    machine.checkpoint()
                search.run()
                if rng.random() < 0.3:
                    machine.checkpoint()
                sweep.remove(sweep.orphans(search), search)
        audit(machine.disk.kill(), machine.outside, 6000)
