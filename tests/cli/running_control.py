"""``waypost`` run against a real control server with a fake manager; in a thread, because it blocks."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from mailcore.cli.main import main
from tests.control.running_control import RunningControl
from tests.json_lines import read_list


@dataclass(frozen=True)
class Said:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def items(self) -> list[dict[str, Any]]:
        return read_list(self.out)[0]

    @property
    def end(self) -> dict[str, Any]:
        return read_list(self.out)[1]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(line)["error"] for line in self.err.splitlines()]


class Waypost:
    """Call it like the command."""

    def __init__(self, running: RunningControl, capsys: pytest.CaptureFixture[str]) -> None:
        self.running = running
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> Said:
        status = await asyncio.to_thread(main, [*arguments, "--config", str(self.running.config)])
        return self.read(status)

    def read(self, status: int) -> Said:
        captured = self._capsys.readouterr()
        return Said(status, captured.out, captured.err)
