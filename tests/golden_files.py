"""Golden files: whole texts that people read, kept below tests/golden or docs, so that their words change on purpose.

A test hands its text to the fixture ``golden`` (tests/conftest.py), which compares it with the file. ``./test --update-golden
tests/cli`` writes the files instead of comparing; the difference that git shows is then what a reader will see.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["DIRECTORY", "Golden"]

DIRECTORY = Path(__file__).parent / "golden"
RENEW = "if the new words are meant: ./test --update-golden {test}, and commit the file"


class Golden:
    """Compares texts with the files below ``directory``, or writes them if ``update`` is set."""

    def __init__(self, test: str, *, update: bool, directory: Path = DIRECTORY) -> None:
        self._test = test
        self._update = update
        self._directory = directory

    def __call__(self, name: str, text: str, *, only_words: bool = False, below: Path | None = None) -> None:
        """Fails the test if ``text`` differs from the file ``name``, which is below another directory if ``below`` is given.

        ``only_words`` ignores how lines are wrapped.
        """
        path = (below or self._directory) / name
        text = text.rstrip("\n") + "\n"
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        renew = RENEW.format(test=self._test)
        if not path.exists():
            pytest.fail(f"{path.parent.name}/{path.name} does not exist; {renew}")
        expected = path.read_text(encoding="utf-8")
        if only_words:
            assert text.split() == expected.split(), renew
        else:
            assert text.splitlines() == expected.splitlines(), renew
