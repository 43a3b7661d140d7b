"""`waypost lab`: the command line of the lab.

    waypost lab --hop accept:127.0.0.1:2526 --hop "late=slow(1.5)+limit(20):127.0.0.1:0"
    waypost lab --file lab.toml --events arrivals.jsonl --control lab.sock
    waypost lab --ask lab.sock '{"do": "counters"}'

Prints one line of JSON for each hop that listens (or is dead for now), and with ``--events`` one for each message.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import uvloop

from mailcore.lab.arrival import Arrival
from mailcore.lab.behaviour import BehaviourError
from mailcore.lab.control import ControlServer, ask
from mailcore.lab.ending import ended_by_signal
from mailcore.lab.hop import HopPlan
from mailcore.lab.lab import Lab

__all__ = ["main", "parser"]

_HOP_KEYS = {"name": str, "behaviour": str, "host": str, "port": int}
_OLD_KEY = "temper"  # earlier name of "behaviour"; lang: quoted


class EventLog:
    """Arrivals as lines of JSON; written once a turn of the loop, so that a fast hop makes few system calls."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._pending: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        self.loop: asyncio.AbstractEventLoop | None = None

    def write(self, arrival: Arrival) -> None:
        """Adds an arrival; it is written at the end of this turn of the loop."""
        if not self._pending and self.loop is not None:
            self.loop.call_soon(self.flush)
        self._pending.append(self._encode(arrival))

    def flush(self) -> None:
        """Writes what was added since the last call."""
        if self._pending:
            self._out.write(b"\n".join(self._pending) + b"\n")
            self._out.flush()
            self._pending.clear()


def read_plans(path: Path) -> list[HopPlan]:
    """Reads ``[[hop]]`` tables: behaviour, host (127.0.0.1), port (0), name. Raises BehaviourError, which names the
    table."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BehaviourError(f"{path}: {error}") from None
    unknown = set(tables) - {"hop"}
    if unknown or not isinstance(tables.get("hop"), list):
        raise BehaviourError(f"{path}: a lab file has [[hop]] tables and nothing else")
    plans = []
    for number, table in enumerate(tables["hop"], 1):
        if _OLD_KEY in table:
            table["behaviour"] = table.pop(_OLD_KEY)
        for key, value in table.items():
            if key not in _HOP_KEYS or not isinstance(value, _HOP_KEYS[key]) or isinstance(value, bool):
                allowed = ", ".join(f"{name} ({kind.__name__})" for name, kind in _HOP_KEYS.items())
                raise BehaviourError(f"{path}: hop {number}: {key} = {value!r}; allowed: {allowed}")
        plan = {"behaviour": "accept", "host": "127.0.0.1", "port": 0} | table
        if not 0 <= plan["port"] <= 65_535:
            raise BehaviourError(f"{path}: hop {number}: port = {plan['port']}; allowed: 0 to 65535")
        plans.append(HopPlan(**plan))
    return plans


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="waypost lab",
        description="A set of fake SMTP servers with scripted behaviour.",
        epilog="Behaviours: accept, slow(S[,stage[,spread]]), limit(K), greylist(S), reject(share|pattern[,code[,stage]]), "
        "silent(stage[,share]), dead_for(S), rst(stage[,share]), close(stage[,share]), without(keyword); "
        "joined with +. Stages: connect, ehlo, mail, rcpt, data, body, final, quit.",
    )
    made.add_argument(
        "--hop", action="append", default=[], metavar="[NAME=]BEHAVIOUR:HOST:PORT", help="port 0: any free one"
    )
    made.add_argument("--file", type=Path, help="a TOML file with [[hop]] tables: name, behaviour, host, port")
    made.add_argument("--events", metavar="FILE|-", help="a line of JSON for each message that arrived")
    made.add_argument("--control", type=Path, metavar="PATH", help="a Unix socket that answers questions")
    made.add_argument("--ask", type=Path, metavar="PATH", help="ask the lab behind this socket, and end")
    made.add_argument("request", nargs="?", default='{"do": "counters"}', help="with --ask: the question")
    made.add_argument("--no-ledger", action="store_true", help="count arrivals but keep none in memory")
    made.add_argument("--seed", type=int, default=0, help="of what shares fall on (0)")
    made.add_argument("--json", action="store_true", help="changes nothing: the output is JSON anyway")
    made.add_argument("--config", help="not read: the lab knows nothing of the appliance")
    return made


async def _run(lab: Lab, control: ControlServer | None, events: EventLog | None) -> None:
    if events is not None:
        events.loop = asyncio.get_running_loop()
    with ended_by_signal() as ended:
        async with lab:
            if control is not None:
                await control.start()
            for hop in lab.hops:
                host, port = hop.address
                line = {"event": "hop", "name": hop.name, "host": host, "port": port, "behaviour": hop.behaviour.text}
                print(json.dumps(line | {"listening": hop.listening}), flush=True)
            try:
                await ended.wait()
            finally:
                if control is not None:
                    await control.stop()
                if events is not None:
                    events.flush()


def _ask(path: Path, text: str) -> int:
    request: Any = json.loads(text)
    answer = ask(path, request)
    print(json.dumps(answer, indent=2))
    return 0 if answer.get("ok") else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the lab until a signal, or sends a request to one; returns the exit status: 1 if it could not start, with a
    line on stderr."""
    arguments = parser().parse_args(argv)
    events: EventLog | None = None
    try:
        if arguments.ask is not None:
            return _ask(arguments.ask, arguments.request)
        plans: list[HopPlan] = [] if arguments.file is None else read_plans(arguments.file)
        plans += [HopPlan.parse(text) for text in arguments.hop]
        if not plans:
            plans = [HopPlan(behaviour="accept", host="127.0.0.1", port=2526)]
        if arguments.events is not None:
            out = sys.stdout.buffer if arguments.events == "-" else open(arguments.events, "ab")  # noqa: SIM115
            events = EventLog(out)
        lab = Lab(
            plans,
            seed=arguments.seed,
            on_arrival=events.write if events is not None else None,
            keep=not arguments.no_ledger,
        )
        control = ControlServer(lab, arguments.control) if arguments.control is not None else None
        uvloop.run(_run(lab, control, events))
    except (BehaviourError, OSError, json.JSONDecodeError) as error:
        print(f"waypost lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
