"""`waypost demo`: the next hops that ./run --demo starts beside the core, and gentle mixed traffic for them.

    waypost demo --config demo.toml

Which domain is at which hop, and where mail is handed in, is read from the demo's configuration file; each hop's behaviour is
here. Ends with its parent when asked to, as the core's children do.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import re
import signal
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import uvloop

from mailcore.counted import counted
from mailcore.lab.behaviour import BehaviourError, Occasion, Outcome, Reply, Stage
from mailcore.lab.ending import ended_by_signal
from mailcore.lab.hop import Hop, HopPlan
from mailcore.lab.lab import Lab
from mailcore.lab.traffic import Traffic

__all__ = ["BEHAVIOURS", "main", "parser", "read_demo"]

BEHAVIOURS = {
    "swift.example": "accept",
    "steady.example": "slow(0.4,final,0.5)",
    "drowsy.example": "slow(6,final,0.5)",
    "narrow.example": "limit(2)+slow(0.5)",
    "greylisted.example": "greylist(45)",
    "picky.example": "reject(0.2)",
    "overloaded.example": "reject(0.6,451)+slow(0.5)",
    "fragile.example": "rst(final,0.15)",
    "sometimes.example": "accept",  # dead for a while, again and again
    "hostile.example": "accept",  # and see ``HOSTILE``
    "readers.example": "slow(0.2,rcpt,0.5)",
    "members.example": "slow(1,final,0.5)",
    "*": "accept",
}
# Hostile replies: markup, control characters, text that runs from right to left, 400 characters of one word.
HOSTILE = (
    Reply(450, '4.7.1 <script>alert("hello")</script><b>come later</b>'),
    Reply(451, "4.3.0 \x1b[31mred\x1b[0m \x07 and \u202egnp.elif\u202c turned around"),
    Reply(554, "5.7.1 ${7*7} {{ 7*7 }} =HYPERLINK(1) & 'quoted' \"doubly\""),
    Reply(452, "4.2.2 " + "mailboxisfull" * 30),
)
DEAD_AFTER_S, DEAD_S, ALIVE_S = 90.0, 120.0, 300.0
_NEXT_HOP = re.compile(r"(?P<transport>\w+):\[(?P<host>[0-9.]+)\]:(?P<port>\d+)")
_PR_SET_PDEATHSIG = 1  # prctl(2)


def read_demo(path: Path) -> tuple[tuple[str, int], list[HopPlan]]:
    """Returns the address at which mail is submitted, and the hops. Raises BehaviourError."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        host, _, port = settings["receiver"]["listen"][0].rpartition(":")
        plans = []
        for domain, route in settings["routes"].items():
            match = _NEXT_HOP.fullmatch(route)
            if match is None or domain not in BEHAVIOURS:
                raise BehaviourError(f"{path}: {domain!r} = {route!r} is not a route of the demo")
            name = "senders" if domain == "*" else domain.partition(".")[0]
            plans.append(HopPlan(BEHAVIOURS[domain], match["host"], int(match["port"]), name))
        return (host, int(port)), plans
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise BehaviourError(f"{path}: no configuration of the demo: {error}") from None


def make_hostile(hop: Hop) -> None:
    """Says one of ``HOSTILE`` to three recipients of four, each always the same."""

    def reply(occasion: Occasion) -> Outcome | None:
        which = sum(occasion.recipients[0].encode()) % (len(HOSTILE) + 1)
        return HOSTILE[which] if which < len(HOSTILE) else None

    hop.behaviour.add(Stage.RCPT, reply)


async def _die_and_live(hop: Hop) -> None:
    await asyncio.sleep(DEAD_AFTER_S)
    while True:
        await hop.set_behaviour(f"dead_for({DEAD_S:g})")  # it comes back automatically
        await asyncio.sleep(DEAD_S + ALIVE_S)


async def _run(lab: Lab, traffic: Traffic) -> None:
    with ended_by_signal() as ended:
        async with lab:
            make_hostile(lab.hop("hostile"))
            print(
                f"demo: {counted(len(lab.hops), 'next hop')}, about {traffic.rate:g} messages a second",
                file=sys.stderr,
                flush=True,
            )
            tasks = [asyncio.create_task(_die_and_live(lab.hop("sometimes"))), asyncio.create_task(traffic.run())]
            try:
                await ended.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="waypost demo",
        description="Fake SMTP servers and gentle mixed traffic, as ./run --demo starts them.",
    )
    made.add_argument("--config", type=Path, default=Path("demo.toml"), metavar="FILE", help="of the demo (demo.toml)")
    made.add_argument("--rate", type=float, default=4.0, metavar="N", help="messages a second (4)")
    made.add_argument("--seed", type=int, default=0, help="of what is sent, and of what shares fall on (0)")
    made.add_argument("--with-parent", type=int, default=0, metavar="PID", help="end when this process ends")
    made.add_argument("--json", action="store_true", help="changes nothing: there is no output")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo until a signal; returns 0, or 1 with one line on stderr if it could not start."""
    arguments = parser().parse_args(argv)
    if arguments.with_parent:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != arguments.with_parent:  # it ended before we could say so
            return 1
    try:
        address, plans = read_demo(arguments.config)
        lab = Lab(plans, seed=arguments.seed, keep=False)
        uvloop.run(_run(lab, Traffic(address, rate=arguments.rate, seed=arguments.seed)))
    except (BehaviourError, OSError) as error:
        print(f"waypost demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
