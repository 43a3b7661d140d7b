"""``waypost mailcore``: the appliance in the foreground, until it is killed."""

from __future__ import annotations

import argparse

from mailcore import processes
from mailcore.config.load import load
from mailcore.supervisor import supervisor
from mailcore.supervisor.users import UsersError, find_users
from mailcore.terminal.command import UsageError, add_common, config_path

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--receiver-user", metavar="USER", default="", help="whose the receivers are (docs/install.md)")
    parser.add_argument("--deliverer-user", metavar="USER", default="", help="whose the deliverers are")
    parser.add_argument(
        "--group", default="", help="group of both, and of whoever starts this, that may enter the queue"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    settings = load(config_path(arguments))
    try:
        users = find_users(arguments.receiver_user, arguments.deliverer_user, arguments.group)
    except UsersError as error:
        raise UsageError(str(error)) from None
    return supervisor.main(settings, processes.__name__, users)
