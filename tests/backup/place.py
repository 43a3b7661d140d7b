"""A core whose home is backed up, destroyed and brought back, by the commands an operator types."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.running.running_core import RunningCore

__all__ = ["REASON", "backed_up", "command", "destroyed_and_restored", "restored"]

REASON = "restored from the backup"


async def command(core: RunningCore, *words: str, fails: bool = False) -> Any:
    """``waypost WORDS --json``: what it answered, or, when it must fail, what it said."""
    code, out, err = await core._run(*words)
    if fails:
        assert code == 1, out
        return err
    assert code == 0, err or out
    return json.loads(out)


async def backed_up(core: RunningCore, *options: str) -> Path:
    path = core.directory / "one.tar.zst"
    path.unlink(missing_ok=True)
    made = await command(core, "backup", str(path), *options)
    assert Path(made["file"]) == path
    return path


async def restored(core: RunningCore, path: Path, *options: str) -> Any:
    return await command(core, "restore", str(path), *options)


async def destroyed_and_restored(core: RunningCore, path: Path, *options: str) -> Any:
    """SIGKILL of everything, the home away, and back from the backup; not started."""
    if core._process is not None:
        core.stop()
    await core.control.close()
    shutil.rmtree(core.home)
    return await restored(core, path, *options)
