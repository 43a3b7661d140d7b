"""A look into a maildrop where nothing waits costs the disk nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.pickup.pickup import Pickup


async def test_an_idle_look_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(
        home=tmp_path,
        queue_directory=tmp_path / "queue",
        spool_directory=tmp_path / "spool",
        run_directory=tmp_path / "run",
        log_directory=tmp_path / "log",
    )
    pickup = Pickup(settings, asyncio.get_running_loop())
    assert pickup._look() is None
    synced: list[str] = []
    monkeypatch.setattr(Disk, "sync_directory", lambda disk, path: synced.append(path))
    for _ in range(3):
        assert pickup._look() is None
    assert synced == []
    pickup.close()
