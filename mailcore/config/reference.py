"""The reference of all settings as Markdown, made from their definitions, so that it cannot be out of date.

``python -m mailcore.config.reference`` prints it; ``docs/configuration.md`` is that text, and a test compares them.
"""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from mailcore.config.load import allowed
from mailcore.config.settings import (
    DEFAULT_ROUTE,
    DIRECTORIES,
    HOME_DEFAULT,
    SECTIONS,
    SHIPPED_TRANSPORTS,
    Destination,
    Transport,
)
from mailcore.routing.route import ROUTE_FORMS

__all__ = ["reference"]

_HEAD = """\
# Configuration

Made by `python -m mailcore.config.reference > docs/configuration.md`; edit `mailcore/config/settings.py`, not this page.

One TOML file, `waypost.toml`. A wrong key or value stops the start and says in which line it stands and what is allowed;
`waypost check-config --config FILE` says the same without starting. What is not in the file has its default. Relative
paths are taken from the directory of the file. Numbers in names ending in `_s` are seconds, `_ms` milliseconds, `_bytes`
bytes.
"""

_ROUTES = f"""
## [routes]

`"pattern" = "route"`. A pattern is an address (`"user@example.org"`), a domain (`"example.org"`), all that is below one
(`".example.org"`), or `"*"` for the rest, which is `"{DEFAULT_ROUTE}"` when it is not set; the most specific wins. A route is
one of

    {ROUTE_FORMS}

Without a next hop mail goes to the recipient's domain. A domain's MX hosts are looked up; a host in brackets is taken as
it is. The transport must be one of the shipped or defined above.
"""

_PATTERNS = """
A pattern is a next hop (`"example.org"`, with its port `"example.org:587"`, `"[192.0.2.1]:2526"`) or all below a domain
(`".example.org"`). The most specific that says something wins, key by key: the next hop with its port, without, then
`".example.org"`, `".org"`, and last the transport, whose values hold for what is not set here. Where the transport's
`destination_recipient_limit` is 1, `"user@example.org"` is one recipient.

    [transports.smtp.destinations."example.org"]    # takes five connections, and slowly
    destination_concurrency_limit = 5
    destination_concurrency_positive_feedback = "1/concurrency"
"""


def reference() -> str:
    """The whole page."""
    return _HEAD + "\n".join(_lines()) + "\n" + _ROUTES


def _lines() -> Iterator[str]:
    yield "\n## At the top of the file\n"
    yield from _table_head()
    yield f'| `home` | `"{HOME_DEFAULT}"` | a string | directory of all that Waypost keeps |'
    for name, (below, doc) in DIRECTORIES.items():
        yield f"| `{name}` | `{below}` below `home` | a string | {doc} |"
    for name, kind in SECTIONS.items():
        yield from _section(name, kind)
    yield from _section("transports.NAME", Transport)
    shipped = ", ".join(f"`{name}`" for name in SHIPPED_TRANSPORTS)
    yield f"\n{shipped} are always there, with these defaults; any other name defines one more."
    yield from _section('transports.NAME.destinations."PATTERN"', Destination, "the transport's")
    yield _PATTERNS.rstrip()


def _section(name: str, kind: type, default: str = "") -> Iterator[str]:
    """``default`` is what stands for those of the fields."""
    about = " ".join((kind.__doc__ or "").split()).partition(": ")[2]
    yield f"\n## [{name}]\n\n{about[:1].upper()}{about[1:]}\n"
    yield from _table_head()
    types = typing.get_type_hints(kind)
    for each in fields(kind):
        if not each.metadata:  # a table of its own
            continue
        what = allowed(types[each.name], each.metadata)
        shown = default or f"`{_toml(each.default)}`"
        yield f"| `{each.name}` | {shown} | {what} | {each.metadata['doc']} |"


def _table_head() -> tuple[str, str]:
    return "| key | default | allowed | meaning |", "|---|---|---|---|"


def _toml(value: Any) -> str:
    """A default as it would stand in the file; JSON writes strings, numbers and lists as TOML does."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:_}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    sys.stdout.write(reference())
