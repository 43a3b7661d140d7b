"""``waypost status``: processes, queue size and deliveries in progress. Exit status 1 if the manager does not answer."""

from __future__ import annotations

import argparse
from typing import Any

from mailcore.control.client import Refused
from mailcore.terminal.command import DONE, NOT_DONE, add_common, control_client
from mailcore.terminal.output import print_json, rows_to_lines, say
from mailcore.terminal.times import shown_duration

__all__ = ["configure"]

LANES_SHOWN = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer: dict[str, Any] = control.call("processes")
        try:
            answer["state"] = control.call("state")
            answer["size"] = control.call("size")
            answer["error"] = ""
        except Refused as error:
            answer["state"] = answer["size"] = None
            answer["error"] = str(error)
    if arguments.json:
        print_json(answer)
    else:
        for line in _lines(answer):
            say(line)
    return NOT_DONE if answer["error"] else DONE


def _lines(answer: dict[str, Any]) -> list[str]:
    pairs: list[tuple[str, object]] = []
    processes = answer.get("processes") or {}
    if processes:
        pairs.append(("processes", ", ".join(f"{name} {pid}" for name, pid in sorted(processes.items()))))
    if answer["error"]:
        return rows_to_lines([*pairs, ("manager", answer["error"])])
    state, size = answer["state"], answer["size"]
    pairs.append(("manager", f"up {shown_duration(state.get('uptime_s', 0))}"))
    if state.get("restored"):
        pairs.append(("held", f"{state['restored']} (docs/backup.md)"))
    if state.get("stalled"):
        pairs.append(("stalled", state["stalled"]))
    scheduler = state.get("scheduler") or {}
    pairs += [
        ("queued", f"{size['messages']} messages, {size['recipients']} recipients"),
        (
            "active",
            f"{state.get('active_messages', 0)} messages, "
            f"{scheduler.get('recipients_in_core', 0)} recipients in memory, "
            f"{scheduler.get('entries_in_flight', 0)} deliveries in progress",
        ),
        ("receivers", len(state.get("receivers") or ())),
        ("deliverers", len(state.get("deliverers") or ())),
    ]
    counters = state.get("counters") or {}
    if counters:
        pairs.append(("since start", ", ".join(f"{count} {name}" for name, count in sorted(counters.items()))))
    pairs += [(f"lane {lane}", f"{there['messages']} messages") for lane, there in sorted(size["lanes"].items())][
        :LANES_SHOWN
    ]
    return rows_to_lines(pairs)
