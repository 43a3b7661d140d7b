"""Spool files: there after every crash once complete, and no message before."""

from __future__ import annotations

import errno
import itertools

import pytest

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.queue.spool import DATA_AT, Spool, SpoolDamaged
from tests.simulated_disk import PowerLoss, SimulatedDisk, every

HOME = "/spool"
DATA = b"Subject: x\r\n\r\nbody\r\n"
ID = "0GABCDEFGHJKM"


def envelope(queue_id: str = ID) -> Envelope:
    return Envelope(
        queue_id=queue_id,
        generation=0,
        sender="s@example.net",
        recipients=(Recipient(0, "r@example.org"),),
        recipient_count=1,
        arrived_at=1.5,
        size_bytes=len(DATA),
        data=DataPlace.SPOOL,
        data_offset=DATA_AT,
    )


def write(spool: Spool) -> None:
    file = spool.create(ID)
    file.write([DATA[:5], b"", DATA[5:9]])
    file.write([DATA[9:]])
    file.complete(envelope())
    file.close()


def good(disk: SimulatedDisk) -> bool:
    spool = Spool(disk, HOME)
    try:
        found, size = spool.read_envelope(ID)
    except (SpoolDamaged, FileNotFoundError):
        return False
    return (found, size) == (envelope(), len(DATA)) and disk.image(spool.path(ID))[DATA_AT : DATA_AT + size] == DATA


def test_law_durable_a_complete_file_is_there_after_every_crash() -> None:
    disk = SimulatedDisk()
    write(Spool(disk, HOME))
    for choice in every(3000):
        assert good(disk.crash(choice))


def test_a_crash_before_that_leaves_nothing_that_stops_anybody() -> None:
    for point in itertools.count(1):
        disk = SimulatedDisk()
        disk.crash_before(point)
        try:
            write(Spool(disk, HOME))
        except PowerLoss:
            for choice in every(3000):
                after = disk.crash(choice)
                good(after)
                spool = Spool(after, HOME)
                spool.store(envelope(), DATA)  # whatever was left of it
                for second in every(3000):
                    assert good(after.crash(second))
            continue
        return


def test_storing_twice_is_storing_once() -> None:
    disk = SimulatedDisk()
    spool = Spool(disk, HOME)
    for _ in range(3):
        spool.store(envelope(), DATA)
    assert list(spool.queue_ids()) == [ID]
    assert disk.open_files() == []
    assert good(disk)


def test_a_file_of_the_same_id_is_not_overwritten_by_a_receiver() -> None:
    spool = Spool(SimulatedDisk(), HOME)
    write(spool)
    with pytest.raises(FileExistsError):
        spool.create(ID)


def test_an_abandoned_file_is_gone_and_closed_also_when_the_disk_fails() -> None:
    disk = SimulatedDisk()
    spool = Spool(disk, HOME)
    file = spool.create(ID)
    disk.capacity = disk.used() + 3
    with pytest.raises(OSError, match="No space") as caught:
        file.write([DATA])
    assert caught.value.errno == errno.ENOSPC
    file.abandon()
    assert (list(spool.queue_ids()), disk.open_files()) == ([], [])
    disk.capacity = None
    file = spool.create(ID)
    disk.fail("unlink")
    file.abandon()
    assert disk.open_files() == []


def test_a_failed_sync_is_no_success() -> None:
    for call in ("sync", "sync_directory"):
        disk = SimulatedDisk()
        spool = Spool(disk, HOME)
        file = spool.create(ID)
        file.write([DATA])
        disk.fail(call)
        with pytest.raises(OSError, match="error"):
            file.complete(envelope())


def test_damage_of_head_or_envelope_is_seen() -> None:
    disk = SimulatedDisk()
    spool = Spool(disk, HOME)
    write(spool)
    path = spool.path(ID)
    image = disk.image(path)
    places = [*range(28), *range(DATA_AT + len(DATA), len(image))]
    for at in places:
        disk.damage(path, at, bytes([image[at] ^ 0x10]))
        with pytest.raises(SpoolDamaged, match=ID):
            spool.read_envelope(ID)
        disk.damage(path, at, image[at : at + 1])
    for cut in range(len(image)):
        shorter = disk.kill()
        shorter.put(path, image[:cut])
        with pytest.raises(SpoolDamaged, match=ID):
            Spool(shorter, HOME).read_envelope(ID)


def test_removing_what_is_gone_is_removing() -> None:
    spool = Spool(SimulatedDisk(), HOME)
    spool.remove(ID)
    write(spool)
    spool.remove(ID)
    spool.remove(ID)
    assert list(spool.queue_ids()) == []


def test_ids_spread_over_the_directories() -> None:
    spool = Spool(SimulatedDisk(), HOME)
    assert len({spool.path(f"0GABCDEF{n:05d}").split("/")[2] for n in range(1000)}) == 64
