"""A number of things is worded by one function, so that no text says "1 entries"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from mailcore.counted import counted
from tests.test_tidy import PROGRAMS, read

NOUNS = (
    "accounts|addresses|arguments|attempts|certificates|changes|clients|connections|deferrals|deliveries|destinations|domains|"
    "entries|events|failures|faults|fields|files|groups|hops|hosts|inodes|lanes|lines|locks|logins|messages|networks|pages|"
    "patterns|processes|recipients|records|refusals|reports|rows|rules|runs|samples|segments|sessions|spans|syncs|tables|"
    "texts|times|users|values|verdicts|workers"
)
PLURAL = re.compile(rf" (?!has )(?:[a-z]+ )?(?:{NOUNS})\b")
# A limit, or a part of a whole: "at most 5 files", "1 of 5 files". A limit of 1 is rare, and the whole is more than its part.
BEFORE = re.compile(r"\b(?:of|most|least|than|limit|to|allowed:|exactly|fewer|about|the) $")


def plurals(source: str) -> Iterator[str]:
    """The places where a number is put before a plural, unless the line before decides about 1."""
    tree = ast.parse(read(source))
    decided = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp)
        and any(isinstance(n, ast.Constant) and n.value in (1, "1") for n in ast.walk(node.test))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in decided:
            continue
        before = ""
        for value, after in zip(node.values, [*node.values[1:], None], strict=True):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                number = ast.unparse(value.value)
                is_limit = (
                    number.startswith("counted(")
                    or _is_constant(number)
                    or value.format_spec is not None
                    or BEFORE.search(before)
                )
                if not is_limit and (found := PLURAL.match(str(after.value))):
                    yield f"{source}:{value.lineno}: {{{number}}}{found.group()}"
            before = str(value.value) if isinstance(value, ast.Constant) else ""


def _is_constant(number: str) -> bool:
    return number.rsplit(".", maxsplit=1)[-1].partition("[")[0].isupper()


def test_no_text_puts_a_number_before_a_plural() -> None:
    rooms = "mailcore/", "appliance/"
    found = [each for source in PROGRAMS if source.startswith(rooms) for each in plurals(source)]
    assert found == [], "write counted(NUMBER, 'entry') (mailcore/counted.py)"


def test_the_check_finds_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'f"{a} entries"; f"at most {b} files"; f"{N} files"; f"1 x" if c == 1 else f"{c} users"; f"{len(d)} spool files"'
    monkeypatch.setattr("tests.test_counted.read", lambda _: text)
    assert list(plurals("x")) == ["x:1: {a} entries", "x:1: {len(d)} spool files"]


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "file", "0 files"),
        (1, "entry", "1 entry"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
        (2, "address", "2 addresses"),
        (2, "match", "2 matches"),
        (1, "process", "1 process"),
    ],
)
def test_a_number_of_things(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_a_large_number_may_have_a_form() -> None:
    assert counted(1_000_000, "record", ",") == "1,000,000 records"
