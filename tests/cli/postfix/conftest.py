"""The home of ``sendmail`` for each test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.postfix.maildrop_home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Home:
    before = os.umask(0o022)
    os.umask(before)
    monkeypatch.setattr(os, "umask", lambda mask: 0)
    return Home(tmp_path, monkeypatch, capsys)
