"""One program for all these commands: it is what its name says, or what its first argument says.

A package links ``sendmail``, ``mailq``, ``newaliases``, ``postqueue``, ``postsuper``, ``postcat`` and ``qshape`` to it with
``waypost-sendmail links``. Under any other name the first argument is the name of the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mailcore.cli.postfix.exits import CONFIG, OK, SOFTWARE, TEMPFAIL, UNAVAILABLE, USAGE, Ended
from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Settings
from mailcore.control.client import ControlClient, ControlError
from mailcore.terminal.command import INSTALLED, INTERRUPTED

if TYPE_CHECKING:
    from mailcore.cli.postfix.waiting import Maildrop

__all__ = ["COMMANDS", "main"]

Command = Callable[[Sequence[str]], int]
ALIASES = (
    "there is nothing to do: the files of [rewriting] virtual_alias_maps are read again when they change; /etc/aliases is not "
    "read, and mail for a local user goes where the routes of the configuration send its domain"
)


def settings_at(config: str = "") -> Settings:
    """Loads the configuration: the file given, that of WAYPOST_CONFIG, or the installed one. Raises Ended.

    Never that of the current directory, as the commands of ``waypost`` do: any program calls sendmail, from any directory, and
    a file there would take the mail to a home that is not Waypost's.
    """
    given = config or os.environ.get("WAYPOST_CONFIG", "")
    path = Path(given) if given else INSTALLED
    if not given and not path.exists():
        raise Ended(
            CONFIG,
            f"no configuration file: {path} does not exist; name one in WAYPOST_CONFIG, or with -C (sendmail) or -c",
        )
    try:
        return load(path, look_at_certificate=False, managed_may_be_hidden=True)
    except ConfigError as error:
        raise Ended(CONFIG, str(error).splitlines()[0]) from None


def client_of(config: str = "") -> ControlClient:
    """Returns a client of the control socket. Raises Ended."""
    from mailcore.terminal.command import who

    return ControlClient(settings_at(config).run_directory / "control.sock", who=who())


def maildrop_of(config: str = "") -> Maildrop:
    """Returns the maildrop of the home. Raises Ended."""
    from mailcore.cli.postfix.waiting import Maildrop

    return Maildrop(settings_at(config).home)


def _sendmail(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import stdin_smtp, submit
    from mailcore.cli.postfix.options import read_options

    given = read_options(argv)
    if given.mode == "s":
        return stdin_smtp.Session(settings_at(given.config), sys.stdin.buffer, sys.stdout.buffer).run()
    if given.mode == "i":
        return _newaliases(())
    if given.mode in ("p", "q"):
        from mailcore.cli.postfix import postqueue

        with client_of(given.config) as control:
            if given.mode == "p":
                return postqueue.list_queue(control, maildrop_of(given.config))
            if given.queue_id:
                return postqueue.retry_one(control, given.queue_id)
            return postqueue.flush_site(control, given.site) if given.site else postqueue.flush(control)
    if given.mode == "v":
        return submit.verify(given, settings_at(given.config))
    return submit.submit(given, settings_at(given.config), sys.stdin.buffer)


def _mailq(argv: Sequence[str]) -> int:
    return _sendmail(["-bp", *_with_configuration(argv)])


def _with_configuration(argv: Sequence[str]) -> list[str]:
    """Returns the arguments with -c FILE as -C FILE: mailq has it as postqueue does, and no recipients. Raises Ended."""
    given: list[str] = []
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if argument.startswith("-c"):
            if argument == "-c" and not arguments:
                raise Ended(USAGE, "-c needs a value")
            given += ["-C", argument[2:] or arguments.pop(0)]
        else:
            given.append(argument)
    return given


def _postqueue(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import postqueue

    return postqueue.postqueue(argv, client_of, maildrop_of)


def _postsuper(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import postsuper

    return postsuper.postsuper(argv, client_of, maildrop_of, sys.stdin)


def _postcat(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import postcat

    return postcat.postcat(argv, client_of)


def _qshape(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import qshape

    return qshape.qshape(argv, client_of, maildrop_of)


def _newaliases(argv: Sequence[str]) -> int:
    print(f"newaliases: {ALIASES}", file=sys.stderr)
    return OK


def _links(argv: Sequence[str]) -> int:
    from mailcore.cli.postfix import links

    return links.links(argv)


COMMANDS: dict[str, Command] = {
    "sendmail": _sendmail,
    "mailq": _mailq,
    "newaliases": _newaliases,
    "postqueue": _postqueue,
    "postsuper": _postsuper,
    "postcat": _postcat,
    "qshape": _qshape,
}
NAMED_FIRST: dict[str, Command] = {"links": _links}  # no program is linked under such a name


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status, one of sysexits.h."""
    _open_missing()
    name, *arguments = sys.argv if argv is None else argv
    name = os.path.basename(name)
    if name not in COMMANDS:
        if arguments and arguments[0] in (*COMMANDS, *NAMED_FIRST):
            name, *arguments = arguments
        else:
            print(f"{name}: name one of these commands first: {', '.join(sorted(COMMANDS))}", file=sys.stderr)
            return USAGE
    try:
        status = (COMMANDS | NAMED_FIRST)[name](arguments)
        sys.stdout.flush()
        return status
    except Ended as error:
        print(f"{name}: fatal: {error}", file=sys.stderr)
        return error.status
    except ControlError as error:
        print(f"{name}: fatal: {error}", file=sys.stderr)
        return 1 if name in ("postsuper", "postcat", "qshape") else UNAVAILABLE  # as Postfix
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        print(f"{name}: fatal: {error}", file=sys.stderr)
        return TEMPFAIL
    except Exception as error:  # for a caller that reads the status, a traceback is status 1: not one of sysexits.h
        print(f"{name}: panic: {error!r}", file=sys.stderr)
        return SOFTWARE


def _open_missing() -> None:
    """Opens /dev/null for each standard stream that the caller has closed, as Postfix does: none of ours takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  open as long as the program runs


if __name__ == "__main__":
    sys.exit(main())
