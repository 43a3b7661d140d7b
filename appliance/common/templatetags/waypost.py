"""Filters that format values for all pages: times in the reader's zone, sizes, durations, and untrusted text.

Law: all text from other servers and clients (addresses, HELO, subjects, replies) passes ``shown``: Django escapes the markup;
this filter makes control and direction-changing characters visible and isolates the direction of the text.

Keeps law: outside-text-is-escaped (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from mailcore import mail_state

register = template.Library()

# Controls, formats (which turn the direction), halves, private and unassigned ones, line and paragraph separators.
_INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_UTC_TIME = re.compile(r"\b20\d\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d\+00:00\b")
# The colour of a state's badge: of mail, of a recipient, of a report's run. Other states have none.
_BADGE_KINDS = {
    **dict.fromkeys(("delivered", "done"), "good"),
    **dict.fromkeys(("held", "delayed", "active", "delivering", "running", "asked"), "accent"),
    **dict.fromkeys(("deferred", "suspended", "stopped"), "warn"),
    **dict.fromkeys(
        ("dead", "transport dead", "bounced", "expired", "deleted", "deleted for good", "failed", "red"), "bad"
    ),
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def visible(text: object) -> str:
    """Writes out every control, format or unassigned character of a text, line ends included: \\x1b, \\u202e."""
    return "".join(_code(each) if unicodedata.category(each) in _INVISIBLE else each for each in str(text))


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65_536 else f"\\U{number:08x}"


@register.filter
def shown(value: object) -> SafeString:
    """Returns untrusted text, harmless to show, and isolated from the text direction of its surroundings."""
    return format_html("<bdi>{}</bdi>", visible("" if value is None else value))


@register.filter
def plain(value: object) -> str:
    """Returns untrusted text for an attribute, which cannot contain an element."""
    return visible("" if value is None else value)


@register.filter
def when(value: float | datetime | None) -> SafeString | str:
    """Returns how long ago or ahead a time is; the exact time on hover. Takes wall-clock seconds or an aware datetime."""
    at = _datetime(value)
    if at is None:
        return "–"
    local = timezone.localtime(at)
    ahead = (at - timezone.now()).total_seconds()
    words = f"in {span(ahead)}" if ahead > 0.5 else f"{span(-ahead)} ago"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S %Z"), words
    )


@register.filter
def due(value: float | datetime | None) -> SafeString | str:
    """Returns when a coming event is due, as ``when``; a time in the past is due now."""
    at = _datetime(value)
    if at is None:
        return "–"
    exact = timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S %Z")
    ahead = (at - timezone.now()).total_seconds()
    words = f"in {span(ahead)}" if ahead > 0.5 else "now"
    return format_html('<time data-due datetime="{}" title="{}">{}</time>', at.isoformat(), exact, words)


@register.filter
def sentence(value: object) -> SafeString:
    """Returns a sentence of the core as ``shown``, with its times in the reader's zone."""
    text = visible("" if value is None else value)
    pieces: list[str] = []
    end = 0
    for match in _UTC_TIME.finditer(text):
        with contextlib.suppress(ValueError):  # a reply of another server may look like a time
            pieces += [text[end : match.start()], clock(datetime.fromisoformat(match[0]))]
            end = match.end()
    return format_html("<bdi>{}</bdi>", format_html_join("", "{}", ((each,) for each in [*pieces, text[end:]])))


@register.filter
def clock(value: float | datetime | None) -> SafeString | str:
    """Returns the time of day in the reader's zone, with the date if it is not today; the exact time on hover."""
    at = _datetime(value)
    if at is None:
        return "–"
    local = timezone.localtime(at)
    today = local.date() == timezone.localdate()
    words = local.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M")
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), local.strftime("%Y-%m-%d %H:%M:%S.%f %Z"), words
    )


@register.filter
def span(seconds: float | None) -> str:
    """Returns a duration in its two biggest units: 3 d 4 h, 12 min 5 s, 4.2 s, 35 ms."""
    if seconds is None:
        return "–"
    seconds = float(seconds)
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    for length, unit in _UNITS:
        if left >= length:
            count, rest = divmod(left, length)
            smaller = {"d": (3_600, "h"), "h": (60, "min"), "min": (1, "s")}[unit]
            more = rest // smaller[0]
            return f"{count} {unit}" + (f" {more} {smaller[1]}" if more else "")
    return f"{left} s"


@register.filter
def age(seconds: float | None) -> str:
    """Returns a duration that grows by the second, in whole seconds below a minute: 4 s, 12 min 5 s."""
    return f"{max(0, int(seconds))} s" if seconds is not None and seconds < 60 else span(seconds)


@register.filter
def size(value: float | None) -> str:
    """Returns a number of bytes for people: 512 B, 4.2 kB, 1.3 GB (powers of 1 000, as disks are sold)."""
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(amount) < 999.5 or unit == "TB":
            return f"{amount:.0f} {unit}" if unit == "B" or abs(amount) >= 99.5 else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


@register.filter
def number(value: float | None) -> str:
    """Returns a number in groups of three digits, with narrow no-break spaces; floats with three significant digits."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}".replace(",", "\u202f") if abs(value) < 1000 else f"{value:,.0f}".replace(",", "\u202f")
    return f"{int(value):,}".replace(",", "\u202f")


@register.filter
def share(value: float | None) -> str:
    """Returns a share as per cent with one decimal. Only a share of exactly 1 is shown as 100.0%."""
    return "–" if value is None else f"{value:.1%}" if value < 0.9995 or value == 1 else ">99.9%"


@register.filter
def badge_kind(state: str) -> str:
    """Returns the CSS class of a state's badge: good, accent, warn or bad; empty for a state without a colour."""
    return _BADGE_KINDS.get(state, "")


@register.filter
def next_attempt(state: str) -> str:
    """Returns when a message in this state is tried next, in the words of the core; "" if it is due at a time."""
    return mail_state.next_attempt(state)


@register.simple_tag
def amount(messages: int, recipients: int, exact: bool = False) -> str:
    """Returns “2 messages (5 recipients)”. If there is one for each message, they are only said with ``exact``."""
    words = f"{number(messages)} message{'' if messages == 1 else 's'}"
    if not recipients or (recipients == messages and not exact):
        return words
    return f"{words} ({number(recipients)} recipient{'' if recipients == 1 else 's'})"


@register.filter
def recipient_numbers(ranges: Any) -> str:
    """Returns ranges of recipients as a page numbers them, from 1 on: 1, 4–6. Anything else is returned as text."""
    try:
        pairs = [(first + 1, last + 1) for first, last in ranges]
    except (TypeError, ValueError):
        return str(ranges)
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in pairs)


@register.filter
def get(mapping: Any, key: object) -> Any:
    """Returns the value of a key that is a variable."""
    return mapping.get(key) if mapping else None


@register.filter
def page_name(view_name: str) -> str:
    """Returns the name of a view for ids and tests: queue:list → queue-list."""
    return view_name.replace(":", "-").replace("_", "-")


def _datetime(value: float | datetime | None) -> datetime | None:
    if value is None or value == 0:
        return None
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (OverflowError, ValueError, OSError):
        return None
