"""The table of commands of ``waypost``. Each command's module is imported by a function of its own, when it is asked for.

So ``waypost queue size`` does not load what ``waypost mailcore`` needs, and mypy and the import contracts still see every
import. A module has ``configure(parser)``, or ``main(argv)`` where it reads its command line itself.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

__all__ = ["COMMANDS", "version"]


def version() -> str:
    """Returns the installed version of Waypost. Importing ``importlib.metadata`` takes 30 ms, which only --version needs."""
    from importlib import metadata

    return metadata.version("waypost")


def _mailcore() -> ModuleType:
    from mailcore.cli import mailcore

    return mailcore


def _status() -> ModuleType:
    from mailcore.cli import status

    return status


def _doctor() -> ModuleType:
    from mailcore.cli import doctor

    return doctor


def _check_config() -> ModuleType:
    from mailcore.cli import check_config

    return check_config


def _inject() -> ModuleType:
    from mailcore.cli import inject

    return inject


def _import_postfix() -> ModuleType:
    from mailcore.import_postfix import command

    return command


def _queue() -> ModuleType:
    from mailcore.cli.queue import command

    return command


def _transport() -> ModuleType:
    from mailcore.cli import transport

    return transport


def _destination() -> ModuleType:
    from mailcore.cli import destination

    return destination


def _report() -> ModuleType:
    from mailcore.cli import report

    return report


def _log() -> ModuleType:
    from mailcore.cli import log

    return log


def _export() -> ModuleType:
    from mailcore.cli import export

    return export


def _backup() -> ModuleType:
    from mailcore.cli import backup

    return backup


def _restore() -> ModuleType:
    from mailcore.cli import restore

    return restore


def _simulate() -> ModuleType:
    from mailcore.cli.simulate import command

    return command


def _lab() -> ModuleType:
    from mailcore.lab import main

    return main


def _demo() -> ModuleType:
    from mailcore.lab import demo

    return demo


# name -> the function that imports its module, and what the command does
COMMANDS: dict[str, tuple[Callable[[], ModuleType], str]] = {
    "mailcore": (_mailcore, "run the appliance in the foreground"),
    "status": (_status, "what runs, what is queued, what goes on"),
    "doctor": (_doctor, "look at this host and Waypost on it, and say what to do; changes nothing"),
    "check-config": (_check_config, "read the configuration and print the settings, or what is wrong"),
    "inject": (_inject, "hand in a message from a file or stdin"),
    "import-postfix": (_import_postfix, "settings and queue of a Postfix, and what became of each"),
    "queue": (_queue, "list, show, size; delete, hold, retry and other changes"),
    "transport": (_transport, "list parameters, set them live"),
    "destination": (_destination, "list, suspend, resume, tune destinations"),
    "report": (_report, "make the report of a day by hand"),
    "log": (_log, "dump a lane, segment by segment"),
    "export": (_export, "events for the reports: how far, export now, count the queue, look into a file"),
    "backup": (_backup, "configuration, database and keys in one file, on request reports and queue"),
    "restore": (_restore, "back from a backup; a queue comes back held"),
    "simulate": (_simulate, "what would happen: the scheduler over modelled next hops"),
    "lab": (_lab, "fake SMTP servers with scripted behaviour, for tests and demos"),
    "demo": (_demo, "what ./run --demo starts beside the core: such hops, and gentle mixed traffic"),
}
