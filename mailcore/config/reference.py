"""Prints the reference of all settings as Markdown, made from their definitions.

``python -m mailcore.config.reference`` prints it; ``docs/configuration.md`` is that text, and a test compares them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from mailcore.bounds import bounds_by_name
from mailcore.config.dkim import DkimKey
from mailcore.config.listeners import Certificate, Listener
from mailcore.config.milters import Milter
from mailcore.config.settings import (
    DEFAULT_ROUTE,
    DIRECTORIES,
    HOME_DEFAULT,
    SECTIONS,
    SHIPPED_TRANSPORTS,
    Destination,
    TlsPolicy,
    Transport,
)
from mailcore.routing.route import ROUTE_FORMS

__all__ = ["reference"]

_HEAD = """\
# Configuration

Made by `python -m mailcore.config.reference > docs/configuration.md`; edit the files of `mailcore/config/`, not this page.

The settings are one TOML file, `waypost.toml`. Waypost does not start while a key or a value in it is wrong: it prints each
fault with its line and the values allowed. `waypost check-config --config FILE` checks a file without a start. A setting that
is not in the file has its default. A relative path starts at the directory of the file. A name that ends in `_s` is in seconds,
`_ms` in milliseconds, `_bytes` in bytes.
"""

_ROUTES = f"""
## [routes]

`"pattern" = "route"`. A pattern is an address (`"user@example.org"`), a domain (`"example.org"`), all subdomains of a domain
(`".example.org"`), or `"*"` for all other recipients, whose route is `"{DEFAULT_ROUTE}"` unless it is set. The most specific
pattern wins. A route is one of

    {ROUTE_FORMS}

Without a next hop, mail goes to the recipient's domain. Waypost looks up the MX hosts of a domain; it connects to a host in
brackets without an MX lookup. The transport must be a shipped one or one defined in the file.

## [sender_routes], [login_routes]

`"pattern" = "route"`, as in [routes], by the sender of a message (`"user@example.org"`, `"example.org"`, `".example.org"`, or
`"<>"` for bounces), and `"user" = "route"` by the user who has logged in. Such a route takes the place of that of `"*"`:
other patterns of recipients in [routes] go before it. A login goes before the sender.
"""

_PATTERNS = """
A pattern is a next hop (`"example.org"`, with a port `"example.org:587"`, `"[192.0.2.1]:2526"`) or all subdomains of a domain
(`".example.org"`). For each key, the most specific pattern that sets it wins: the next hop with its port, the next hop without
it, then `".example.org"`, then `".org"`. A key that no pattern sets has the value of the transport. If the transport's
`destination_recipient_limit` is 1, a pattern can also be one recipient, `"user@example.org"`.

    [transports.smtp.destinations."example.org"]    # accepts five connections, and slows down under load
    destination_concurrency_limit = 5
    destination_concurrency_positive_feedback = "1/concurrency"
"""

_TLS_PATTERNS = """
A pattern is a next hop or all subdomains of a domain, as above; `level` must be set. The most specific pattern wins. The
page [tls.md](tls.md) says what each level protects against.

    [tls_policy."example.org"]      # mail to this domain waits rather than go to a server that cannot prove its name
    level = "verify"
    match = ["nexthop", ".mx.example.net"]
"""


_KEYWORDS = """
## [smtp_discard_ehlo_keywords], [smtpd_discard_ehlo_keywords]

`"pattern" = ["KEYWORD", ...]`. In the first table a pattern is a next hop or all subdomains of a domain, as in [tls_policy],
or a network that holds the address of the server, which goes before all others. In the second it is a network of clients; the
smallest wins. An entry replaces `discard_ehlo_keywords` of the transport, or of the listener; `[]` is none.

    [smtp_discard_ehlo_keywords]
    "example.org" = ["PIPELINING"]      # its firewall loses pipelined commands
    "192.0.2.0/24" = ["CHUNKING", "BINARYMIME"]
"""


def reference() -> str:
    """Returns the whole page."""
    return _HEAD + "\n".join(_lines()) + "\n" + _KEYWORDS + _ROUTES


def _lines() -> Iterator[str]:
    yield "\n## At the top of the file\n"
    yield from _table_head()
    yield f'| `home` | `"{HOME_DEFAULT}"` | a string | directory of all data of Waypost |'
    for name, (below, doc) in DIRECTORIES.items():
        yield f"| `{name}` | `{below}` below `home` | a string | {doc} |"
    for name, kind in SECTIONS.items():
        yield from _section(name, kind)
    yield from _section("transports.NAME", Transport)
    yield from _section("[listener]", Listener)
    yield "\nA file with such a section and without `[receiver] listen` has only these listeners."
    yield from _section("[certificate]", Certificate)
    yield from _section("[dkim]", DkimKey)
    yield from _section("[milter]", Milter)
    shipped = ", ".join(f"`{name}`" for name in SHIPPED_TRANSPORTS)
    yield f"\n{shipped} always exist, with these defaults; any other name defines one more transport."
    yield from _section('transports.NAME.destinations."PATTERN"', Destination, "the transport's")
    yield _PATTERNS.rstrip()
    yield from _section('tls_policy."PATTERN"', TlsPolicy)
    yield _TLS_PATTERNS.rstrip()


def _section(name: str, kind: type, default: str = "") -> Iterator[str]:
    """Yields the page of a section; ``default`` replaces the defaults of the settings."""
    about = " ".join((kind.__doc__ or "").split()).partition(": ")[2]
    yield f"\n## [{name}]\n\n{about[:1].upper()}{about[1:]}\n"
    yield from _table_head()
    for setting, bounds in bounds_by_name(kind).items():
        value = default or f"`{_toml(bounds.default)}`"
        yield f"| `{setting}` | {value} | {bounds.allowed('_')} | {bounds.description} |"


def _table_head() -> tuple[str, str]:
    return "| key | default | allowed | meaning |", "|---|---|---|---|"


def _toml(value: Any) -> str:
    """Returns a default in TOML; JSON writes strings, numbers and lists in the same way."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:_}"
    return json.dumps(list(value) if isinstance(value, tuple) else value)


if __name__ == "__main__":
    sys.stdout.write(reference())
