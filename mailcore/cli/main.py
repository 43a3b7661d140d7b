"""The program ``waypost``: runs one command and prints each error as one line.

``commands`` has the table of commands; only the module of the given command is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mailcore.cli.commands import COMMANDS, version
from mailcore.cli.remote_commands import ANYWHERE, refuse_unless_remote
from mailcore.cli.tree import parser_of, top_level, unknown_command
from mailcore.config.load import ConfigError
from mailcore.control.client import ControlClient, ControlError, NotRunning, TimedOut
from mailcore.faults import Code, Fault
from mailcore.terminal.command import (
    DONE,
    INTERRUPTED,
    NOT_DONE,
    NOT_RUNNING,
    WORDS,
    WRONG_USE,
    UsageError,
    fault_of,
)
from mailcore.terminal.output import complain_fault, say, set_json_errors

__all__ = ["by_option", "main"]


def _run(argv: Sequence[str]) -> int:
    parser_of_all = top_level(COMMANDS)
    top = parser_of_all.parse_args(argv)
    if top.version:
        say(f"waypost {version()}")
        return DONE
    if top.command is None:
        parser_of_all.print_help()
        return WRONG_USE
    if top.command not in COMMANDS:
        raise unknown_command(top.command, COMMANDS)
    remote = _remote(top)
    if remote is not None and top.here:
        raise UsageError("--here is for commands on the host itself, and not with --remote", argument="--here")
    load, _ = COMMANDS[top.command]
    module = load()
    if hasattr(module, "main"):
        if remote is not None:
            refuse_unless_remote(top.command)
        common = [*(("--config", top.config) if top.config else ()), *(("--json",) if top.json else ())]
        status: int = module.main([*top.rest, *common])
        return status
    given = argparse.Namespace(
        config=Path(top.config) if top.config else None, json=top.json, commands=COMMANDS, remote=remote, here=top.here
    )
    arguments = parser_of(COMMANDS, top.command).parse_args(top.rest, given)
    if remote is not None:
        refuse_unless_remote(getattr(arguments, WORDS, top.command))
    status = arguments.run(arguments)
    sys.stdout.flush()  # flush here, where BrokenPipeError is still caught
    return status


def _remote(top: argparse.Namespace) -> Callable[[], ControlClient] | None:
    """Returns what makes a client of the portal that the options or the environment name. Raises UsageError."""
    given = (top.remote, top.token_file, top.ca_file, top.fingerprint, top.request_key)
    if "WAYPOST_REMOTE" not in os.environ and all(each is None for each in given):
        return None
    from mailcore.terminal.remote import RemoteClient
    from mailcore.terminal.remote_target import target_of

    target = None if top.command in ANYWHERE else target_of(top)
    return None if target is None else lambda: RemoteClient(target)


def by_option(fault: Fault) -> Fault:
    """Returns the fault of a filter with the name of the option in its message, instead of that of the core's argument."""
    option = fault.argument.removeprefix("filter.").removesuffix("_s").removesuffix("_bytes").replace("_", "-")
    return Fault(fault.code, f"argument --{option}: {fault.at_field}", fault.argument)


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
        if error.argument.startswith("filter."):  # such as a lane that does not exist
            complain_fault(by_option(error.fault))
            return WRONG_USE
        complain_fault(error.fault)
        return NOT_DONE
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Without this, Python reports it again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_DONE
    except OSError as error:
        complain_fault(fault_of(error))
        return NOT_DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        set_json_errors(False)


if __name__ == "__main__":
    sys.exit(main())
