"""What is queued is counted at the cut, whatever happens while somebody counts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.events.write import cutoff as cuts
from mailcore.events.write.cutoff import CutFailed, Queued, queued_at, take_cut
from mailcore.events.write.export import Export
from mailcore.log.disk import Disk
from mailcore.log.positions import read_all_positions
from mailcore.log.record import RecordType
from mailcore.queue.exported import Keeper
from mailcore.queue.lanes import JOURNAL, LOCAL
from mailcore.queue.records import Administrative, Place, Replaced, Start, encode
from tests.events.lanes import Lanes
from tests.events.reading import checksum, ends, left, rows
from tests.queue.simulated_machine import HOME, UNDO_S, SimulatedMachine
from tests.queue.steps import Nothing, begun, deliver_all, new_machine


@pytest.fixture
def machine() -> SimulatedMachine:
    return new_machine(segment_bytes=5000)[0]


@pytest.fixture
def export(machine: SimulatedMachine, tmp_path: Path) -> Iterator[Export]:
    export = Export(machine.disk, HOME, str(tmp_path), _never, _never, events_disk=Disk())
    with export.locked(0):
        yield export


def _never(*what: object) -> None:
    raise AssertionError(what)


def settle(machine: SimulatedMachine) -> None:
    for _ in range(2):
        machine.checkpoint()


def queued(machine: SimulatedMachine) -> dict[str, int]:
    positions = read_all_positions(machine.disk, HOME)[0]
    return {each.queue_id: each.recipients for each in queued_at(machine.disk, HOME, positions)}


def test_who_is_done_is_not_queued_and_who_waits_anywhere_is(machine: SimulatedMachine) -> None:
    waiting = machine.accept(3)
    working = machine.accept(3)
    machine.durable()
    first = begun(machine)
    assert first.queue_id == waiting
    machine.order(first, "hold")
    second = begun(machine)
    machine.attempt(second, {0: Status.DELIVERED, 1: Status.DEFERRED})
    new = machine.accept(2)
    machine.durable()
    settle(machine)
    assert queued(machine) == {waiting: 3, working: 2, new: 2}


def test_the_checksum_tells_one_message_from_another(machine: SimulatedMachine, export: Export, tmp_path: Path) -> None:
    one, two = machine.accept(3), machine.accept(1)
    machine.durable()
    first = begun(machine)
    assert first.queue_id == one
    machine.attempt(first, {0: Status.DELIVERED, 1: Status.DELIVERED})
    settle(machine)
    cut, _ = take_cut(export, 0.0)
    assert cut.recipients == 2
    assert cut.checksum == checksum({one: 1, two: 1}) != checksum({two: 2})
    (path,) = (tmp_path / "cuts").glob("*.json")
    assert json.loads(path.read_bytes())["checksum"] == cut.checksum


def test_a_checksum_too_long_for_eight_bytes_wraps() -> None:
    many = [Queued("hold", queue_id, 1 << 35) for queue_id in ("0EXPR000000A0", "0EXPR000000B0", "0EXPR000000C0")]
    counted = cuts._count(iter(many), None)
    whole = sum(zlib.crc32(each.queue_id.encode()) << 35 for each in many)
    assert counted.checksum == whole % (1 << 64) < whole


def test_a_message_finished_since_the_cut_is_queued_at_it(machine: SimulatedMachine) -> None:
    """Its mark says garbage by now; the journal says that it was taken later."""
    before = machine.accept(1)
    machine.durable()
    deliver_all(machine, begun(machine))
    there = [machine.accept(2) for _ in range(3)]
    machine.durable()
    settle(machine)
    positions = read_all_positions(machine.disk, HOME)[0]
    for _ in there:
        deliver_all(machine, begun(machine))
    machine.checkpoint()
    found = list(queued_at(machine.disk, HOME, positions))
    assert sorted(found) == sorted(Queued("incoming.0", queue_id, 2) for queue_id in there)
    assert before not in there


def test_recipients_about_to_be_added_are_queued(machine: SimulatedMachine) -> None:
    queue_id = machine.accept(1)
    machine.durable()
    active = begun(machine)
    order = Administrative(
        "add_recipients", queue_id, "ann", "", 1.0, {"recipients": ["a@example.org", "b@example.org"]}
    )
    machine.queue.administer(order)
    settle(machine)
    assert queued(machine) == {queue_id: 3}
    assert active.queue_id == queue_id


@pytest.mark.parametrize("covered", [False, True])
def test_what_a_recovery_would_undo_is_not_done(tmp_path: Path, covered: bool) -> None:
    """A replacement beyond what the positions cover does not count: its message is still being worked on."""
    lanes = Lanes(tmp_path)
    offset = lanes.accept("Q1", 2)
    lanes.writer(JOURNAL).append(RecordType.START, encode(Start("Q1", 0, Place("incoming.0", offset), 2)))
    lanes.deliver("Q1", Status.DELIVERED, Status.DEFERRED)
    at = lanes.accept("Q1", 1, lane="retry.300", generation=1)
    lanes.writer(JOURNAL).append(RecordType.REPLACED, encode(Replaced("Q1", 0, Place("retry.300", at))))
    lanes.covered(None if covered else {"retry.300": 0})
    positions = read_all_positions(Disk(), str(tmp_path / "queue"))[0]
    found = list(queued_at(Disk(), str(tmp_path / "queue"), positions))
    assert found == [Queued("retry.300" if covered else "incoming.0", "Q1", 1)]
    lanes.close()


def test_an_order_stated_anew_is_one_order(machine: SimulatedMachine, export: Export, tmp_path: Path) -> None:
    machine.accept(1)
    machine.durable()
    active = begun(machine)
    active.orders.append(Administrative("hold", active.queue_id, "ann", "", 1.0))
    machine.queue.administer(active.orders[0])
    machine.sync()
    again = SimulatedMachine(machine.disk.crash(Nothing()), machine.outside, machine.segment_bytes)  # states it anew
    again.checkpoints.keeper = Keeper(Disk(), export.state_directory, 1 << 40, again.clock, _never)
    settle(again)
    export.disk = again.disk
    take_cut(export, 0.0)
    assert [event["operation"] for event in rows(tmp_path) if event["kind"] == "order"] == ["hold"]


def test_deleted_mail_is_queued_until_it_cannot_be_undone_and_then_each_recipient_has_an_end(
    machine: SimulatedMachine, export: Export, tmp_path: Path
) -> None:
    queue_id = machine.accept(3)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED})
    machine.order(active, "delete")
    settle(machine)
    assert queued(machine) == {queue_id: 2}
    machine.wait(UNDO_S + 1)
    machine.drain_deleted()
    settle(machine)
    take_cut(export, 0.0)
    found = rows(tmp_path)
    assert ends(found) == {queue_id: {0: "delivered", 1: "deleted", 2: "deleted"}}
    assert left(found) == queued(machine) == {}


def test_segments_are_pinned_while_they_are_counted_and_not_after(
    machine: SimulatedMachine, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_id = machine.accept(1)
    machine.durable()
    settle(machine)
    seen: list[dict[str, int]] = []

    def looking(*given: object) -> Iterator[Queued]:
        seen.append(export.state().pins)
        return queued_at(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(cuts, "queued_at", looking)
    cut, _ = take_cut(export, 0.0)
    (pins,) = seen
    assert {"incoming.0", LOCAL, JOURNAL} <= pins.keys()
    assert export.state().pins == {}
    assert (cut.messages, cut.recipients, cut.by_lane) == (1, 1, {"incoming.0": (1, 1)})
    assert queue_id in queued(machine)


def test_positions_that_moved_before_the_pin_are_taken_anew(
    machine: SimulatedMachine, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.accept(1)
    machine.durable()
    settle(machine)
    pin, moves = cuts._pin, [1, 1]

    def late(*given: object) -> None:
        if moves:
            moves.pop()
            machine.accept(1)
            machine.durable()
            machine.checkpoint()
        pin(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(cuts, "_pin", late)
    cut, _ = take_cut(export, 0.0)
    assert cut.messages == 2
    assert not moves


def test_segments_that_go_all_the_time_let_nobody_count(
    machine: SimulatedMachine, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.accept(1)
    machine.durable()
    settle(machine)
    many = iter(range(1000))
    monkeypatch.setattr(cuts, "_bases", lambda *_: {"journal": (next(many),)})
    with pytest.raises(CutFailed, match="try again"):
        take_cut(export, 0.0)
    assert export.state().pins == {}


def test_few_messages_are_named_unasked_and_many_when_they_are_asked_for(
    machine: SimulatedMachine, export: Export, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue_ids = [machine.accept(1) for _ in range(3)]
    machine.durable()
    settle(machine)

    def named(most: int, ids: bool = False) -> list[str] | None:
        monkeypatch.setattr(cuts, "IDS_MAX", most)
        cut, _ = take_cut(export, 0.0, ids)
        assert (cut.messages, cut.recipients, cut.by_lane) == (3, 3, {"incoming.0": (3, 3)})
        lines = (tmp_path / "cuts" / cut.ids).read_text().splitlines() if cut.ids else None
        return None if lines is None else sorted(json.loads(line)["queue_id"] for line in lines)

    assert named(3) == sorted(queue_ids)
    assert named(2) is None
    assert named(2, ids=True) == sorted(queue_ids)
