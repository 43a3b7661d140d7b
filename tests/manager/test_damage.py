"""A message whose data is damaged: held with the reason, whole in its queue, never sent and never lost."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.queue import Queue
from mailcore.config.settings import Scheduler, Transport
from mailcore.envelope import DataPlace, Envelope, Status, Verdict
from mailcore.frames import Deliver, Delivered, Request
from mailcore.log.data_blocks import DataDamaged, sums_of
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.manager.manager import Manager
from mailcore.manager_answers import Ordered
from mailcore.queue.lanes import HOLD
from mailcore.queue.records import decode_envelope
from tests.eventually import eventually
from tests.manager.manager_in_process import DATA, INCOMING, Deliverers, Home

DAMAGE = "spool/2b/X: bytes 0 to 4 of 5 do not match their checksum"


def answer(deliverers: Deliverers, status: Callable[[Deliver], Status | None]) -> list[Deliver]:
    """A verdict for every entry given so far; None: its data is damaged."""
    entries, deliverers.waiting = deliverers.waiting, []
    frames = []
    for entry in entries:
        given = status(entry)
        damage = DAMAGE if given is None else ""
        each = Status.DEFERRED if given is None else given
        told = tuple(Verdict(number, each, "4.3.0", "said so") for number, _ in entry.recipients)
        frames.append(Delivered(entry.entry, told, "none", "", False, 0.0, 0.0, damage=damage))
    deliverers.manager.flow.delivered(deliverers.link, frames)
    return entries


def damaged(entry: Deliver) -> Status | None:
    return None


def events(manager: Manager, home: Home, name: str) -> list[dict[str, Any]]:
    manager.log.flush()
    lines = (home.path / "log" / "mail.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == name]


def resting(home: Home, lane: str) -> list[Envelope]:
    """The living messages of a lane, read from the files."""
    reader = LaneReader(Disk(), str(home.path / "queue" / lane), lambda damage: None)
    found = [decode_envelope(record.body) for record in reader.records(0) if record.live]
    reader.close()
    return found


async def checkpoints(manager: Manager) -> None:
    await manager.context.commit.wait()
    await manager._checkpoint()


async def changed(manager: Manager, request: Request) -> Ordered:
    """The answer to an operator's change, which waits for a checkpoint."""
    change = manager.context.loop.create_task(manager.orders.change(request))
    await until(manager, change.done)
    return await change


async def until(manager: Manager, true: Callable[[], object]) -> None:
    """Writes checkpoints until ``true``: before them, mail of the manager's own lanes is not read."""

    async def so() -> object:
        await checkpoints(manager)
        return true()

    await eventually(so)


async def until_held(manager: Manager, home: Home) -> Envelope:
    await until(manager, lambda: resting(home, HOLD))
    assert not manager.context.queue.active
    (envelope,) = resting(home, HOLD)
    return envelope


def flip(home: Home, at: int = 0) -> None:
    """Changes a byte of the message's data in the log."""
    (path,) = (home.path / "queue" / INCOMING).glob("*.seg")
    content = path.read_bytes()
    place = content.rindex(DATA) + at
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def size_of(entry: Deliver) -> int:
    return Path(entry.path).stat().st_size


def data_of(entry: Deliver) -> bytes:
    return Path(entry.path).read_bytes()[entry.offset : entry.offset + entry.length]


async def test_it_is_held_with_the_reason_and_the_log_says_so(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: answer(deliverers, damaged))
    envelope = await until_held(manager, home)
    assert (envelope.queue_id, envelope.data_sums) == (queue_id, sums_of(DATA))
    assert DAMAGE in envelope.held_because
    (event,) = events(manager, home, "data_damaged")
    assert (event["queue_id"], event["what"]) == (queue_id, DAMAGE)
    assert manager.context.counters["data_damaged"] == 1
    assert not deliverers.waiting
    size = manager.context.queue.sizes.summary()
    assert (size.messages, size.recipients) == (1, 1)


async def test_a_release_tries_it_again_with_the_same_checksums(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    (first,) = await eventually(lambda: answer(deliverers, damaged))
    assert (first.data_sums, first.spool_bytes) == (sums_of(DATA), 0)
    await until_held(manager, home)
    hold = manager.context.queue.runners[HOLD]
    reader = manager.context.queue.reader(HOLD)
    (offset,) = [record.offset for record in reader.records(0, hold.readable_end) if record.live]
    request = Request(1, "release", {"messages": [[queue_id, HOLD, offset]]}, "operator", "the file was restored")
    assert (await changed(manager, request)).changed == 1
    (second,) = await eventually(lambda: answer(deliverers, lambda entry: Status.DELIVERED))
    assert (second.data_sums, second.spool_bytes) == (sums_of(DATA), size_of(second))
    assert data_of(second) == DATA
    await eventually(lambda: manager.context.counters.get("finished") == 1)


async def test_those_who_got_it_keep_it_and_only_the_others_are_held(home: Home) -> None:
    manager = home.start(transport=Transport(destination_recipient_limit=1))
    deliverers = Deliverers(manager)
    home.accept(2)
    await eventually(lambda: len(deliverers.waiting) == 2)
    answer(deliverers, lambda entry: Status.DELIVERED if entry.recipients[0][0] else None)
    envelope = await until_held(manager, home)
    assert [recipient.number for recipient in envelope.recipients] == [0]


async def test_several_deliveries_of_it_at_once_hold_it_once(home: Home) -> None:
    manager = home.start(transport=Transport(destination_recipient_limit=1))
    deliverers = Deliverers(manager)
    home.accept(2)
    await eventually(lambda: len(deliverers.waiting) == 2)
    answer(deliverers, damaged)
    envelope = await until_held(manager, home)
    assert envelope.recipient_count == 2
    assert len(events(manager, home, "data_damaged")) == 1


@pytest.mark.parametrize("operation", ["delete", "hold"])
async def test_what_an_operator_orders_meanwhile_counts(home: Home, operation: str) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    active = manager.context.queue.active[queue_id]
    request = Request(1, operation, {"messages": [[queue_id, INCOMING, active.offset]]}, "operator", "because")
    change = manager.context.loop.create_task(changed(manager, request))
    await eventually(lambda: active.orders)
    answer(deliverers, damaged)
    await change
    await eventually(lambda: not manager.context.queue.active)
    await checkpoints(manager)
    lane = {"delete": "deleted", "hold": HOLD}[operation]
    assert [envelope.queue_id for envelope in resting(home, lane)] == [queue_id]


async def test_killed_before_or_after_the_record_is_synced_it_is_neither_lost_nor_sent(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    answer(deliverers, damaged)  # not synced
    home.kill()
    manager = home.start()
    deliverers = Deliverers(manager)
    await eventually(lambda: deliverers.waiting or resting(home, HOLD))
    answer(deliverers, damaged)
    await manager.context.commit.wait()  # synced; the hold's envelope need not be
    home.kill()
    manager = home.start()
    deliverers = Deliverers(manager)
    envelope = await until_held(manager, home)
    assert envelope.queue_id == queue_id
    assert not deliverers.waiting


# -- inline data that moves to a spool file

MOVES = Queue(segment_bytes=1 << 20, reserve_bytes=0, retry_ladder_s=(300, 600), refer_deferred=False)


async def defer(home: Home, manager: Manager, deliverers: Deliverers) -> None:
    await eventually(lambda: answer(deliverers, lambda entry: Status.DEFERRED))


async def test_data_that_is_damaged_when_it_moves_keeps_its_checksums_and_is_held(home: Home) -> None:
    manager = home.start(queue=MOVES)
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    flip(home, 2)
    answer(deliverers, lambda entry: Status.DEFERRED)
    envelope = await until_held(manager, home)
    assert (envelope.queue_id, envelope.data_sums) == (queue_id, sums_of(DATA))
    (path,) = (home.path / "spool").glob(f"??/{queue_id}")
    assert path.read_bytes()[32:37] == b"hemlo"  # as it was; its checksums still show the damage
    assert path.stat().st_size == envelope.spool_bytes
    (event,) = events(manager, home, "data_damaged")
    assert INCOMING in event["what"]


async def test_data_of_an_older_version_gets_checksums_when_it_moves(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    home.accept(1, old=True)
    (entry,) = await eventually(lambda: answer(deliverers, lambda entry: Status.DEFERRED))
    assert entry.data_sums == b""
    await eventually(lambda: not manager.context.queue.active)
    await checkpoints(manager)
    (envelope,) = resting(home, "retry.300")
    assert envelope.data_sums == sums_of(DATA)


async def test_damaged_data_of_an_older_version_stays_where_it_is(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1, old=True)
    await eventually(lambda: deliverers.waiting)
    flip(home)
    answer(deliverers, lambda entry: Status.DEFERRED)
    await eventually(lambda: events(manager, home, "failed"))
    await checkpoints(manager)
    assert queue_id in manager.context.queue.active  # it would get checksums that fit the damage
    assert not list((home.path / "spool").glob(f"??/{queue_id}"))
    assert [envelope.queue_id for envelope in resting(home, INCOMING)] == []  # its record is damaged, and kept


async def test_a_bounce_has_no_headers_that_do_not_match(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    for change in (False, True):
        home.accept(1)
        await eventually(lambda: deliverers.waiting)
        entry = deliverers.waiting[0]
        if change:
            flip(home, 1)
        answer(deliverers, lambda entry: Status.BOUNCED)
        await until(manager, lambda: deliverers.waiting)
        (bounce,) = deliverers.waiting
        data = data_of(bounce)
        assert bounce.data_sums == sums_of(data)
        assert (DATA in data) == (not change)
        assert b"iello" not in data
        assert b"hdllo" not in data
        assert entry.queue_id != bounce.queue_id
        answer(deliverers, lambda entry: Status.DELIVERED)
        await eventually(lambda: not manager.context.queue.active)


async def test_reading_the_beginning_checks_the_blocks_it_is_in(home: Home) -> None:
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    active = manager.context.queue.active[queue_id]
    assert manager.context.queue.data.read(active, 2) == DATA[:2]
    flip(home, 4)
    with pytest.raises(DataDamaged):
        manager.context.queue.data.read(active, 2)


async def test_after_a_damaged_envelope_the_size_is_right_and_it_balances(home: Home) -> None:
    """It counted as queued although no list had it."""
    manager = home.start()
    deliverers = Deliverers(manager)
    damaged_id = home.accept(2)
    (path,) = (home.path / "queue" / INCOMING).glob("*.seg")
    content = path.read_bytes()
    path.write_bytes(content.replace(damaged_id.encode(), b"?" * len(damaged_id)))
    home.accept(1)
    await eventually(lambda: answer(deliverers, lambda entry: Status.DELIVERED))
    queue = manager.context.queue
    await eventually(lambda: not queue.sizes.summary().messages)
    assert queue.sizes.summary().recipients == 0
    assert events(manager, home, "record_set_aside")
    balance = manager.state.state({}).balance
    assert (balance.recipients["difference"], balance.messages["difference"]) == (0, 0)
    assert (balance.messages["finished"], balance.messages["queued"], balance.messages["lost"]) == (1, 0, 1)
    assert (balance.recipients["queued"], balance.recipients["lost"]) == (0, 2)


@pytest.mark.parametrize("recipients", [1, 30])
async def test_many_recipients_whose_data_is_damaged_in_their_record_are_held(home: Home, recipients: int) -> None:
    """The record has the recipients and the data, and one checksum."""
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(recipients)
    await eventually(lambda: deliverers.waiting)
    flip(home)
    answer(deliverers, damaged)
    envelope = await until_held(manager, home)
    assert (envelope.queue_id, envelope.recipient_count) == (queue_id, recipients)
    assert envelope.data_sums == sums_of(DATA)
    assert [event["queue_id"] for event in events(manager, home, "data_damaged")] == [queue_id]


async def test_data_that_is_damaged_before_its_record_is_read_costs_no_envelope(home: Home) -> None:
    queue_id = home.accept(30)
    flip(home)
    manager = home.start()
    deliverers = Deliverers(manager)
    await eventually(lambda: answer(deliverers, damaged))
    envelope = await until_held(manager, home)
    assert (envelope.queue_id, envelope.recipient_count) == (queue_id, 30)
    assert not events(manager, home, "record_set_aside")


async def test_data_that_the_disk_cannot_read_is_held_and_what_is_there_is_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = home.start(queue=MOVES)
    deliverers = Deliverers(manager)
    queue_id = home.accept(1)
    await eventually(lambda: deliverers.waiting)
    (entry,) = deliverers.waiting
    whole_read = Disk.read

    def read(self: Disk, fd: int, length: int, offset: int) -> bytes:
        if offset <= entry.offset < offset + length:
            raise OSError(errno.EIO, "Input/output error")
        return whole_read(self, fd, length, offset)

    monkeypatch.setattr(Disk, "read", read)
    answer(deliverers, lambda entry: Status.DEFERRED)  # as the deliverer does: the disk may come back
    await eventually(lambda: events(manager, home, "data_damaged"))
    monkeypatch.undo()
    envelope = await until_held(manager, home)
    assert envelope.queue_id == queue_id
    assert "the disk can't read it" in envelope.held_because


async def test_many_recipients_whose_record_is_damaged_are_not_lost(home: Home) -> None:
    """A record whose envelope is damaged can't be rewritten, so the message stays as it is, unsent."""
    manager = home.start()
    deliverers = Deliverers(manager)
    queue_id = home.accept(30)
    await eventually(lambda: deliverers.waiting)
    (path,) = (home.path / "queue" / INCOMING).glob("*.seg")
    path.write_bytes(path.read_bytes().replace(b"r29@", b"x29@"))
    flip(home)
    answer(deliverers, damaged)
    await eventually(lambda: events(manager, home, "failed"))
    await checkpoints(manager)
    assert not deliverers.waiting
    assert queue_id in manager.context.queue.active
    assert [event["queue_id"] for event in events(manager, home, "data_damaged")] == [queue_id]
    home.kill()
    manager = home.start()
    deliverers = Deliverers(manager)
    await until(manager, lambda: manager.context.queue.unreadable)
    assert not deliverers.waiting
    assert [known.queue_id for known in manager.context.queue.unreadable.values()] == [queue_id]


# -- data that stays where it lies is not read when its message moves: what is damaged shows when it is to be used

STAYS = Queue(segment_bytes=1 << 20, reserve_bytes=1 << 20, retry_ladder_s=(1, 600), carry_limit=len(DATA) - 1)
SOON = Scheduler(minimal_backoff_time=1.0)


async def damaged_at_rest(home: Home, manager: Manager, deliverers: Deliverers) -> str:
    """A message that was deferred, whose data changed in the record where it stays."""
    queue_id = home.accept(1)
    await defer(home, manager, deliverers)
    await eventually(lambda: not manager.context.queue.active)
    await checkpoints(manager)
    (envelope,) = resting(home, "retry.1")
    assert envelope.data is DataPlace.LOG
    flip(home, 2)
    return queue_id


@pytest.mark.parametrize("unreadable", [False, True])
async def test_what_stays_and_is_damaged_is_held_when_it_is_tried(
    home: Home, monkeypatch: pytest.MonkeyPatch, unreadable: bool
) -> None:
    manager = home.start(SOON, queue=STAYS)
    deliverers = Deliverers(manager)
    queue_id = await damaged_at_rest(home, manager, deliverers)
    await until(manager, lambda: deliverers.waiting)
    (entry,) = deliverers.waiting
    whole_read, inode = Disk.read, os.stat(entry.path).st_ino

    def read(self: Disk, fd: int, length: int, offset: int) -> bytes:
        if unreadable and offset <= entry.offset < offset + length and os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return whole_read(self, fd, length, offset)

    monkeypatch.setattr(Disk, "read", read)
    answer(deliverers, damaged)
    envelope = await until_held(manager, home)
    assert (envelope.queue_id, envelope.data, envelope.data_sums) == (queue_id, DataPlace.SPOOL, sums_of(DATA))
    (path,) = (home.path / "spool").glob(f"??/{queue_id}")
    kept = bytes(len(DATA)) if unreadable else b"hemlo"  # what the disk gives; the checksums still show the damage
    assert path.read_bytes()[32:37] == kept
    assert [event["queue_id"] for event in events(manager, home, "data_damaged")] == [queue_id]


async def test_what_stays_and_is_damaged_moves_on_with_its_checksums_while_it_is_only_deferred(home: Home) -> None:
    manager = home.start(SOON, queue=STAYS)
    deliverers = Deliverers(manager)
    queue_id = await damaged_at_rest(home, manager, deliverers)
    await until(manager, lambda: deliverers.waiting)
    answer(deliverers, lambda entry: Status.DEFERRED)
    await eventually(lambda: not manager.context.queue.active)
    await checkpoints(manager)
    (envelope,) = resting(home, "retry.1")
    assert (envelope.queue_id, envelope.generation, envelope.data) == (queue_id, 2, DataPlace.LOG)
    assert envelope.data_sums == sums_of(DATA), "its deliverer will see it"
    assert not events(manager, home, "data_damaged")


async def test_what_stays_and_is_damaged_is_found_after_a_deletion_that_was_undone(home: Home) -> None:
    manager = home.start(SOON, queue=STAYS)
    deliverers = Deliverers(manager)
    queue_id = await damaged_at_rest(home, manager, deliverers)
    for operation, lane in (("delete", "retry.1"), ("undelete", "deleted")):
        reader = manager.context.queue.reader(lane)
        end = manager.context.queue.runners[lane].readable_end
        (offset,) = [record.offset for record in reader.records(0, end) if record.live]
        request = Request(1, operation, {"messages": [[queue_id, lane, offset]]}, "operator", "because")
        assert (await changed(manager, request)).changed == 1
    await until(manager, lambda: deliverers.waiting)
    assert deliverers.waiting[0].data_sums == sums_of(DATA)
    answer(deliverers, damaged)
    assert (await until_held(manager, home)).queue_id == queue_id


async def test_a_bounce_of_what_stays_and_is_damaged_has_no_headers_that_do_not_match(home: Home) -> None:
    manager = home.start(SOON, queue=STAYS)
    deliverers = Deliverers(manager)
    queue_id = await damaged_at_rest(home, manager, deliverers)
    await until(manager, lambda: deliverers.waiting)
    answer(deliverers, lambda entry: Status.BOUNCED)
    await until(manager, lambda: deliverers.waiting)
    (bounce,) = deliverers.waiting
    assert bounce.queue_id != queue_id
    data = data_of(bounce)
    assert bounce.data_sums == sums_of(data)
    assert b"hemlo" not in data
