"""Where to read when the manager is away: up to the restart positions it wrote last.

Records that the manager wrote after them do not count (law: end-decides): until the next positions a message counts where it
was before. A mark is written only after the positions that cover the new envelope are (law: mark-after-record), so a manager
that stopped in between leaves both envelopes without a mark. Then the one with the higher generation counts.

Keeps law: works-without-manager (docs/laws.md).
"""

from __future__ import annotations

import os

from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, read_all_positions, read_positions
from mailcore.log.reader import LaneReader
from mailcore.lookup.browse import Stretch, envelope_of
from mailcore.queue.lanes import JOURNAL, is_incoming

__all__ = ["LastKnown"]

NOWHERE = LanePosition(0, 0, 0)


class LastKnown:
    """Knows the stretches according to the restart positions on disk. May be used by several threads."""

    def __init__(self, disk: Disk, queue_directory: str) -> None:
        self._disk = disk
        self._directory = queue_directory
        self._replaced: tuple[int, dict[str, int]] = (
            -1,
            {},
        )  # of which positions; the same until a manager writes new ones

    def stretches(self) -> tuple[dict[str, Stretch], float]:
        """Returns the stretch of each lane, and the wall-clock time at which the positions were written, 0 if there are none.

        A receiver's lane is read to its last valid record. Raises PositionsDamaged, OSError.
        """
        positions: RestartPositions | None = read_positions(self._disk, self._directory)
        known = positions.lanes if positions is not None else {}
        sequence, replaced = self._replaced
        if positions is not None and sequence != positions.sequence:
            replaced = self._moved_last()
            self._replaced = (positions.sequence, replaced)
        stretches = {}
        for name in self._disk.list(self._directory):
            if name == JOURNAL or name.startswith(".") or not os.path.isdir(os.path.join(self._directory, name)):
                continue
            at = known.get(name, NOWHERE)
            end = None if is_incoming(name) or positions is None else at.end
            stretches[name] = Stretch(at.browse, at.runner, end, replaced)
        return stretches, positions.written_at if positions is not None else 0.0

    def _moved_last(self) -> dict[str, int]:
        """Returns the generation of each message that the newest positions moved, by queue id.

        Reads what the manager wrote into its lanes between the two positions kept: the moves of one checkpoint.
        """
        kept = read_all_positions(self._disk, self._directory)
        newest: dict[str, int] = {}
        for name, at in kept[-1].lanes.items() if kept else ():
            before = kept[0].lanes.get(name, NOWHERE).end if len(kept) > 1 else 0
            if is_incoming(name) or name == JOURNAL or before >= at.end:
                continue
            reader = LaneReader(self._disk, os.path.join(self._directory, name), lambda _: None)
            try:
                for record in reader.records(max(before, at.browse), at.end):
                    envelope = envelope_of(record)
                    if envelope is not None:
                        newest[envelope.queue_id] = max(newest.get(envelope.queue_id, 0), envelope.generation)
            finally:
                reader.close()
        return newest
