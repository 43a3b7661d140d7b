"""The copy of other nodes' events is in no backup: the database has them, and a restored home fetches them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from mailcore.backup.backup import _events
from mailcore.backup.writer import Writer
from mailcore.config.events_copy import COPY
from mailcore.log.disk import Disk
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, write_exported


class Names:
    """Notes what is put into a backup."""

    def __init__(self) -> None:
        self.files: list[str] = []

    def add_file(self, name: str, *_: Any) -> None:
        self.files.append(name)

    def add_bytes(self, name: str, *_: Any) -> None:
        self.files.append(name)

    def add_folder(self, *_: Any) -> None:
        pass


def test_the_copy_of_the_events_of_all_nodes_is_left_out(tmp_path: Path) -> None:
    lanes = {"journal": ExportedLane(1_000)}
    (tmp_path / EXPORTED).mkdir()
    write_exported(Disk(), str(tmp_path / EXPORTED), ExportedPositions(lanes=lanes))
    own = "dt=2026-11-20/journal.0.parquet"
    for name in (own, f"{COPY}/shards.json", f"{COPY}/shards/01/events/{own}"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"events")
    names = Names()
    _events(cast(Writer, names), tmp_path, "")
    assert sorted(names.files) == [f"events/{EXPORTED}/positions.json", f"events/{own}"]
