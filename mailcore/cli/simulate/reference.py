"""The keys of a scenario file as Markdown, made from their definitions, so that they cannot be out of date.

``python -m mailcore.cli.simulate.reference`` prints them; ``docs/scenario.md`` is that text, and a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from mailcore.simulator.backlog import Listed, Mail
from mailcore.simulator.distribution import DISTRIBUTION_FORMS, Distribution
from mailcore.simulator.field import allowed
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.scenario import Limits
from mailcore.simulator.scenario_file import Options
from mailcore.simulator.site import Client

__all__ = ["reference"]

_HEAD = f"""\
# Keys of a scenario

Made by `python -m mailcore.cli.simulate.reference > docs/scenario.md`; what it is for and an example are in
[simulate.md](simulate.md).

A scenario is a TOML file. A wrong key or value is told with its line and what is allowed. Times are seconds of the simulation,
0 is its start. A distribution is one of

    {DISTRIBUTION_FORMS}

A destination is `"transport:next hop"`; `{{1..100}}` in its name makes a hundred of it, which share its weight.
"""

_NEXT_HOPS = """\
The scope is `"smtp:example.org"`, or `"smtp:.example.org"` for all below it, or `"smtp"`, or `"*"` for all others; the most
specific one holds. Destinations that no scope takes have the defaults.
"""

_CHANGES = """
## [set."SCOPE"] and [changes.NAME]

Parameters of the scheduler ([configuration.md](configuration.md)), by scope as `waypost transport set` has them: `global`, a
transport, a destination, or a pattern of destinations. `[set]` holds from the start, above the configuration:

    [set."smtp:example.org"]
    destination_concurrency_limit = 5

A change is made at a time, and with `until_s` it ends by itself:

    [changes.night]
    at_s = 3600
    until_s = 7200
    scope = "smtp"
    parameter = "destination_rate_delay"
    value = 1
"""

SECTIONS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("simulation", (Options, Limits), "How far it goes, and what it shows."),
    (
        "deliverer",
        (Client,),
        "Our own end of the connections; with a configuration, what is not set here is as configured.",
    ),
    ('next_hops."SCOPE"', (NextHop,), _NEXT_HOPS.rstrip()),
    ("mail.NAME", (Mail,), "A sort of mail, drawn by chance."),
    ("messages.NAME", (Listed,), "A message, or some that are alike."),
)


def reference() -> str:
    """The whole page."""
    return _HEAD + "\n".join(_lines()) + "\n" + _CHANGES


def _lines() -> Iterator[str]:
    for name, kinds, doc in SECTIONS:
        yield f"\n## [{name}]\n\n{doc}\n"
        yield "| key | default | allowed | meaning |"
        yield "|---|---|---|---|"
        for kind in kinds:
            for each in fields(kind):
                may_be = allowed(each) or ("a distribution" if isinstance(each.default, Distribution) else "")
                doc_of_key = each.metadata["doc"]
                if not may_be:
                    may_be, _, doc_of_key = doc_of_key.partition(": ")
                    may_be = f"`{may_be}`"
                yield f"| `{each.name}` | {_shown(each.default)} | {may_be} | {doc_of_key} |"


def _shown(value: Any) -> str:
    if value is MISSING or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value:_}`" if isinstance(value, int | float) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
