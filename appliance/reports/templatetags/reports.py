"""Cells of the reports' tables and dates, on the page and in the mail, in the reader's way of writing."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from appliance.common.templatetags.waypost import clock, shown, visible
from appliance.reports.report_store import Period
from appliance.reports.tables import Column, Kind
from appliance.reports.writing import Writing

register = template.Library()
_BETWEEN = re.compile(r"(?<=[.@:/_-])(?=\w)")  # where a name may break
_NOTHING = "(none)"  # an empty name: the sender of bounces, no TLS


@register.simple_tag
def cell(writing: Writing, column: Column, value: Any, href: str = "") -> SafeString | str:
    """Renders a table's cell on the page, with a link if ``href`` is given; times are in the reader's time zone."""
    if column.kind is Kind.TEXT:
        inner: SafeString | str = _name(value)
    elif column.kind is Kind.TIME:
        inner = clock(value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value)
    else:
        inner = writing.value(column.kind, value)
    return format_html('<a href="{}">{}</a>', href, inner) if href else inner


@register.simple_tag
def written(writing: Writing, kind: Kind, value: Any) -> str:
    """Renders a value in the mail, and the figures on the page. The template escapes the text."""
    return writing.value(kind, value) or _NOTHING


@register.simple_tag
def apart(writing: Writing, kind: Kind, value: Any) -> SafeString:
    """Renders a value of the mail's tables as ``written`` does; a long name breaks behind a dot or the like, not in a
    word."""
    return _breaking(writing.value(kind, value) or _NOTHING)


@register.filter
def breaking(text: object) -> SafeString:
    """Renders untrusted text of a mail, made harmless; it breaks as names of ``apart`` do."""
    return _breaking(visible(text))


def _breaking(text: str) -> SafeString:
    return format_html_join(mark_safe("<wbr>"), "{}", ((each,) for each in _BETWEEN.split(text)))


@register.filter
def amount(value: float, writing: Writing) -> str:
    """Returns a number in the reader's format."""
    return writing.number(value)


@register.filter
def long_day(day: date, writing: Writing) -> str:
    """Returns a day with its month in words."""
    return writing.day(day)


@register.filter
def short_day(day: date, writing: Writing) -> str:
    """Returns a day in its short form."""
    return writing.short_day(day)


@register.simple_tag
def listed(writing: Writing, period: Period, start: date) -> str:
    """Returns the period for the list of reports, with aligned widths."""
    if period is Period.MONTH:
        return writing.month(start)
    if period is Period.WEEK:
        return f"W{start.isocalendar().week:02}, {start} – {period.last(start)}"
    return writing.listed_day(start)


@register.filter
def commands(text: str) -> SafeString:
    """Renders text between backticks as code."""
    pieces = enumerate(text.split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", each) if at % 2 else each,) for at, each in pieces)
    )


@register.filter
def lines_shown(text: str) -> SafeString:
    """Renders lines of untrusted text, each made harmless."""
    return format_html_join("\n", "{}", ((visible(line),) for line in text.splitlines()))


def _name(value: Any) -> SafeString | str:
    return format_html('<span class="faint">{}</span>', _NOTHING) if value in (None, "") else shown(value)
