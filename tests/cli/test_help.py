"""The whole of ``waypost … --help``: a page of docs/commands for each command, with its subcommands, as golden files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.main import main
from tests.golden_files import Golden

PAGES = Path(__file__).parents[2] / "docs" / "commands"
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
    """The name and the text of the page of every command."""
    text = help_of((), capsys)
    listed = "\n".join(f"- [waypost {command}]({command}.md)" for command in COMMANDS)
    yield "index", f"# Commands\n\n{block(text)}\n\n{listed}\n"
    for command in COMMANDS:
        text = help_of((command,), capsys)
        parts = [f"# waypost {command}", block(text)]
        for subcommand in ["dump"] if command == "log" else subcommands(text):
            parts += [f"## waypost {command} {subcommand}", block(help_of((command, subcommand), capsys))]
        yield command, "\n\n".join(parts)


def block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def test_every_page_of_help(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS)
    texts = dict(pages(capsys))
    for name, text in texts.items():
        golden(f"{name}.md", text, only_words=ONLY_WORDS, below=PAGES)
    assert "## waypost queue list\n" in texts["queue"]
    assert "## waypost log dump\n" in texts["log"]
    assert {path.stem for path in PAGES.iterdir()} == set(texts), "a page of no command"
