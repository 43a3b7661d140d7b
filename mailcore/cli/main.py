"""The program ``waypost``: runs one command and prints each error as one line.

``commands`` has the table of commands; only the module of the given command is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mailcore.cli.commands import COMMANDS, version
from mailcore.config.load import ConfigError
from mailcore.control.client import ControlError, NotRunning, TimedOut
from mailcore.faults import Code, Fault
from mailcore.terminal.command import DONE, INTERRUPTED, NOT_DONE, NOT_RUNNING, WRONG_USE, Parser, UsageError, fault_of
from mailcore.terminal.nearest import did_you_mean
from mailcore.terminal.output import complain_fault, say, set_json_errors

__all__ = ["main"]


def _usage() -> str:
    longest = max(map(len, COMMANDS))
    lines = [f"  {name:<{longest}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return (
        "Commands:\n" + "\n".join(lines) + "\n\nRun waypost COMMAND --help for its options. Exit statuses: docs/cli.md."
    )


def _top_level() -> Parser:
    parser = Parser(
        prog="waypost",
        description="Waypost receives mail over SMTP, stores it in a queue, and delivers it.",
        epilog=_usage(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="waypost [--config FILE] [--json] COMMAND ...",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _run(argv: Sequence[str]) -> int:
    top_level = _top_level()
    top = top_level.parse_args(argv)
    if top.version:
        say(f"waypost {version()}")
        return DONE
    if top.command is None:
        top_level.print_help()
        return WRONG_USE
    if top.command not in COMMANDS:
        raise UsageError(
            f"unknown command {top.command!r}{did_you_mean(top.command, COMMANDS) or '.'} See waypost --help."
        )
    load, summary = COMMANDS[top.command]
    module = load()
    if hasattr(module, "main"):
        common = [*(("--config", str(top.config)) if top.config else ()), *(("--json",) if top.json else ())]
        status: int = module.main([*top.rest, *common])
        return status
    parser = Parser(prog=f"waypost {top.command}", description=f"{summary[0].upper()}{summary[1:]}.")
    module.configure(parser)
    arguments = parser.parse_args(top.rest, argparse.Namespace(config=top.config, json=top.json))
    status = arguments.run(arguments)
    sys.stdout.flush()  # flush here, where BrokenPipeError is still caught
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status. Prints an error as one line on stderr; a configuration may have several.

    With --json, each line on stderr is a JSON object: {"error": ...} or {"note": ...}.
    """
    given = sys.argv[1:] if argv is None else argv
    set_json_errors("--json" in given[: given.index("--")] if "--" in given else "--json" in given)
    try:
        return _run(given)
    except SystemExit as end:  # argparse ends so after --help
        return int(end.code or 0)
    except UsageError as error:
        complain_fault(error.fault)
        return WRONG_USE
    except ConfigError as error:
        for line in str(error).splitlines():
            complain_fault(Fault(Code.INVALID, line))
        return WRONG_USE
    except (NotRunning, TimedOut) as error:
        complain_fault(error.fault)
        return NOT_RUNNING
    except ControlError as error:
        complain_fault(error.fault)
        return WRONG_USE if error.argument.startswith("filter.") else NOT_DONE  # such as a lane that does not exist
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Without this, Python reports it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_DONE
    except OSError as error:
        complain_fault(fault_of(error))
        return NOT_DONE
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
