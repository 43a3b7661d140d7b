"""Browsing reads every living message once, a page at a time, whatever lies in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.envelope import Aside, AsideKind, Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.segment import FIRST_RECORD, READ_BYTES
from mailcore.lookup.answers import Selected
from mailcore.lookup.browse import Browser, Budget, CursorError, Item, Page, Stretch, lane_order
from mailcore.lookup.filter import Filter
from mailcore.lookup.last_known import LastKnown
from mailcore.lookup.selection import Selection
from tests.lookup.sample_messages import NOW, Lane, deferred, envelope


class Queue:
    """Lanes, and a browser over them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lanes: dict[str, Lane] = {}
        self.starts: dict[str, int] = {}
        self.runners: dict[str, int] = {}
        self.ticks = 0.0
        self.browser = Browser(Disk(), str(directory), lambda: NOW, lambda: self.ticks, self.route_of)

    def route_of(self, recipient: Recipient) -> str:
        return "smtp:" + recipient.address.rpartition("@")[2]

    def lane(self, name: str, segment_bytes: int = 1 << 20) -> Lane:
        if name not in self.lanes:
            self.lanes[name] = Lane(self.directory, name, segment_bytes)
        return self.lanes[name]

    @property
    def stretches(self) -> dict[str, Stretch]:
        return {
            name: Stretch(self.starts.get(name, 0), self.runners.get(name, 0), lane.end)
            for name, lane in self.lanes.items()
        }

    def page(self, filter_: Filter | None = None, cursor: str = "", **budget: float) -> Page:
        given = Budget(**budget)  # type: ignore[arg-type]
        return self.browser.page(self.stretches, filter_ or Filter(), cursor, given)

    def all(self, filter_: Filter | None = None, **budget: float) -> list[Item]:
        items: list[Item] = []
        cursor: str | None = ""
        while cursor is not None:
            page = self.page(filter_, cursor, **budget)
            items += page.items
            cursor = page.cursor
        return items

    def senders(self, **filter_: object) -> list[str]:
        return [item.sender for item in self.all(Filter(**filter_))]  # type: ignore[arg-type]

    def ids(self, **filter_: object) -> list[str]:
        return [item.queue_id for item in self.all(Filter(**filter_))]  # type: ignore[arg-type]


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(tmp_path)
    yield queue
    for lane in queue.lanes.values():
        lane.close()


def test_an_empty_queue_is_one_empty_page(queue: Queue) -> None:
    assert queue.page() == Page(items=[], cursor=None, examined=0, damage=[])


def test_lanes_come_in_a_fixed_order_and_the_deleted_one_only_when_asked_for(queue: Queue) -> None:
    names = ["deleted", "hold", "retry.4000", "retry.5", "retry.60", "local", "incoming.10", "incoming.2"]
    for name in names:
        queue.lane(name).write(envelope(sender=f"{name}@example.org"))
    expected = ["incoming.2", "incoming.10", "local", "retry.5", "retry.60", "retry.4000", "hold"]
    assert [item.lane for item in queue.all()] == expected
    assert [item.lane for item in queue.all(Filter(lane="deleted"))] == ["deleted"]
    assert [item.lane for item in queue.all(Filter(lane="*"))] == [*expected, "deleted"]


def test_pages_of_any_size_show_every_message_once(queue: Queue) -> None:
    written = []
    for name in ("incoming.0", "retry.5", "retry.60", "hold"):
        lane = queue.lane(name, segment_bytes=2000)  # many segments
        envelopes = [envelope(f"user{number}@example.org") for number in range(57)]
        lane.write(*envelopes)
        written += [each.queue_id for each in envelopes]
    for size in (1, 7, 57, 1000):
        assert [item.queue_id for item in queue.all(items=size)] == written


def test_a_finished_message_is_not_there_any_more(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    first, second, third = envelope(), envelope(), envelope()
    offsets = lane.write(first, second, third)
    lane.mark_garbage(offsets[1])
    assert queue.ids() == [first.queue_id, third.queue_id]


def test_nothing_is_read_below_the_start_or_beyond_the_durable_end(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    envelopes = [envelope() for _ in range(5)]
    offsets = lane.write(*envelopes)
    stretch = {"incoming.0": Stretch(offsets[1], offsets[1], offsets[3])}
    page = queue.browser.page(stretch, Filter(), "", Budget())
    assert [item.queue_id for item in page.items] == [envelopes[1].queue_id, envelopes[2].queue_id]
    before_the_start = queue.browser.page(stretch, Filter(), f"incoming.0:{offsets[0]}", Budget())
    assert before_the_start.items == page.items


def test_of_one_message_twice_on_a_page_the_newer_generation_stays(queue: Queue) -> None:
    old = envelope()
    queue.lane("incoming.0").write(old)
    queue.lane("retry.5").write(deferred("user@example.org", queue_id=old.queue_id, generation=1))
    (item,) = queue.all()
    assert (item.generation, item.lane, item.state) == (1, "retry.5", "deferred")
    queue.lane("retry.60").write(deferred("user@example.org", queue_id=old.queue_id, generation=0))
    (item,) = queue.all()
    assert (item.generation, item.lane) == (1, "retry.5")


def test_an_item_says_what_the_envelope_says(queue: Queue) -> None:
    recipients = tuple(Recipient(n, f"u{n}@example.org", "smtp:example.org", "", f"451 reply {n}") for n in range(12))
    message = envelope(
        recipients=recipients, sender="", due_at=NOW + 60, not_before=NOW + 90, attempts=3, size_bytes=77
    )
    (offset,) = queue.lane("retry.60").write(message)
    (item,) = queue.all()
    assert item == Item(
        queue_id=message.queue_id,
        lane="retry.60",
        offset=offset,
        generation=0,
        state="delayed",
        states={"delayed": 12},
        active=False,
        sender="",
        recipients=[f"u{n}@example.org" for n in range(10)],
        recipient_count=12,
        size_bytes=77,
        arrived_at=NOW - 600,
        due_at=NOW + 90,
        attempts=3,
        reason="451 reply 11",
        destinations=["smtp:example.org"],
    )


def test_the_state_follows_from_lane_and_runner(queue: Queue) -> None:
    offsets = queue.lane("incoming.0").write(envelope(), envelope())
    queue.runners["incoming.0"] = offsets[1]
    queue.lane("hold").write(envelope(held_because="asked for"))
    queue.lane("deleted").write(envelope())
    items = queue.all(Filter(lane="*"))
    assert [item.state for item in items] == ["active", "queued", "held", "deleted"]
    assert items[2].reason == "asked for"


def test_a_filter_matches_exactly_or_by_pattern_and_case_does_not_matter(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    lane.write(envelope("Anna@Example.org", sender="List-1@news.example"))
    lane.write(envelope("bert@example.net", sender="list-2@news.example"))
    lane.write(envelope("carl@sub.example.org", sender=""))
    assert queue.senders(sender="LIST-1@NEWS.example") == ["List-1@news.example"]
    assert queue.senders(sender="list-?@*") == ["List-1@news.example", "list-2@news.example"]
    assert queue.senders(sender="<>") == [""]
    assert queue.senders(recipient="anna@example.ORG") == ["List-1@news.example"]
    assert queue.senders(recipient="*@example.*") == ["List-1@news.example", "list-2@news.example"]
    assert queue.senders(recipient="nobody@example.org") == []


def test_brackets_in_a_pattern_are_brackets(queue: Queue) -> None:
    queue.lane("retry.5").write(deferred("a@example.org", destination="smtp:[127.0.0.1]:2526"))
    queue.lane("retry.5").write(deferred("b@example.org", destination="smtp:1"))
    assert len(queue.ids(destination="smtp:[127.0.0.1]:2526")) == 1
    assert len(queue.ids(destination="smtp:[127.0.0.1]:*")) == 1
    assert len(queue.ids(destination="smtp:*")) == 2


def test_a_hostile_pattern_takes_no_longer_than_others(queue: Queue) -> None:
    queue.lane("incoming.0").write(envelope("a" * 60 + "@" + "a" * 200 + ".example"))
    assert queue.ids(recipient="*a" * 200 + "b") == []


def test_mail_that_is_not_routed_yet_is_found_by_where_it_would_go(queue: Queue) -> None:
    queue.lane("incoming.0").write(envelope("anna@example.org"), envelope("bert@example.net"))
    assert [item.recipients for item in queue.all(Filter(destination="smtp:example.net"))] == [["bert@example.net"]]


def test_reason_age_and_size_filter_too(queue: Queue) -> None:
    lane = queue.lane("retry.5")
    lane.write(deferred("a@example.org", reply="451 Greylisted, come back", arrived_at=NOW - 100, size_bytes=10))
    lane.write(deferred("b@example.org", reply="421 busy", arrived_at=NOW - 1000, size_bytes=5000))
    assert [item.recipients for item in queue.all(Filter(reason="greylisted"))] == [["a@example.org"]]
    assert [item.recipients for item in queue.all(Filter(older_than_s=500))] == [["b@example.org"]]
    assert [item.recipients for item in queue.all(Filter(larger_than_bytes=10))] == [["b@example.org"]]


def test_why_it_is_held_or_deleted_is_a_reason_too_whatever_was_replied_before(queue: Queue) -> None:
    queue.lane("deleted").write(
        deferred("a@example.org", reply="421 busy", held_because="Spam wave (change 7Q2)"),
        deferred("b@example.org", reply="421 busy", held_because="spam wave (change 8R3)"),
    )
    assert [item.recipients for item in queue.all(Filter(lane="deleted", reason="(change 7q2)"))] == [["a@example.org"]]
    assert len(queue.ids(lane="deleted", reason="busy")) == 2


def test_the_filters_of_age_and_size_have_two_sides(queue: Queue) -> None:
    queue.lane("incoming.0").write(
        *(envelope(str(age), arrived_at=NOW - age, size_bytes=age) for age in (100, 1000, 10_000))
    )

    def matching(**filter_: object) -> list[int]:
        return [item.size_bytes for item in queue.all(Filter(**filter_))]  # type: ignore[arg-type]

    assert matching(arrived_before=NOW - 1000) == [10_000]  # not at that very time
    assert matching(arrived_before=NOW - 999) == [1000, 10_000]
    assert matching(younger_than_s=1000) == [100]
    assert matching(younger_than_s=1001) == [100, 1000]
    assert matching(smaller_than_bytes=1000) == [100]
    assert matching(smaller_than_bytes=1001) == [100, 1000]
    assert matching(smaller_than_bytes=10_000, larger_than_bytes=100) == [1000]


def test_one_recipient_must_fulfil_all_that_is_asked_of_recipients(queue: Queue) -> None:
    pair = (
        Recipient(0, "a@example.org", "smtp:example.org", "", "451 busy"),
        Recipient(1, "b@example.net", "smtp:example.net", "", "451 greylisted"),
    )
    queue.lane("retry.5").write(envelope(recipients=pair))
    assert len(queue.ids(recipient="a@example.org", reason="busy")) == 1
    assert queue.ids(recipient="a@example.org", reason="greylisted") == []


def test_the_reason_of_a_recipient_is_its_own_and_not_that_of_another(queue: Queue) -> None:
    """As an undo asks: who was deleted earlier, for another reason, stays deleted."""
    pair = (
        Recipient(0, "a@example.org", aside=Aside(AsideKind.DELETED, NOW + 60, why="first (change A)")),
        Recipient(1, "b@example.org", aside=Aside(AsideKind.DELETED, NOW + 90, why="second (change B)")),
        Recipient(2, "c@example.org"),
    )
    message = envelope(recipients=pair, held_because="second (change B)", aside={"deleted": 2})
    queue.lane("retry.5").write(message)
    for reason, numbers in (("(change A)", [[0, 0]]), ("(change B)", [[1, 1]])):
        page = queue.browser.page(
            queue.stretches, Filter(reason=reason, lane="*"), "", Budget(items=10), Selection("undelete", NOW)
        )
        assert page.selected == {message.queue_id: Selected(1, numbers)}


@pytest.mark.parametrize(
    ("lane", "aside", "main", "apart"),
    [
        ("retry.300", {"deferred": 1, "held": 2}, "deferred", {"held": 2}),
        ("retry.300", {"delayed": 3}, "delayed", {}),
        ("retry.300", {"held": 2, "deleted": 1}, "held", {"deleted": 1}),
        ("hold", {"held": 3}, "held", {}),
        ("deleted", {"deleted": 3}, "deleted", {}),
        ("incoming.0", {"deleted": 1}, "queued", {"deleted": 1}),
    ],
)
def test_the_states_to_show_of_a_message(
    queue: Queue, lane: str, aside: dict[str, int], main: str, apart: dict[str, int]
) -> None:
    queue.lane(lane).write(envelope(["a@b.example", "c@d.example", "e@f.example"], aside=aside))
    (item,) = queue.all(Filter(lane="*"))
    assert (item.state, item.apart) == (main, apart)


def long_list(lane: Lane, count: int) -> Envelope:
    """A message whose first recipients lie in batches of 1 000."""
    everybody = [Recipient(number, f"user{number}@example.org") for number in range(count)]
    batches = []
    while len(everybody) > 1000:
        batches.append(lane.write_batch(everybody[:1000]))
        del everybody[:1000]
    message = envelope(recipients=tuple(everybody), recipient_count=count, batches=tuple(batches))
    lane.write(message)
    return message


def test_recipients_in_batches_are_found_and_read(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    message = long_list(lane, 2500)
    assert queue.ids(recipient="user42@example.org") == [message.queue_id]
    assert queue.ids(recipient="user2499@example.org") == [message.queue_id]
    assert queue.ids(recipient="user2500@example.org") == []
    found = queue.browser.find(queue.stretches, [message.queue_id])[message.queue_id]
    numbers = [each.number for batch in queue.browser.recipients(found) for each in batch]
    assert numbers == list(range(2500))


def test_a_filter_that_matches_nothing_stops_at_its_budget_and_goes_on(queue: Queue) -> None:
    queue.lane("incoming.0").write(*(envelope() for _ in range(25)))
    nothing = Filter(sender="nobody@example.org")
    pages = [queue.page(nothing, records=10)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(queue.page(nothing, cursor, records=10))
    assert [(page.items, page.examined) for page in pages] == [([], 10), ([], 10), ([], 5)]


def test_time_is_part_of_the_budget(queue: Queue) -> None:
    queue.lane("incoming.0").write(*(envelope() for _ in range(500)))

    def late() -> float:
        queue.ticks += 1.0
        return queue.ticks

    queue.browser.monotonic = late
    page = queue.page(Filter(sender="nobody@example.org"), seconds=2.0)
    assert page.examined == 128  # looked at the clock every 64 records
    assert page.cursor is not None


def test_a_cursor_is_checked_and_one_into_nowhere_goes_on_behind_it(queue: Queue) -> None:
    queue.lane("incoming.0").write(envelope())
    queue.lane("retry.5").write(envelope(sender="later@example.org"))
    for wrong in ("x", "incoming.0:", ":5", "incoming.0:-1", "incoming.0:1e3", "incoming.0:" + "9" * 30):
        with pytest.raises(CursorError, match="is not a cursor"):
            queue.page(cursor=wrong)
    for gone in ("incoming.7:50", "incoming.0:999999999", "retry.1:0"):
        assert [item.sender for item in queue.page(cursor=gone).items] == ["later@example.org"]


def test_a_cursor_that_is_no_records_boundary_is_survived_in_silence(queue: Queue) -> None:
    envelopes = [envelope() for _ in range(3)]
    offsets = queue.lane("incoming.0").write(*envelopes)
    page = queue.page(cursor=f"incoming.0:{offsets[0] + 5}")
    assert [item.queue_id for item in page.items] == [each.queue_id for each in envelopes[1:]]
    assert page.damage == []


def test_damage_is_reported_and_what_follows_is_read(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    envelopes = [envelope() for _ in range(3)]
    offsets = lane.write(*envelopes)
    (segment,) = lane.directory.glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(offsets[1] + 30)
        file.write(b"XXXX")
    page = queue.page()
    assert [item.queue_id for item in page.items] == [envelopes[0].queue_id, envelopes[2].queue_id]
    assert page.damage == [f"incoming.0:{offsets[1]} to {offsets[2]}: checksum differs"]


def test_without_the_manager_the_restart_positions_say_where_to_read(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    envelopes = [envelope() for _ in range(4)]
    offsets = lane.write(*envelopes)
    queue.lane("journal").write(envelope())
    queue.lane("incoming.1").write(envelope(sender="unnamed@example.org"))
    (resting, end) = queue.lane("retry.5").write(deferred("user@example.org"), envelope())
    queue.lane("retry.7").write(envelope(sender="newer@example.org"))
    positions = {
        "incoming.0": LanePosition(offsets[2], offsets[2], offsets[1]),
        "retry.5": LanePosition(resting, end, resting),
    }
    write_positions(Disk(), str(queue.directory), RestartPositions(1, NOW - 5, positions, 0, 0))
    stretches, at = LastKnown(Disk(), str(queue.directory)).stretches()
    assert at == NOW - 5
    assert set(stretches) == {"incoming.0", "incoming.1", "retry.5", "retry.7"}
    page = queue.browser.page(stretches, Filter(), "", Budget())
    assert [item.queue_id for item in page.items[:3]] == [each.queue_id for each in envelopes[1:]]
    assert [item.lane for item in page.items[3:]] == ["incoming.1", "retry.5"], (
        "the manager's own count up to their end"
    )
    assert [item.state for item in page.items] == ["active", "queued", "queued", "queued", "deferred"]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_message_moved_just_before_the_manager_stopped_is_in_one_lane(queue: Queue, checkpointed: bool) -> None:
    """The old envelope gets its mark only after the positions that cover the new one are written."""
    old = deferred("user@example.org")
    lane, deleted = queue.lane("retry.5"), queue.lane("deleted")
    (at,) = lane.write(old)
    before = {"retry.5": LanePosition(at, lane.end, at), "deleted": LanePosition(0, deleted.end, 0)}
    write_positions(Disk(), str(queue.directory), RestartPositions(1, NOW, before, 0, 0))
    deleted.write(deferred("user@example.org", queue_id=old.queue_id, generation=old.generation + 1))
    if checkpointed:
        after = before | {"deleted": LanePosition(0, deleted.end, 0)}
        write_positions(Disk(), str(queue.directory), RestartPositions(2, NOW, after, 0, 0))
    stretches, _ = LastKnown(Disk(), str(queue.directory)).stretches()
    shown = [
        item.lane
        for lane_of in ("retry.5", "deleted")
        for item in queue.browser.page(stretches, Filter(lane=lane_of), "", Budget()).items
    ]
    assert shown == ["deleted" if checkpointed else "retry.5"]


def test_a_record_still_being_written_is_no_damage(queue: Queue) -> None:
    lane = queue.lane("incoming.0")
    lane.write(envelope())
    (segment,) = lane.directory.glob("*.seg")
    with segment.open("ab") as file:
        file.write(b"Wa\x01L\xff\x00\x00\x00half a record")
    stretches, _ = LastKnown(Disk(), str(queue.directory)).stretches()
    page = queue.browser.page(stretches, Filter(), "", Budget())
    assert (len(page.items), page.damage) == (1, [])


def test_messages_are_found_by_queue_id_in_every_lane(queue: Queue) -> None:
    written: dict[str, str] = {}
    for name in ("incoming.0", "retry.5", "hold", "deleted"):
        envelopes = [envelope() for _ in range(50)]
        queue.lane(name, segment_bytes=5000).write(*envelopes)
        written |= {each.queue_id: name for each in envelopes}
    for wanted in (random.Random(1).sample(sorted(written), 2), sorted(written)):
        found = queue.browser.find(queue.stretches, wanted)
        assert {queue_id: each.lane for queue_id, each in found.items()} == {each: written[each] for each in wanted}
    assert queue.browser.find(queue.stretches, ["0000000000000"]) == {}
    assert queue.browser.find(queue.stretches, []) == {}


def test_finding_takes_the_newest_living_generation(queue: Queue) -> None:
    old = envelope()
    queue.lane("incoming.0").write(old)
    newer = deferred("user@example.org", queue_id=old.queue_id, generation=2)
    (newer_at,) = queue.lane("retry.5").write(newer)
    assert queue.browser.find(queue.stretches, [old.queue_id])[old.queue_id].envelope == newer
    queue.lanes["retry.5"].mark_garbage(newer_at)
    assert queue.browser.find(queue.stretches, [old.queue_id])[old.queue_id].envelope == old


def test_a_message_is_found_where_there_is_no_index(queue: Queue) -> None:
    lane = queue.lane("incoming.0", segment_bytes=2000)
    envelopes = [envelope() for _ in range(30)]
    lane.write(*envelopes)
    for index in lane.directory.glob("*.idx"):
        index.unlink()
    for message in envelopes:
        assert message.queue_id in queue.browser.find(queue.stretches, [message.queue_id])
    assert len(queue.browser.find(queue.stretches, [each.queue_id for each in envelopes])) == 30


def test_an_id_that_lies_across_two_reads_is_found(queue: Queue) -> None:
    for shift in range(0, 60, 5):
        lane = queue.lane(f"incoming.{shift}")
        wanted = envelope()
        _, offset = lane.write(envelope(helo="x" * (READ_BYTES - 170 + shift)), wanted)
        assert abs(offset - FIRST_RECORD - READ_BYTES) < 100  # so in one of the lanes the id lies on the boundary
        stretch = {lane.name: queue.stretches[lane.name]}
        assert wanted.queue_id in queue.browser.find(stretch, [wanted.queue_id])


def test_the_order_of_lanes_is_total() -> None:
    lanes = ["incoming.0", "incoming.1", "local", "retry.0", "retry.5", "retry.x", "strange", "hold", "deleted"]
    assert len({lane_order(lane) for lane in lanes}) == len(lanes)
