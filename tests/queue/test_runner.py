"""A runner over a real lane, with clocks that do as they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.envelope import Recipient
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.queue.runner import Runner
from tests.lookup.sample_messages import NOW, Lane, envelope


class Walk:
    """A lane, its runner, and two clocks."""

    def __init__(self, directory: Path, interval_s: float | None = 300) -> None:
        self.lane = Lane(directory, "retry.300")
        self.damage: list[Damage] = []
        self.wall = NOW
        self.now = 1000.0
        reader = LaneReader(Disk(), str(self.lane.directory), self.damage.append)
        self.runner = Runner(reader, 0, 0, interval_s, self.damage.append)

    def write(self, *due_in_s: float) -> list[int]:
        offsets = self.lane.write(*(envelope(due_at=self.wall + due) for due in due_in_s))
        self.runner.extend(self.lane.end)
        return offsets

    def peek(self) -> int | None:
        """The offset of the head that is due."""
        head = self.runner.peek(self.wall, self.now)
        return None if head is None else head[0].offset

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.now += seconds

    def take(self) -> int | None:
        offset = self.peek()
        if offset is not None:
            self.runner.take()
        return offset


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path)


def test_messages_come_in_order_each_when_it_is_due(walk: Walk) -> None:
    first, second = walk.write(300, 310)
    assert walk.peek() is None
    assert walk.runner.due_in(walk.now) == pytest.approx(300)
    walk.pass_s(299)
    assert walk.peek() is None
    walk.pass_s(1)
    assert walk.take() == first
    assert walk.peek() is None
    assert walk.runner.due_in(walk.now) == pytest.approx(10)
    walk.pass_s(10)
    assert walk.take() == second
    assert walk.peek() is None
    assert walk.runner.due_in(walk.now) is None


@pytest.mark.parametrize("jump_s", [10**9, -(10**9), 250, -250])
def test_a_jump_of_the_wall_clock_after_the_head_was_seen_changes_nothing(walk: Walk, jump_s: float) -> None:
    (offset,) = walk.write(300)
    assert walk.peek() is None
    walk.wall += jump_s
    assert walk.peek() is None
    walk.now += 299
    assert walk.peek() is None
    walk.now += 1
    assert walk.peek() == offset


def test_a_jump_back_before_it_was_seen_costs_no_more_than_the_interval(walk: Walk) -> None:
    (offset,) = walk.write(300)
    walk.wall -= 10**9
    assert walk.peek() is None
    assert walk.runner.due_in(walk.now) == pytest.approx(300)
    walk.now += 300
    assert walk.peek() == offset


def test_a_jump_forward_before_it_was_seen_makes_it_due(walk: Walk) -> None:
    (offset,) = walk.write(300)
    walk.wall += 10**9
    assert walk.peek() == offset


def test_only_what_is_durable_is_read(walk: Walk) -> None:
    first, second = walk.lane.write(envelope(), envelope())
    walk.runner.extend(second)
    assert walk.take() == first
    assert walk.take() is None
    walk.runner.extend(walk.lane.end)
    assert walk.take() == second
    assert walk.runner.position == walk.lane.end
    walk.runner.extend(0)  # the end never goes back
    assert walk.runner.readable_end == walk.lane.end


def test_garbage_is_passed_over_also_when_it_was_read_ahead(walk: Walk) -> None:
    first, second, third = walk.write(0, 0, 0)
    walk.lane.mark_garbage(second)
    assert walk.peek() == first
    walk.lane.mark_garbage(first)
    walk.runner.forget()
    assert walk.take() == third
    assert walk.runner.position == walk.lane.end


def test_the_position_stays_before_an_envelopes_recipients_until_it_is_taken(walk: Walk) -> None:
    batch = walk.lane.write_batch([Recipient(1, "b@example.org")])
    (offset,) = walk.write(0)
    assert walk.peek() == offset
    assert walk.runner.position <= batch
    walk.runner.take()
    assert walk.runner.position == walk.lane.end


def test_nothing_is_ever_due_in_a_lane_without_interval(tmp_path: Path) -> None:
    walk = Walk(tmp_path, interval_s=None)
    (offset,) = walk.write(-1000)
    walk.pass_s(10**9)
    assert walk.peek() is None
    assert walk.runner.due_in(walk.now) is None
    walk.lane.mark_garbage(offset)
    walk.runner.forget()
    assert walk.peek() is None
    assert walk.runner.position == walk.lane.end  # what was released there keeps no segment


def test_what_is_no_envelope_is_reported_and_the_next_is_read(walk: Walk) -> None:
    walk.lane.writer.append(RecordType.ENVELOPE, b"\x03\x00\x00\x00abc")
    walk.lane.writer.append(RecordType.ENVELOPE, b"a")
    (offset,) = walk.write(0)
    assert walk.take() == offset
    assert len(walk.damage) == 2
    assert all("not a valid envelope" in damage.what for damage in walk.damage)
