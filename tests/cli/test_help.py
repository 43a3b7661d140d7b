"""The whole of ``waypost … --help``, of every command and subcommand, as golden files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.main import main
from tests.golden_files import DIRECTORY, Golden

COLUMNS = "100"
SUBCOMMAND = re.compile(r"^    ([a-z-]+)(?: |$)", re.MULTILINE)
# argparse of Python 3.13 and newer wraps the usage otherwise.
ONLY_WORDS = sys.version_info >= (3, 13)


def help_of(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """What ``waypost PATH --help`` prints on a terminal of 100 columns."""
    try:
        status = main([*path, "--help"])
    except SystemExit as end:
        status = int(end.code or 0)
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    return captured.out


def subcommands(text: str) -> list[str]:
    """Those a help lists below COMMAND."""
    block = re.search(r"^  COMMAND\n((?:    .*\n)+)", text, re.MULTILINE)
    return SUBCOMMAND.findall(block[1]) if block else []


def pages(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[str, str]]:
    """The name of the golden file and the text of every page of help."""
    yield "waypost", help_of((), capsys)
    for command in COMMANDS:
        text = help_of((command,), capsys)
        yield command, text
        for subcommand in ["dump"] if command == "log" else subcommands(text):
            yield f"{command}-{subcommand}", help_of((command, subcommand), capsys)


def test_every_page_of_help(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS)
    names = set()
    for name, text in pages(capsys):
        golden(f"help/{name}.txt", text, only_words=ONLY_WORDS)
        names.add(name)
    assert {"waypost", "queue-list", "destination-slow", "log-dump"} <= names
    assert {path.stem for path in (DIRECTORY / "help").iterdir()} == names, "a golden file of no command"
