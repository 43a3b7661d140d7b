"""Prints the keys of a scenario file as Markdown, made from their definitions.

``python -m mailcore.cli.simulate.reference`` prints them; ``docs/scenario.md`` is that text, and a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from mailcore.bounds import Kind, bounds_by_name
from mailcore.simulator.backlog import Listed, Mail
from mailcore.simulator.distribution import DISTRIBUTION_FORMS
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Limits
from mailcore.simulator.scenario_file import Options
from mailcore.simulator.site import Client

__all__ = ["reference"]

_HEAD = f"""\
# Keys of a scenario

Made by `python -m mailcore.cli.simulate.reference > docs/scenario.md`. [simulate.md](simulate.md) explains scenarios and has an
example.

A scenario is a TOML file. `waypost simulate` prints each wrong key or value with its line and the values allowed. Times are
seconds of the simulation, which starts at 0. A distribution is one of

    {DISTRIBUTION_FORMS}

A destination is `"transport:next hop"`. A name with `{{1..100}}` stands for a hundred destinations, which share its weight.
"""

_NEXT_HOPS = """\
The scope is `"smtp:example.org"`, or `"smtp:.example.org"` for all its subdomains, or `"smtp"`, or `"*"` for all others. The
most specific scope wins. A destination that no scope matches has the defaults.
"""

_CHANGES = """
## [set."SCOPE"] and [changes.NAME]

Parameters of the scheduler ([configuration.md](configuration.md)) by scope: `global`, a transport, a destination, or a pattern
of destinations. `[set]` sets them from the start, and overrides the configuration:

    [set."smtp:example.org"]
    destination_concurrency_limit = 5

`[changes]` sets a parameter at a time; with `until_s` the change ends automatically:

    [changes.night]
    at_s = 3600
    until_s = 7200
    scope = "smtp"
    parameter = "destination_rate_delay"
    value = 1
"""

SECTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("simulation", (Options, Limits), "The end of the simulation, and the size of its result."),
    (
        "deliverer",
        (Client,),
        "Our own end of the connections. If a configuration is used, a key that is not set here has the configured value.",
    ),
    ('next_hops."SCOPE"', (NextHop,), _NEXT_HOPS.rstrip()),
    ("mail.NAME", (Mail,), "A kind of mail whose messages are drawn at random."),
    ("messages.NAME", (Listed,), "One message, or several equal ones."),
)


def reference() -> str:
    """Returns the whole page."""
    return _HEAD + "\n".join(_lines()) + "\n" + _CHANGES


def _lines() -> Iterator[str]:
    for name, kinds, doc in SECTIONS:
        yield f"\n## [{name}]\n\n{doc}\n"
        yield "| key | default | allowed | meaning |"
        yield "|---|---|---|---|"
        for kind in kinds:
            for key, bounds in bounds_by_name(kind).items():
                is_literal = bounds.kind is Kind.CUSTOM and bounds.form.startswith(("[", "{"))
                allowed = f"`{bounds.form}`" if is_literal else bounds.allowed("_")
                yield f"| `{key}` | {_shown(bounds.default)} | {allowed} | {bounds.description} |"


def _shown(value: Any) -> str:
    if value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value:_}`" if isinstance(value, int | float) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
