"""What docs/operate.md tells an operator to type, typed: each command is understood, and none fails."""

from __future__ import annotations

import asyncio
import re
import shlex
import smtplib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.cli.main import main
from tests.end_to_end.appliance import Appliance

PAGE = Path(__file__).parents[2] / "docs" / "operate.md"
COMMAND = re.compile(r"^ {4}waypost (.+)$", re.MULTILINE)
ELSEWHERE = ("report", "doctor", "backup")  # they look at the host, or take minutes: tests of their own
STOPPED = ("identity", "adopt")  # only while Waypost does not run: tests/supervisor/test_missing_disk.py
MESSAGES = 3


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wp") as name:
        yield Path(name)


def commands() -> list[list[str]]:
    return [shlex.split(line) for line in COMMAND.findall(PAGE.read_text(encoding="utf-8"))]


def test_each_situation_says_what_is_seen_what_to_do_and_what_not() -> None:
    situations = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(situations) >= 10
    for each in situations:
        for part in ("**What one sees.**", "**What to do.**", "**What not.**"):
            assert each.count(part) == 1, each.splitlines()[0]
        assert COMMAND.search(each), each.splitlines()[0]


async def test_each_command_of_the_page_does_what_it_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    appliance = Appliance(place, {"*": "smtp:[127.0.0.1]:1"}, {"queue": {"retry_ladder_s": [600]}})
    await appliance.start()
    try:
        ids = await asyncio.to_thread(send, appliance.port)
        for words in commands():
            if words[0] in ELSEWHERE or tuple(words[:2]) == STOPPED:
                continue
            told = [ids[0] if word == "QUEUE_ID" else word for word in words]
            if "--config" in told:
                told = told[: told.index("--config")]
            status = await asyncio.to_thread(main, [*told, "--config", str(appliance.config)])
            captured = capsys.readouterr()
            assert status == 0, f"waypost {shlex.join(told)}: {captured.err or captured.out}"
        # What was held and deleted on the way: the mail of the wrong newsletter, and nothing else.
        shown = [await appliance.ask("queue", "show", queue_id) for queue_id in ids]
        assert [each["message"]["state"] for each in shown] == ["deleted", "deleted", "deferred"]
    finally:
        appliance.stop()


def send(port: int) -> list[str]:
    """A newsletter that waits, for nobody listens where it is to go."""
    found = []
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        for number in range(MESSAGES):
            client.ehlo("client.example")
            client.mail("news@example.org" if number < MESSAGES - 1 else "other@example.org")
            client.rcpt(f"user{number}@example.org")
            _, reply = client.data(b"Subject: news\r\n\r\nx\r\n")
            found.append(reply.decode().split()[-1])
    return found
