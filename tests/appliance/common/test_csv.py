"""A line of CSV does nothing in a spreadsheet but stand there."""

from __future__ import annotations

import csv
import io

import pytest

from appliance.common.csv import line


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "\n@x"])
def test_a_formula_becomes_text(cell: str) -> None:
    [[read]] = csv.reader(io.StringIO(line([cell])))
    assert read.startswith("'")


def test_numbers_stay_numbers_and_quotes_and_lines_stay_in_their_cell() -> None:
    [read] = csv.reader(io.StringIO(line([-5, 'a "b"', "c,d", "e\nf", "\u202eg", "a@example.org"])))
    assert read == ["-5", 'a "b"', "c,d", "e\\x0af", "\\u202eg", "a@example.org"]
