"""The table from commands of Postfix and Exim to ours: each of ours is a command line that can be typed."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.tree import parser_of
from tests.test_tidy import read

PAGE = "docs/commands-of-postfix.md"
VALUES = {
    "ADDRESS": "a@example.org", "DESTINATION": "smtp:example.org", "FILE": "message", "PARAMETER": "process_limit",
    "QUEUE_ID": "1K0RDGV4BE900", "TRANSPORT": "smtp", "VALUE": "5",
}  # fmt: skip
ROWS = [line.split(" | ") for line in read(PAGE).replace("\\|", "/").splitlines() if line.startswith("| `")]
LINES = sorted({code for row in ROWS for cell in row[1:] for code in re.findall("`(waypost .*?)`", cell)})
# What operators of Postfix and Exim type; the page must know each.
KNOWN = (
    "postsuper -d", "postsuper -h", "postsuper -H", "postsuper -r", "postqueue -p", "postqueue -f", "postqueue -i",
    "postqueue -s", "postcat -q", "qshape", "mailq", "exim -bp", "exim -M ID", "exim -Mf", "exim -Mt", "exim -Mrm",
    "exim -Mg", "exim -Mar", "exim -Mvb", "exim -Mvh", "exim -Mvl", "exim -bt",
)  # fmt: skip


def test_the_page_knows_their_commands() -> None:
    theirs = "\n".join(row[0] for row in ROWS)
    assert [command for command in KNOWN if f"`{command}" not in theirs] == []
    assert len(LINES) > 30


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_ours_can_be_typed(line: str) -> None:
    _, command, *words = shlex.split(line)
    assert command in COMMANDS
    given = argparse.Namespace(config=None, json=False)
    arguments = parser_of(COMMANDS, command).parse_args([VALUES.get(word, word) for word in words], given)
    assert callable(arguments.run)
