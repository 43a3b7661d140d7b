"""Positions of lanes, segments and what keeps them, and what a start would cost; with a fake manager, and with none."""

from __future__ import annotations

from typing import Any

from mailcore.control.async_client import AsyncControlClient
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.log.segment import name_of
from mailcore.lookup import segments
from mailcore.lookup.answers import Keeper
from mailcore.queue.damage import damaged_path
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, write_exported
from tests.control.running_control import RunningControl
from tests.lookup.retired_lane import mark_garbage, retired_lane
from tests.lookup.sample_messages import NOW, Lane, envelope

BIG = "x" * 20_000  # so that few messages fill a segment


def fill(running: RunningControl, name: str, messages: int) -> list[int]:
    """A lane of small segments; their bases."""
    running.lanes[name] = Lane(running.settings.queue_directory, name, segment_bytes=64 << 10)
    for _ in range(messages):
        running.write(name, envelope(held_because=BIG))
    return sorted(int(path.stem) for path in running.lane(name).directory.glob("*.seg"))


def places(running: RunningControl, lanes: dict[str, list[int]], **more: Any) -> None:
    journal = {"suffix": 0, "end": 0, "durable": 0}
    answer = {"lanes": lanes, "journal": journal, "held": {}, "working": 0} | more
    running.manager.answers["places"] = lambda _: answer


def recorded(running: RunningControl, lanes: dict[str, LanePosition], suffix: int = 0, journal_end: int = 0) -> None:
    write_positions(Disk(), str(running.settings.queue_directory), RestartPositions(7, NOW, lanes, suffix, journal_end))


def exported(running: RunningControl, lanes: dict[str, int]) -> None:
    directory = running.settings.events_directory / EXPORTED
    directory.mkdir(parents=True)
    write_exported(Disk(), str(directory), ExportedPositions({lane: ExportedLane(at) for lane, at in lanes.items()}))


def lane_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in answer["lanes"] if each["lane"] == name)


async def test_each_segment_says_what_keeps_it(running: RunningControl, control: AsyncControlClient) -> None:
    bases = fill(running, "retry.300", 21)
    assert len(bases) == 6
    end = running.lane("retry.300").end
    # The first may go, restart positions still name the second, in the third somebody is being worked on.
    recorded(running, {"retry.300": LanePosition(bases[4], end, bases[1])})
    exported(running, {"retry.300": bases[1]})
    places(
        running,
        {"retry.300": [bases[2], bases[4], end]},
        held={"retry.300": [[bases[2], 2]]},
        working=2,
    )
    answer = await control.call("positions")
    lane = lane_of(answer, "retry.300")
    assert (lane["interval_s"], lane["runner"], lane["end"]) == (300, bases[4], end)
    assert lane["lag_bytes"] == end - bases[4]
    assert lane["garbage_prefix_bytes"] == bases[2] - bases[0]
    assert lane["bytes_on_disk"] == sum(each["bytes"] for each in lane["segments"])
    assert [each["base"] for each in lane["segments"]] == bases
    assert [each["kept_by"] for each in lane["segments"]] == [
        Keeper.NOTHING,
        Keeper.POSITIONS,
        Keeper.ACTIVE,
        Keeper.OLDER,
        Keeper.UNREAD,
        Keeper.NEWEST,
    ]
    assert [each["live"] for each in lane["segments"]] == [0, 0, 2, 0, None, None]
    assert [each["sealed"] for each in lane["segments"]] == [True] * 5 + [False]
    assert (answer["sequence"], answer["written_at"], answer["note"]) == (7, NOW, "")
    assert answer["age_s"] > 0


async def test_a_segment_whose_events_are_not_exported_says_so(
    running: RunningControl, control: AsyncControlClient
) -> None:
    bases = fill(running, "retry.300", 12)
    end = running.lane("retry.300").end
    recorded(running, {"retry.300": LanePosition(end, end, end)})
    exported(running, {"retry.300": bases[1]})
    places(running, {"retry.300": [end, end, end]})
    kept = [each["kept_by"] for each in lane_of(await control.call("positions"), "retry.300")["segments"]]
    assert kept[:2] == [Keeper.NOTHING, Keeper.EXPORT]


async def test_the_messages_of_sealed_segments_are_those_of_their_index(
    running: RunningControl, control: AsyncControlClient
) -> None:
    bases = fill(running, "incoming.0", 9)
    places(running, {"incoming.0": [0, 0, running.lane("incoming.0").end]})
    listed = lane_of(await control.call("positions"), "incoming.0")["segments"]
    sealed = [each["messages"] for each in listed if each["sealed"]]
    assert len(listed) == len(bases)
    assert sum(sealed) == 9 - (9 % sealed[0] or sealed[0])
    assert listed[-1]["messages"] is None  # no block of its index is full yet


async def test_held_and_deleted_mail_and_damage_keep_segments(
    running: RunningControl, control: AsyncControlClient
) -> None:
    held, deleted = fill(running, "hold", 9), fill(running, "deleted", 9)
    disk = Disk()
    disk.close(disk.create(damaged_path(str(running.lane("hold").directory / name_of(held[1])))))
    places(
        running,
        {"hold": [0, 0, running.lane("hold").end], "deleted": [0, 0, running.lane("deleted").end]},
    )
    answer = await control.call("positions")
    assert [each["kept_by"] for each in lane_of(answer, "hold")["segments"]][:2] == [
        Keeper.HELD,
        Keeper.DAMAGE,
    ]
    assert lane_of(answer, "deleted")["segments"][0]["kept_by"] == Keeper.DELETED
    assert lane_of(answer, "hold")["interval_s"] is None
    assert deleted


async def test_retired_segments_are_told_with_what_is_needed_of_them(
    running: RunningControl, control: AsyncControlClient
) -> None:
    queue = running.settings.queue_directory
    offsets = retired_lane(queue, "incoming.7", 3, 9000)
    mark_garbage(queue, "incoming.7", offsets[0])
    places(running, {"incoming.7": [0, 0, 0]})
    lane = lane_of(await control.call("positions"), "incoming.7")
    told = lane["retired"]
    assert (told["segments"], told["oldest_at"]) == (1, 1_000_000_000.0)
    assert told["bytes"] > 27_000 > told["needed_bytes"] > 18_000
    assert len(lane["segments"]) == 1, "a retired segment is no part of its lane"


async def test_of_many_segments_the_oldest_and_the_newest_are_listed(
    running: RunningControl, control: AsyncControlClient, monkeypatch: Any
) -> None:
    monkeypatch.setattr(segments, "SEGMENTS_SHOWN", 3)
    bases = fill(running, "incoming.0", 20)
    places(running, {"incoming.0": [0, 0, running.lane("incoming.0").end]})
    lane = lane_of(await control.call("positions"), "incoming.0")
    assert [each["base"] for each in lane["segments"]] == [*bases[:2], bases[-1]]
    assert lane["segments_left_out"] == len(bases) - 3


async def test_what_a_start_would_cost_is_told(running: RunningControl, control: AsyncControlClient) -> None:
    journal = Lane(running.settings.queue_directory, "journal")
    try:
        journal.write(*(envelope() for _ in range(100)))
        end = journal.end
        recorded(running, {}, suffix=4096, journal_end=end)
        places(running, {}, journal={"suffix": end - 100, "end": end, "durable": end}, working=40)
        answer = await control.call("positions")
    finally:
        journal.close()
    recovery = answer["recovery"]
    assert recovery["bytes"] == end - 4096  # a start reads from where the positions on disk say
    assert recovery["records_estimate"] == 100
    assert recovery["messages"] == 40
    assert recovery["seconds_estimate"] > 0
    assert "100 records, and continue with 40 messages" in recovery["sentence"]
    assert answer["journal"]["suffix_bytes"] == 100
    assert [each["kept_by"] for each in answer["journal"]["segments"]] == [Keeper.NEWEST]


async def test_without_a_manager_the_positions_on_disk_serve(
    running: RunningControl, control: AsyncControlClient
) -> None:
    fill(running, "retry.5", 1)
    recorded(running, {"retry.5": LanePosition(10, 20, 5)}, suffix=100, journal_end=600)
    await running.lose_the_manager()
    answer = await control.call("positions")
    assert "the manager is not running" in answer["note"]
    lane = lane_of(answer, "retry.5")
    assert (lane["browse"], lane["runner"], lane["end"], lane["lag_bytes"]) == (5, 10, 20, 10)
    assert answer["recovery"]["messages"] is None
    assert answer["recovery"]["bytes"] == 500
    assert "continue with" not in answer["recovery"]["sentence"]


async def test_damaged_positions_that_were_set_aside_are_told(
    running: RunningControl, control: AsyncControlClient
) -> None:
    fill(running, "retry.5", 1)
    recorded(running, {"retry.5": LanePosition(10, 20, 5)}, suffix=100, journal_end=600)
    await running.lose_the_manager()
    assert "damaged" not in (await control.call("positions"))["note"]
    path = running.settings.queue_directory / "restart.damaged"
    path.write_bytes(b"damaged")
    assert f"were damaged and are in {path}" in (await control.call("positions"))["note"]
