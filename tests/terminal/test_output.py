"""Nothing that strangers wrote can do anything to a terminal, and tables fit."""

from __future__ import annotations

import random

import pytest

from mailcore.terminal.output import complain, cut, plain, print_json, rows_to_lines, size_shown, table


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b31m", "\\x9b31m"),
        ("user\u202egro.elpmaxe@", "user\\u202egro.elpmaxe@"),
        ("a\u200bb", "a\\u200bb"),
        ("שלום@example.org", "\\u05e9\\u05dc\\u05d5\\u05dd@example.org"),
        ("a\u2028b", "a\\u2028b"),
        ("a\ud800", "a\\ud800"),
        ("a\U000e0041", "a\\U000e0041"),
    ],
)
def test_what_could_harm_is_escaped(hostile: str, shown: str) -> None:
    assert plain(hostile) == shown


@pytest.mark.parametrize(
    "harmless", ["user@example.org", "müller@bücher.example", "用户@例子.example", "450 4.2.0 try"]
)
def test_what_cannot_harm_is_shown_as_it_is(harmless: str) -> None:
    assert plain(harmless) == harmless


def test_a_table_fits_and_each_row_is_one_line() -> None:
    rows = [("1K0", "a" * 200, 5), ("1K1", "b\nc", 12_345), ("1K2", "漢字" * 40, 1)]
    lines = table(("ID", "ADDRESS", "N"), rows, 80, frozenset({2}))
    assert len(lines) == 4
    assert all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("1K0  aaaa")
    assert lines[1].endswith("a…      5")
    assert "b\\nc" in lines[2]
    assert lines[2].endswith(" 12345")


def test_a_table_of_nothing_has_its_heads() -> None:
    assert table(("A", "B"), [], 80, frozenset()) == ["A  B"]


def test_wide_characters_take_two_columns() -> None:
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("abc", 5) == "abc"


def test_any_text_comes_out_as_one_printable_line() -> None:
    chance = random.Random(3629)
    for _ in range(500):
        text = "".join(chr(chance.choice((chance.randrange(0x300), chance.randrange(0x110000)))) for _ in range(8))
        shown = plain(text)
        assert len(shown.splitlines()) <= 1
        assert all(character.isprintable() for character in shown)


def test_names_and_values_stand_beneath_each_other() -> None:
    assert rows_to_lines([("a", 1), ("long name", "x\x07")]) == ["a:         1", "long name: x\\x07"]
    assert rows_to_lines([]) == []


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (4096, "4.1 kB"), (31_457_280, "31 MB"), (5e12, "5000 GB")]
)
def test_sizes_are_short(size: float, text: str) -> None:
    assert size_shown(size) == text


def test_json_is_ascii_and_complaints_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": "ü\u202e\x1b"})
    complain("first\nsecond \x1b[0m ü")
    out, err = capsys.readouterr()
    assert out == '{"a": "\\u00fc\\u202e\\u001b"}\n'
    assert err == "waypost: first; second \\x1b[0m \\xfc\n"
