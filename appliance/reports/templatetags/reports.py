"""Cells of the reports' tables, on the page and in the mail."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from appliance.core.templatetags.waypost import clock, number, share, shown, size, span, visible
from appliance.reports.tables import Column, Kind
from appliance.reports.writing import Writing

register = template.Library()
_NOTHING = "(none)"  # an empty name: the sender of bounces, no TLS


@register.simple_tag
def cell(column: Column, value: Any, href: str = "") -> SafeString | str:
    """On the page: numbers as everywhere in the portal."""
    inner = amount(column.kind, value) if column.kind is not Kind.TEXT else _name(value)
    return format_html('<a href="{}">{}</a>', href, inner) if href else inner


@register.simple_tag
def amount(kind: Kind, value: Any) -> SafeString | str:
    if value is None:
        return "–"
    if kind is Kind.SHARE:
        return share(value)
    if kind is Kind.SPAN:
        return span(value) if value else "0 s"
    if kind is Kind.SIZE:
        return size(value)
    if kind is Kind.TIME:
        return clock(value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value)
    if kind is Kind.FLAG:
        return "yes" if value else ""
    return number(value) if kind in (Kind.NUMBER, Kind.MEASURE) else shown(value)


@register.filter
def lines_shown(text: str) -> SafeString:
    """Several lines of a stranger's, each made harmless."""
    return format_html_join("\n", "{}", ((visible(line),) for line in text.splitlines()))


@register.simple_tag
def written(writing: Writing, kind: Kind, value: Any) -> str:
    """In the mail: in its reader's way. Escaped by the template, as all text."""
    return writing.value(kind, value) or _NOTHING


def _name(value: Any) -> SafeString | str:
    return format_html('<span class="faint">{}</span>', _NOTHING) if value in (None, "") else shown(value)
