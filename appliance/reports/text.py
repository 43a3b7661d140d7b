"""Renders the report as plain text, with the content of the HTML. Lines have at most 78 characters, except replies of
remote servers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from appliance.reports.content import Balance, Content
from appliance.reports.tables import Shown
from appliance.reports.writing import Writing

__all__ = ["as_text"]

LINE_MAX = 78
TEXT_MAX = 76  # characters of a cell


def as_text(content: Content, tables: list[Shown], writing: Writing, url: str) -> str:
    """Returns the report as plain text."""
    return "\n".join(_lines(content, tables, writing, url)) + "\n"


def _lines(content: Content, tables: list[Shown], writing: Writing, url: str) -> Iterator[str]:
    title = f"Waypost: {content.title}"
    yield from (title, "=" * len(title), "")
    yield from _balance(content.balance, writing)
    if content.empty:
        yield from ("", "No mail: there are no events in this period.")
    else:
        yield ""
        longest = max(len(figure.label) for figure in content.figures)
        for figure in content.figures:
            change = f"  {figure.change}" if figure.change else ""
            yield f"{figure.label:<{longest}}  {writing.value(figure.kind, figure.value):>12}{change}"
        if content.shares:
            yield ""
            yield from textwrap.wrap(content.shares, LINE_MAX)
    for table in tables:
        yield from ("", table.spec.title, "-" * len(table.spec.title))
        yield from _table(table, writing)
    for note in content.notes:
        yield from ("", writing.plain(note))
    yield from ("", f"Full report: {url}")


def _balance(balance: Balance, writing: Writing) -> Iterator[str]:
    yield balance.words.upper() if balance.red else balance.words
    if balance.left and balance.right:
        for sign, parts in (("  ", balance.left), ("≠ " if balance.red else "= ", balance.right)):
            yield sign + " + ".join(f"{label} {writing.number(number)}" for label, number in parts)
    for line in balance.shards:
        yield f"  shard {writing.plain(line.label)}: {writing.plain(line.words)}"
        known = [f"{label} {writing.number(value)}" for label, value in line.values if value is not None]
        if known:
            yield from textwrap.wrap(", ".join(known), LINE_MAX, initial_indent="    ", subsequent_indent="    ")
    if balance.red_days:
        yield f"  not balanced: {', '.join(map(writing.short_day, balance.red_days))}"
    for each in balance.suspects:
        yield f"  {writing.plain(each.get('queue_id', ''))}: {writing.plain(each.get('why', ''))}"
    if balance.suspects_left_out:
        yield f"  and {writing.number(balance.suspects_left_out)} more"
    for gap in balance.gaps:
        yield f"  missing from the event files: {writing.plain(gap)}"
    for altered in balance.altered:
        yield f"  events differ: {writing.plain(altered)}"
    for words in balance.advice:
        yield from textwrap.wrap(words.replace("`", '"'), LINE_MAX, initial_indent="- ", subsequent_indent="  ")


def _table(table: Shown, writing: Writing) -> Iterator[str]:
    if table.fault:
        yield writing.plain(table.fault)
        return
    if table.gone:
        yield table.gone
        return
    if not table.rows:
        yield table.spec.none
        return
    columns = sorted(table.columns, key=lambda column: column.long)  # many words come last
    order = [table.columns.index(column) for column in columns]
    lines = [
        [_cut(writing.value(cells[at][0].kind, cells[at][1]) or "(none)") for at in order] for cells in table.cells
    ]
    rows = [[column.label for column in columns], *lines]
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    apart = None  # the column with the longest names, on lines of its own where all do not fit on one
    if sum(widths) + 2 * (len(widths) - 1) > LINE_MAX and not columns[-1].long:
        apart = max(
            (at for at, column in enumerate(columns) if not column.right), key=lambda at: widths[at], default=None
        )
    for row in rows:
        if apart is not None:
            yield row[apart]
        cells = [
            f"{text:>{width}}" if column.right else f"{text:<{width}}"
            for at, (column, text, width) in enumerate(zip(columns, row, widths, strict=True))
            if at != apart
        ]
        yield ("  " * (apart is not None) + "  ".join(cells)).rstrip()
    if table.more:
        yield f"and {writing.number(table.more)} more"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"
