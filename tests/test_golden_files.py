"""Golden files: a changed word fails, --update-golden writes the file, and each file belongs to a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_files import DIRECTORY, Golden


def test_a_changed_word_fails_and_says_how_to_renew(tmp_path: Path) -> None:
    (tmp_path / "page.txt").write_text("one\ntwo\n")
    compare = Golden("tests/cli/test_help.py", update=False, directory=tmp_path)
    compare("page.txt", "one\ntwo")
    with pytest.raises(AssertionError, match=r"--update-golden tests/cli/test_help\.py"):
        compare("page.txt", "one\nthree\n")
    with pytest.raises(AssertionError):
        compare("page.txt", "one two\n")
    compare("page.txt", "one two\n", only_words=True)
    with pytest.raises(AssertionError):
        compare("page.txt", "one three\n", only_words=True)


def test_a_missing_file_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="does not exist"):
        Golden("tests/x.py", update=False, directory=tmp_path)("page.txt", "one\n")


def test_an_update_writes_the_file(tmp_path: Path) -> None:
    Golden("tests/x.py", update=True, directory=tmp_path)("new/page.txt", "one")
    assert (tmp_path / "new" / "page.txt").read_text() == "one\n"


def test_golden_files_are_there() -> None:
    assert len(list(DIRECTORY.rglob("*.txt"))) >= 2
    assert len(list((DIRECTORY.parents[1] / "docs" / "commands").glob("*.md"))) > 15
