"""One identity: written once, whatever ends the first start; and never given to a directory that was exchanged."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from mailcore.faults import Code
from mailcore.log.disk import Disk
from mailcore.queue.adoption import adopt
from mailcore.queue.exported import ExportedLane, ExportedPositions, write_exported
from mailcore.queue.identity import (
    NAME,
    Held,
    Identity,
    IdentityDamaged,
    IdentityError,
    establish,
    guards_of,
    look,
    read_identity,
    refusal,
    write_identity,
)
from mailcore.queue.spool import Spool
from tests.queue.steps import begun, defer_all, new_machine
from tests.simulated_disk import PowerLoss, SimulatedDisk, every

NOW = 1_795_000_000.0
DIRECTORIES = {"home": "/base", "queue": "/queue", "spool": "/spool", "events": "/base/events"}
DIGITS = "0123456789abcdef" * 2


def tokens(digits: str) -> Callable[[], str]:
    """``digits`` for the identity, and then a number for each mark."""
    numbers = itertools.count(1)
    given = iter([digits])
    return lambda: next(given, None) or f"{next(numbers):032x}"


def start(disk: Disk, digits: str = DIGITS, directories: dict[str, str] | None = None, log: str = "/base/log") -> Held:
    """What the supervisor does before it starts anything."""
    return establish(disk, directories or DIRECTORIES, log, "/base/reports", NOW, tokens(digits))


def carried(disk: Disk, directories: dict[str, str] | None = None) -> dict[str, str]:
    """Directory -> identity, of those that carry one."""
    found = {name: read_identity(disk, name, path) for name, path in (directories or DIRECTORIES).items()}
    return {name: identity.identity for name, identity in found.items() if identity is not None}


def started() -> SimulatedDisk:
    disk = SimulatedDisk()
    start(disk)
    return disk.kill()


def without(disk: SimulatedDisk, path: str) -> SimulatedDisk:
    """As if the disk mounted there were missing: the directory is there and empty."""
    disk = disk.kill()
    parent, name = disk._parent(path)
    del parent.now[name]
    parent.platter.pop(name, None)
    disk.make_directory(path)
    return disk


def of_old_version(kind: str) -> SimulatedDisk:
    """A queue with one message whose data is in the spool, as a version without identities left it."""
    machine, _, disk = new_machine()
    machine.accept(1, big=kind in ("new", "deferred"))
    machine.accept(1)
    machine.durable()
    if kind == "deferred":
        defer_all(machine, begun(machine))
    machine.checkpoint()
    return disk.kill()


def each_first_start() -> Iterator[tuple[int, SimulatedDisk]]:
    """The disk of a first start that ended before each of its calls, and after the last."""
    whole = SimulatedDisk()
    start(whole)
    for number in range(1, whole.changes + 2):
        disk = SimulatedDisk()
        disk.crash_before(number)
        with contextlib.suppress(PowerLoss):
            start(disk)
        yield number, disk


def test_a_first_start_that_ends_anywhere_is_continued_by_the_next() -> None:
    for number, disk in each_first_start():
        for found in (disk.kill(), *(disk.crash(choice) for choice in every(5000))):
            held = start(found, "f" * 32)
            assert set(carried(found)) == set(DIRECTORIES), number
            assert set(carried(found).values()) == {held.identity.identity}, number
            assert held.identity.identity in (DIGITS, "f" * 32)
            again = start(found.kill(), "e" * 32)
            assert again.identity == held.identity


def test_a_first_start_of_a_queue_with_mail_that_ends_anywhere_is_continued_by_the_next() -> None:
    whole = of_old_version("deferred")
    before = whole.changes
    start(whole)
    for number in range(before + 1, whole.changes + 2):
        disk = of_old_version("deferred")
        disk.crash_before(disk.changes + number - before)
        with contextlib.suppress(PowerLoss):
            start(disk)
        for found in (disk.kill(), *(disk.crash(choice) for choice in every(5000))):
            start(found, "f" * 32)
            assert len(set(carried(found).values())) == 1
            without_spool = without(found, "/spool")
            with pytest.raises(IdentityError):
                start(without_spool)


def test_what_a_start_has_reported_is_there_after_every_crash() -> None:
    disk = SimulatedDisk()
    start(disk)
    for choice in every(100):
        assert carried(disk.crash(choice)) == dict.fromkeys(DIRECTORIES, DIGITS)


@pytest.mark.parametrize("kind", ["new", "deferred"])
def test_a_home_of_a_version_without_identities_gets_one(kind: str) -> None:
    disk = of_old_version(kind)
    start(disk)
    assert carried(disk) == dict.fromkeys(DIRECTORIES, DIGITS)


@pytest.mark.parametrize("kind", ["new", "deferred"])
def test_an_upgrade_without_the_disk_of_the_spool_is_refused(kind: str) -> None:
    disk = without(of_old_version(kind), "/spool")
    before = disk.changes
    with pytest.raises(
        IdentityError, match=r"the spool directory /spool lacks the data of queued mail, such as M0000000000"
    ):
        start(disk)
    assert (carried(disk), disk.changes) == ({}, before)


def test_an_upgrade_without_the_disk_of_the_queue_is_refused() -> None:
    disk = without(of_old_version("deferred"), "/queue")
    with pytest.raises(
        IdentityError, match="the queue directory /queue holds no queue, but there are spool files in /spool"
    ):
        start(disk)
    disk = without(without(of_old_version("deferred"), "/queue"), "/spool")
    disk.make_directory("/base/events/_exported")
    write_exported(disk, "/base/events/_exported", ExportedPositions({"journal": ExportedLane(1)}))
    with pytest.raises(IdentityError, match="holds no queue, but events of one are in /base/events"):
        start(disk)
    disk = without(without(of_old_version("deferred"), "/queue"), "/spool")
    disk.make_directory("/base/log")
    disk.put("/base/log/mail.jsonl", b'{"event": "started"}\nno JSON\n{"event": "recovered", "messages": 1}\n')
    with pytest.raises(IdentityError, match=r"holds no queue, but /base/log/mail\.jsonl says that there was one"):
        start(disk)


def test_a_start_that_was_refused_before_is_no_queue() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/base/log")
    disk.put("/base/log/mail.jsonl", b'{"event": "start_refused"}\n')
    start(disk)


def test_an_upgrade_without_the_disk_of_the_events_is_refused() -> None:
    disk = of_old_version("new")
    disk.make_directory("/base/reports/days/dt=2026-11-18")
    with pytest.raises(IdentityError, match="the events directory /base/events holds no events, but reports were made"):
        start(disk)
    disk.make_directory("/base/events/dt=2026-11-18")
    disk.put("/base/events/dt=2026-11-18/journal.0.parquet", b"events")
    start(disk)


@pytest.mark.parametrize("name", ["queue", "spool", "events"])
def test_a_directory_that_had_the_identity_and_has_it_no_more_stops_the_start(name: str) -> None:
    disk = without(started(), DIRECTORIES[name])
    before = disk.changes
    with pytest.raises(IdentityError, match=f"the {name} directory {DIRECTORIES[name]} is empty") as caught:
        start(disk)
    assert caught.value.code is Code.CONFLICT
    assert disk.changes == before
    assert name not in carried(disk)


def test_a_home_that_is_missing_stops_the_start_if_another_directory_was_its() -> None:
    disk = without(started(), "/base")
    with pytest.raises(IdentityError, match="the home /base carries no identity, but its queue directory"):
        start(disk)
    assert "home" not in carried(disk)


def test_a_log_outside_the_home_tells_that_all_of_the_home_is_missing() -> None:
    below = {"home": "/base", "queue": "/base/queue", "spool": "/base/spool"}
    disk = SimulatedDisk()
    disk.make_directory("/log")
    start(disk, directories=below, log="/log")
    missing = without(disk, "/base")
    with pytest.raises(IdentityError, match="/log/identity says"):
        start(missing, directories=below, log="/log")
    start(disk.kill(), directories=below, log="/log")
    other = {"home": "/base2", "queue": "/base2/queue", "spool": "/base2/spool"}
    start(disk.kill(), "1" * 32, directories=other, log="/log")  # another home may use the same log


def test_two_homes_do_not_share_a_directory() -> None:
    disk = started()
    other = {"home": "/base2", "queue": "/queue2", "spool": "/spool"}
    before = disk.changes
    with pytest.raises(
        IdentityError, match=r"the spool directory /spool belongs to another Waypost, 01234567 .home /base,"
    ):
        start(disk, "1" * 32, other)
    assert set(carried(disk, other)) == {"spool"}
    assert disk.changes == before


def test_two_disks_in_each_others_place_are_told() -> None:
    disk = started()
    swapped = {**DIRECTORIES, "queue": "/spool", "spool": "/queue"}
    with pytest.raises(IdentityError, match="the queue directory /spool is the spool directory of this home"):
        start(disk, directories=swapped)


def test_a_directory_in_use_is_not_used_twice() -> None:
    disk = SimulatedDisk()
    start(disk)
    with pytest.raises(IdentityError, match="another Waypost is using the queue directory /queue"):
        start(disk)


def test_events_are_marked_when_they_are_first_exported() -> None:
    disk = SimulatedDisk()
    some = {name: path for name, path in DIRECTORIES.items() if name != "events"}
    assert start(disk, directories=some).identity.marked.keys() == {"queue", "spool"}
    assert set(carried(disk)) == set(some)
    disk = disk.kill()
    assert start(disk).identity.marked.keys() == {"queue", "spool", "events"}
    disk = disk.kill()
    assert start(disk, directories=some).identity.marked.keys() == {"queue", "spool", "events"}


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda content: b"", "is empty"),
        (lambda content: content[:40], "is damaged"),
        (lambda content: content.replace(b"0123", b"1123", 1), "is damaged"),
    ],
)
@pytest.mark.parametrize("name", list(DIRECTORIES))
def test_a_damaged_identity_stops_the_start(name: str, damage: Callable[[bytes], bytes], why: str) -> None:
    disk = started()
    path = os.path.join(DIRECTORIES[name], NAME)
    disk.put(path, damage(disk.image(path)))
    with pytest.raises(IdentityDamaged, match=f"{path} {why}"):
        start(disk)


def test_an_identity_of_a_newer_version_stops_the_start() -> None:
    disk = started()
    found = read_identity(disk, "queue", "/queue")
    assert found is not None
    write_identity(disk, "/queue", msgspec.structs.replace(found, version=2))
    with pytest.raises(IdentityDamaged, match="/queue/identity has format version 2, this Waypost reads up to 1"):
        start(disk.kill())


def adopted(disk: Disk, name: str, directories: dict[str, str] | None = None) -> Identity:
    return adopt(disk, name, directories or DIRECTORIES, NOW, tokens("9" * 32))


@pytest.mark.parametrize("name", ["queue", "spool", "events"])
def test_a_lost_directory_is_replaced_on_purpose_and_does_not_count_when_it_comes_back(name: str) -> None:
    before = started()
    disk = without(before, DIRECTORIES[name])
    adopted(disk, name)
    disk = disk.kill()
    assert start(disk).identity.identity == DIGITS
    path = os.path.join(DIRECTORIES[name], NAME)
    disk.put(path, before.image(path))
    with pytest.raises(
        IdentityError, match=f"the {name} directory {DIRECTORIES[name]} is the one that this home had before"
    ):
        start(disk.kill())


@pytest.mark.parametrize("name", ["queue", "spool", "events"])
def test_an_adoption_that_ends_anywhere_is_repeated(name: str) -> None:
    whole = without(started(), DIRECTORIES[name])
    adopted(whole, name)
    for number in range(1, whole.changes + 2):
        disk = without(started(), DIRECTORIES[name])
        disk.crash_before(number)
        with contextlib.suppress(PowerLoss):
            adopted(disk, name)
        for found in (disk.kill(), *(disk.crash(choice) for choice in every(5000))):
            try:
                start(found.kill())
            except IdentityError:
                adopted(found, name)
                start(found.kill())


def test_a_lost_home_takes_the_identity_of_its_directories() -> None:
    disk = without(started(), "/base")
    adopted(disk, "home")
    assert start(disk.kill()).identity.identity == DIGITS


def test_a_home_does_not_take_the_directories_of_another_home() -> None:
    disk = started()
    other = {"home": "/base2", "queue": "/queue2", "spool": "/spool"}
    disk.make_directory("/base2")
    with pytest.raises(IdentityError, match="the spool directory /spool belongs to the home /base, which exists"):
        adopted(disk, "home", other)
    with pytest.raises(IdentityError, match="adopt it first"):
        adopted(disk, "queue", other)


def test_a_directory_in_use_is_not_adopted() -> None:
    disk = SimulatedDisk()
    start(disk)
    with pytest.raises(IdentityError, match="another Waypost is using the spool directory"):
        adopted(disk, "spool")


def test_a_lost_queue_is_not_replaced_while_its_mail_is_in_the_spool() -> None:
    """The sweep would delete it: no envelope of the new queue names it."""
    for disk in (of_old_version("deferred"), of_old_version("new")):
        start(disk)
        missing = without(disk, "/queue")
        with pytest.raises(IdentityError, match="rename that directory first"):
            adopted(missing, "queue")
        missing = without(missing, "/spool")
        adopted(missing, "queue")
        adopted(missing, "spool")
        start(missing.kill())


def test_an_upgrade_is_continued_when_the_lost_disk_was_given_up() -> None:
    disk = without(of_old_version("deferred"), "/spool")
    with pytest.raises(IdentityError):
        start(disk)
    disk.make_directory("/base")
    adopted(disk, "spool")
    start(disk.kill())


@pytest.mark.parametrize("name", list(DIRECTORIES))
def test_a_damaged_identity_is_mended_by_adopting_the_directory(name: str) -> None:
    disk = started()
    disk.put(os.path.join(DIRECTORIES[name], NAME), b"")
    adopted(disk, name)
    start(disk.kill())


def test_a_look_names_what_is_wrong_and_changes_nothing() -> None:
    disk = started()
    assert [(each.name, each.why_not) for each in look(disk, DIRECTORIES)] == [(name, "") for name in DIRECTORIES]
    disk = without(disk, "/spool")
    before = disk.changes
    assert [each.name for each in look(disk, DIRECTORIES) if each.why_not] == ["spool"]
    assert [each.name for each in look(SimulatedDisk(), DIRECTORIES) if each.why_not] == ["home"]
    assert disk.changes == before


def test_a_guard_refuses_changes_in_a_directory_that_was_exchanged(tmp_path: Path) -> None:
    directories = {name: str(tmp_path / name) for name in ("home", "queue", "spool")}
    held = establish(Disk(), directories, str(tmp_path / "home/log"), "", NOW, tokens(DIGITS))
    disk = Disk()
    disk.guards = guards_of(directories, held.identity)
    spool = Spool(disk, directories["spool"])
    spool.create("a").close()
    assert disk.is_identified(directories["spool"])
    (tmp_path / "spool").rename(tmp_path / "away")
    file = spool.path("a")
    uses: list[Callable[[], object]] = [
        lambda: spool.create("b"), lambda: spool.remove("a"), lambda: spool.read_envelope("a"), lambda: list(spool.queue_ids()),
        lambda: disk.open_write(file), lambda: disk.make_directory(f"{directories['spool']}/00"),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(OSError, match=r"the spool directory .* does not exist"):
            use()
    (tmp_path / "spool").mkdir()
    for use in uses:
        with pytest.raises(OSError, match=r"the spool directory .* is empty"):
            use()
    with pytest.raises(OSError, match="the spool directory"):
        disk.is_identified(directories["spool"])
    assert list((tmp_path / "spool").rglob("*")) == []
    (tmp_path / "spool").rmdir()
    (tmp_path / "away").rename(tmp_path / "spool")  # mounted again, perhaps as another device
    spool.create("b").close()


def test_a_process_that_runs_alone_has_no_guards_and_sweeps_nothing(tmp_path: Path) -> None:
    assert not Disk().is_identified(str(tmp_path))


def test_an_identity_is_readable_by_the_other_users_of_waypost(tmp_path: Path) -> None:
    write_identity(Disk(), str(tmp_path), Identity(DIGITS, "home", "/base", NOW))
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o644 & ~_umask()
    assert refusal(Disk(), Identity(DIGITS, "home", "/base", NOW), "home", str(tmp_path)) == ""


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_a_supervisor_that_is_ending_is_waited_for(tmp_path: Path) -> None:
    """Its locks end one after the other, and the next supervisor waits for the home's already."""
    directories = {name: str(tmp_path / name) for name in ("home", "queue", "spool")}
    held = establish(Disk(), directories, str(tmp_path / "home" / "log"), "", NOW, tokens(DIGITS))
    with pytest.raises(IdentityError):
        establish(Disk(), directories, str(tmp_path / "home" / "log"), "", NOW, tokens(DIGITS))

    def end() -> None:
        for lock in held.locks:
            os.close(lock)

    timer = threading.Timer(0.3, end)
    timer.start()
    again = establish(Disk(), directories, str(tmp_path / "home" / "log"), "", NOW, tokens(DIGITS), 30.0)
    timer.join()
    for lock in again.locks:
        os.close(lock)
