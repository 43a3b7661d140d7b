"""The appliance's verdicts, read from its log of JSON lines (docs/log.md) as it grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Verdicts"]


class Verdicts:
    """Reads the new events of ``mail.jsonl``, whole lines only."""

    def __init__(self, home: Path) -> None:
        self._path = home / "log" / "mail.jsonl"
        self._place = 0

    def events(self, *names: str) -> Iterator[dict[str, Any]]:
        """Yields the events with these names since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._place)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._place += len(line)
                event: dict[str, Any] = json.loads(line)
                if event["event"] in names:
                    yield event
