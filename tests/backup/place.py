"""A house whose home is backed up, destroyed and brought back, by the commands an operator types."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.running.running_manager import House

__all__ = ["REASON", "backed_up", "command", "destroyed_and_restored", "restored"]

REASON = "restored from the backup"


async def command(house: House, *words: str, fails: bool = False) -> Any:
    """``waypost WORDS --json``: what it answered, or, when it must fail, what it said."""
    code, out, err = await house._run(*words)
    if fails:
        assert code == 1, out
        return err
    assert code == 0, err or out
    return json.loads(out)


async def backed_up(house: House, *options: str) -> Path:
    path = house.directory / "one.tar.zst"
    path.unlink(missing_ok=True)
    made = await command(house, "backup", str(path), *options)
    assert Path(made["file"]) == path
    return path


async def restored(house: House, path: Path, *options: str) -> Any:
    return await command(house, "restore", str(path), *options)


async def destroyed_and_restored(house: House, path: Path, *options: str) -> Any:
    """SIGKILL of everything, the home away, and back from the backup; not started."""
    if house._process is not None:
        house.stop()
    await house.control.close()
    shutil.rmtree(house.home)
    return await restored(house, path, *options)
