"""A look into a maildrop where nothing waits costs the disk nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.pickup.pickup import OPEN, SHUT, Pickup, open_maildrop


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


async def test_the_maildrop_is_shut_and_opened_where_no_process_may_set_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in systemd's unit: RestrictSUIDSGID refuses a mode with the setgid bit, also to a directory that has it."""
    directory = tmp_path / "maildrop"
    directory.mkdir()
    directory.chmod(OPEN)

    def refuse(path: str, mode: int) -> None:
        assert mode & 0o2000
        raise PermissionError

    monkeypatch.setattr(os, "chmod", refuse)
    for shut, mode in ((True, SHUT), (False, OPEN)):
        open_maildrop(str(directory), shut=shut)
        assert directory.stat().st_mode & 0o7777 == mode
    monkeypatch.undo()
    directory.chmod(0o755)
    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(PermissionError):
        open_maildrop(str(directory))
