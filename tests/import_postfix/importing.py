"""``waypost import-postfix`` on a queue of a test's, and what arrives of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mailcore.cli.main import main
from tests.end_to_end.appliance import Appliance
from tests.import_postfix.old_queue import OldQueue
from tests.running.catcher import Catcher

__all__ = ["Import", "arrived"]


class Import:
    """``waypost import-postfix`` with the appliance's configuration."""

    def __init__(self, old: OldQueue, appliance: Appliance, capsys: pytest.CaptureFixture[str]) -> None:
        self.command = ["import-postfix", str(old.etc), "--queue-directory", str(old.queue)]
        self.config = ["--config", str(appliance.config)]
        self._capsys = capsys

    async def __call__(self, *arguments: str, status: int = 0) -> str:
        got = await asyncio.to_thread(main, [*self.command, *arguments, *self.config])
        out, err = self._capsys.readouterr()
        assert got == status, out + err
        return out + err

    async def told(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await self(*arguments, "--json", status=status))
        return found


async def arrived(catcher: Catcher, count: int) -> list[str]:
    """Who got mail, as often as they got it."""
    for _ in range(600):
        found = sorted(each for _, recipients, _ in catcher.caught for each in recipients)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"only {found} arrived")
