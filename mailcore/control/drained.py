"""Tells whether a shard that takes no mail any more is empty: nothing waits, nothing could come back, all is exported and
counted.

In doubt it has some: a shard that is taken for empty is not started again.

Keeps law: drained-before-forgotten (docs/laws.md).
"""

from __future__ import annotations

import os

from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.messages import ListPage
from mailcore.control.protocol.state import Positions
from mailcore.counted import counted
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.segment import Damage
from mailcore.manager_answers import Size
from mailcore.queue.exported import EXPORTED, UNEXPORTED, read_exported
from mailcore.queue.lanes import DELETED, JOURNAL, is_incoming

__all__ = ["is_drained", "left_in"]

ANSWER_S = 10.0
COUNT_S = 30.0
EXPORTER_SOCKET = "exporter.sock"  # as events.exporter, which control does not import


def is_drained(settings: Settings) -> bool:
    """Returns whether the shard with these settings has no mail. ``settings`` are those of the shard, which runs."""
    return not left_in(settings)


def left_in(settings: Settings, *, exports: bool = False) -> str:
    """Returns what the shard with these settings, which runs, still has, as words of a sentence; "" if it has drained.

    ``exports``: lets it export all that it has first, and not when its segments or a day end.
    """
    try:
        with ControlClient(settings.run_directory / "control.sock", who="supervisor", timeout_s=ANSWER_S) as control:
            before = control.ask("positions", Positions)
            is_read = not before.note and _is_read(settings, before)
            if messages := control.ask("size", Size).messages:
                return counted(messages, "message")
            if _has_deleted(control):
                return "deleted mail that can be undeleted"
            positions = control.ask("positions", Positions)
        # Mail that was read, or written, between the questions is in neither answer: then they are asked again later.
        if not is_read or _ends(positions) != _ends(before):
            return "mail that its manager has not read"
        if exports and settings.export.enabled and not _is_exported(settings, positions):
            with ControlClient(
                settings.run_directory / EXPORTER_SOCKET, who="supervisor", timeout_s=COUNT_S
            ) as exporter:
                exporter.call("export", {})
        if not _is_exported(settings, positions):
            return "events that are not exported"
        return "" if _is_counted(settings) else "events that are not counted"
    except (ControlError, OSError, ValueError) as error:
        return f"an unknown amount, because it does not answer: {error}"


def _ends(positions: Positions) -> dict[str, int]:
    return {at.lane: at.end for at in positions.lanes} | {JOURNAL: positions.journal.end}


def _has_deleted(control: ControlClient) -> bool:
    """Returns whether deleted mail could be undeleted."""
    cursor: str | None = ""
    while cursor is not None:
        page = control.ask("list", ListPage, {"filter": {"lane": DELETED}, "cursor": cursor})
        if page.items or page.manager_away:
            return True
        cursor = page.cursor
    return False


def _is_read(settings: Settings, positions: Positions) -> bool:
    """Returns whether the manager has read all that receivers wrote, also those that ended before it looked."""
    for at in positions.lanes:
        if at.runner < at.end:
            return False
        if is_incoming(at.lane) and _has_more(os.path.join(settings.queue_directory, at.lane), at.end):
            return False
    return True


def _has_more(lane: str, end: int) -> bool:
    damages: list[Damage] = []
    reader = LaneReader(Disk(), lane, damages.append)
    try:
        return any(True for _ in reader.records(end)) or bool(damages)
    finally:
        reader.close()


def _is_counted(settings: Settings) -> bool:
    """Has the empty queue counted, so that the reports of this day and of those that follow know that it is closed."""
    if not settings.export.enabled:
        return True
    with ControlClient(settings.run_directory / EXPORTER_SOCKET, who="supervisor", timeout_s=COUNT_S) as exporter:
        return exporter.call("cut", {"closing": True})["closed"] is True


def _is_exported(settings: Settings, positions: Positions) -> bool:
    if not settings.export.enabled:
        return True
    exported = read_exported(Disk(), str(settings.events_directory / EXPORTED))
    ends = {at.lane: at.end for at in positions.lanes if at.lane not in UNEXPORTED} | {JOURNAL: positions.journal.end}
    lanes = exported.lanes if exported is not None else {}
    return all(not end or (lane in lanes and lanes[lane].needed >= end) for lane, end in ends.items())
