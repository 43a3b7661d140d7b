"""Every key of a TOML text is found on the line where it stands."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mailcore.config.lines import Path, key_lines

TEXT = """\
# a comment with [brackets] and "quotes
home = "var"   # = not a key
[receiver]
listen = [
  "127.0.0.1:25",  # first ]
  '[::1]:25',
]
processes = 1
hostname = \"\"\"
  [relay]
  domains = \"\"\"

[ transports . "sm.tp" ]
tls = {a = 1, "b" = [1, {c = 2}]}
day = 1979-05-27 07:32:00
x . "y" = 1.5
[[list]]
[[list]]
last = ''"""


def test_keys_tables_and_elements_have_their_lines() -> None:
    lines = key_lines(TEXT)
    assert lines == {
        ("home",): 2,
        ("receiver",): 3,
        ("receiver", "listen"): 4,
        ("receiver", "listen", 0): 5,
        ("receiver", "listen", 1): 6,
        ("receiver", "processes"): 8,
        ("receiver", "hostname"): 9,
        ("transports",): 13,
        ("transports", "sm.tp"): 13,
        ("transports", "sm.tp", "tls"): 14,
        ("transports", "sm.tp", "tls", "a"): 14,
        ("transports", "sm.tp", "tls", "b"): 14,
        ("transports", "sm.tp", "tls", "b", 0): 14,
        ("transports", "sm.tp", "tls", "b", 1): 14,
        ("transports", "sm.tp", "tls", "b", 1, "c"): 14,
        ("transports", "sm.tp", "day"): 15,
        ("transports", "sm.tp", "x"): 16,
        ("transports", "sm.tp", "x", "y"): 16,
        ("list",): 17,
        ("list", 0): 17,
        ("list", 1): 18,
        ("list", 1, "last"): 19,
    }


def test_carriage_returns_count_as_space() -> None:
    assert key_lines("a = 1\r\n\r\nb = 2\r\n") == {("a",): 1, ("b",): 3}


_names = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=8)
_values = st.recursive(
    st.integers(-(2**40), 2**40) | st.booleans() | _names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)


def _written(value: Any) -> str:
    """A TOML value over as many lines as TOML allows. JSON's strings are TOML's, surrogates aside."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_written(key)} = {_written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + "".join(f"{_written(inner)}, # ]\n" for inner in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _paths(value: Any, path: Path = ()) -> set[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path}.union(*(_paths(each, (*path, key)) for key, each in inner))


@given(st.dictionaries(_names, _values, max_size=5))
def test_every_key_that_tomllib_reads_has_a_line_that_names_it(document: dict[str, Any]) -> None:
    text = "".join(f"{_written(key)} = {_written(value)}\n" for key, value in document.items())
    assert tomllib.loads(text) == document
    lines = key_lines(text)
    assert set(lines) == _paths(document) - {()}
    rows = text.split("\n")
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert _written(path[-1]) in rows[line - 1]
