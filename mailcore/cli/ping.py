"""``waypost ping``: asks the control process whether it answers. For watchdogs: exit status 0, 1 or 3."""

from __future__ import annotations

import argparse

from mailcore.control.protocol.state import Ping
from mailcore.terminal.command import DONE, NOT_DONE, add_common, control_client
from mailcore.terminal.output import print_json, say

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = "Exit status: 0 if it answers, 1 if the manager is not connected to it, 3 if it does not answer."
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("ping", Ping)
    if arguments.json:
        print_json(answer)
    else:
        manager = "the manager is connected" if answer.manager else "the manager is not connected"
        say(f"control process {answer.pid} answers; {manager}")
    return DONE if answer.manager else NOT_DONE
