"""What the doctor says of the maildrop."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from mailcore.doctor import maildrop
from mailcore.doctor.finding import State
from mailcore.doctor.host import Host


def states(home: Path) -> list[State]:
    host = cast(Host, SimpleNamespace(settings=SimpleNamespace(home=home)))
    return [finding.state for finding in maildrop.look(host)]


def test_damaged_files_and_mail_that_waits_are_named(tmp_path: Path) -> None:
    assert states(tmp_path) == [State.NOT_KNOWN]
    drop = tmp_path / "maildrop"
    drop.mkdir()
    assert states(tmp_path) == [State.GOOD]
    (drop / ("a" * 32)).touch()
    assert states(tmp_path) == [State.GOOD]
    os.utime(drop / ("a" * 32), (0, 0))
    assert states(tmp_path) == [State.WARN]
    (drop / ("damaged." + "b" * 32)).touch()
    assert states(tmp_path) == [State.WARN, State.WARN]
