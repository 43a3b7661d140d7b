"""A look into a maildrop where nothing waits costs the disk nothing."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.pickup import pickup as module
from mailcore.pickup.dropped import Draft, Submission
from mailcore.pickup.pickup import OPEN, SHUT, Pickup, open_maildrop


def a_pickup(home: Path) -> Pickup:
    settings = Settings(
        home=home,
        queue_directory=home / "queue",
        spool_directory=home / "spool",
        run_directory=home / "run",
        log_directory=home / "log",
    )
    return Pickup(settings, asyncio.get_running_loop())


async def test_an_idle_look_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickup = a_pickup(tmp_path)
    assert pickup._look() is None
    synced: list[str] = []
    monkeypatch.setattr(Disk, "sync_directory", lambda disk, path: synced.append(path))
    for _ in range(3):
        assert pickup._look() is None
    assert synced == []
    pickup.close()


async def test_mail_is_reported_though_the_maildrop_can_be_neither_shut_nor_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be in the lane, and the manager would hear of it with the next mail only."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EOPNOTSUPP, "no access lists here")

    for each in ("queue", "spool", "log"):
        (tmp_path / each).mkdir()
    pickup = a_pickup(tmp_path)
    assert pickup._look() is None
    draft = Draft(Disk(), str(tmp_path / "maildrop"), "")
    draft.begin(Submission(sender="a@example.org", recipients=("b@example.net",), submitted_at=1000.0))
    draft.write(b"Subject: x\n\nhi\n")
    draft.submit()
    recovered = pickup._look()
    assert recovered is not None
    monkeypatch.setattr(module, "open_maildrop", refuse)
    taken = pickup._look()
    assert taken is not None
    assert (len(taken.envelopes), taken.end > recovered.end) == (1, True)
    assert "no access lists here" in pickup._tell(taken)
    assert taken.envelopes[0].queue_id in (tmp_path / "log" / "mail.log").read_text()
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
