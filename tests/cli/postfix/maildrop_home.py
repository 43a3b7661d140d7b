"""A home with a maildrop, into which ``sendmail`` puts its messages."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from mailcore.cli.postfix.main import main
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import Dropped, names_of
from mailcore.pickup.pickup import open_maildrop

__all__ = ["HOST", "Home", "smtp"]

HOST = "mx.example.org"


class Home:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.maildrop = directory / "home" / "maildrop"
        self.config = directory / "waypost.toml"
        self.config.write_text(
            f'home = "{directory / "home"}"\n[receiver]\nhostname = "{HOST}"\nmessage_size_limit = 5000\n'
            "[queue]\nreserve_bytes = 0\nreserve_inodes = 0\n[maildrop]\nfiles_max = 3\n"
        )
        monkeypatch.setenv("WAYPOST_CONFIG", str(self.config))
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.err = ""
        self.out = ""
        open_maildrop(str(self.maildrop))

    def allow(self, size: int) -> None:
        """Takes messages up to this size."""
        text = self.config.read_text()
        self.config.write_text(text.replace("message_size_limit = 5000", f"message_size_limit = {size}"))

    def run(self, *argv: str, text: bytes = b"Subject: x\n\nbody\n") -> int:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        status = main(["/usr/sbin/sendmail", *argv])
        self.out, self.err = self._capsys.readouterr()
        return status

    def names(self) -> list[str]:
        return names_of(os.listdir(self.maildrop))

    def only(self) -> Dropped:
        (name,) = self.names()
        dropped = Dropped(Disk(), str(self.maildrop), name)
        dropped.text = b"".join(dropped.pieces())  # type: ignore[attr-defined]
        dropped.close()
        (self.maildrop / name).unlink()
        return dropped


def smtp(home: Home, text: bytes) -> list[str]:
    assert home.run("-bs", text=text.replace(b"\n", b"\r\n")) == 0
    return re.findall(r"^(\d\d\d) ", home.out, re.MULTILINE)
