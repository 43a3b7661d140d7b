"""Writes a line of CSV that is harmless in a spreadsheet. Every CSV file of the portal is written with it.

Laws: RFC 4180, every cell quoted. A cell that a spreadsheet could take for a formula gets an apostrophe in front (OWASP, CSV
injection); control and direction-changing characters are written as escapes.

Keeps law: csv-is-harmless (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from appliance.common.templatetags.waypost import visible

__all__ = ["CONTENT_TYPE", "line"]

CONTENT_TYPE = "text/csv; charset=utf-8; header=present"
_FORMULA = frozenset("=+-@\t\r\n＝＋－＠")  # the wide ones count in some languages


def line(values: Iterable[object]) -> str:
    """Returns one line of CSV with its line end. Numbers stay numbers; all else becomes text."""
    return ",".join(_cell(value) for value in values) + "\r\n"


def _cell(value: object) -> str:
    text = str(value)
    shown = visible(text)
    if not isinstance(value, int | float) and (text[:1] in _FORMULA or text.lstrip()[:1] in _FORMULA):
        shown = "'" + shown
    return '"' + shown.replace('"', '""') + '"'
