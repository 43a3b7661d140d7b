"""``waypost tlsrpt show``, and what is loaded while reports are off."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.tlsrpt.sent import DONE, SentReports
from tests.tlsrpt.test_sending import store

DAY = date(2026, 11, 20)


def show(directory: Path, *arguments: str, sender: str = "tls@example.org") -> int:
    config = directory / "waypost.toml"
    config.write_text(f'home = "{directory}"\n[tlsrpt]\nsender = "{sender}"\n')
    return main(["tlsrpt", "show", *arguments, "--config", str(config)])


def test_the_reports_of_a_day_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path / "tlsrpt", DAY, "new.example", good=3)
    store(tmp_path / "tlsrpt", DAY, "sent.example")
    sent = SentReports(tmp_path)
    sent.add(DAY, "sent.example", "mailto:x@sent.example", "4FQ")
    sent.add(DAY, "sent.example", DONE, "done")
    assert show(tmp_path, str(DAY)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("new.example: due at 2026-11-21 0")
    assert lines[1:] == [
        "  no-policy-found new.example: 3 good, 0 failed",
        "sent.example: done",
        "  no-policy-found sent.example: 1 good, 0 failed",
        "  to mailto:x@sent.example: 4FQ",
    ]
    assert show(tmp_path, str(DAY), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["content"]["policies"][0]["policy"]["policy-domain"] for each in answer["reports"]] == [
        "new.example", "sent.example",
    ]  # fmt: skip


def test_a_day_without_counts_and_a_waypost_without_reports_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, "2026-11-19") == 0
    assert capsys.readouterr().out == "no sessions are counted on 2026-11-19\n"
    assert show(tmp_path, sender="") == 2
    assert "set [tlsrpt] sender" in capsys.readouterr().err


def test_without_the_setting_no_process_loads_anything_of_it() -> None:
    program = (
        "import asyncio, sys; from mailcore import processes; from mailcore.config.settings import Settings\n"
        "from pathlib import Path; p = Path('/nonexistent')\n"
        "settings = Settings(home=p, queue_directory=p, spool_directory=p, run_directory=p, log_directory=p)\n"
        "assert processes.ROLES['deliverer'].load().args[1](settings, None, print) is None\n"
        "beside = processes.ROLES['control'].load().args[3]; asyncio.run(beside[2](settings, None))\n"
        "names = 'mailcore.tlsrpt', 'mailcore.tls_sessions', 'mailcore.deliverer.tls_counting'\n"
        "found = [name for name in sys.modules if name.startswith(names)]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
