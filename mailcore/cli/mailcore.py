"""``waypost mailcore``: runs all processes of the mail side in the foreground until it is stopped."""

from __future__ import annotations

import argparse
import sys

from mailcore import processes
from mailcore.config.load import ConfigError, load
from mailcore.config.route_files import route_faults
from mailcore.config.settings import Settings
from mailcore.config.shards import are_several
from mailcore.supervisor import supervisor
from mailcore.supervisor.users import UsersError, find_users
from mailcore.terminal.command import UsageError, add_common, config_path

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.add_argument(
        "--receiver-user", metavar="USER", default="", help="user of the receiver processes (docs/install.md)"
    )
    parser.add_argument("--deliverer-user", metavar="USER", default="", help="user of the deliverer processes")
    parser.add_argument(
        "--group", default="", help="group with access to the queue; both users and the caller must be members"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments).absolute()
    settings = load(path, look_at_certificate=False)  # it is looked at while Waypost runs
    for fault in route_faults(
        settings
    ):  # mail waits in the queue until the file is corrected; it is accepted meanwhile
        print(f"waypost: {fault}; mail waits until it is corrected", file=sys.stderr)
    try:
        users = find_users(arguments.receiver_user, arguments.deliverer_user, arguments.group)
    except UsersError as error:
        raise UsageError(str(error)) from None

    def read() -> Settings:
        again = load(path, look_at_certificate=False)
        if faults := route_faults(again):  # after a start mail would wait; before it, the routes in use are better
            raise ConfigError("\n".join(map(str, faults)))
        return again

    if are_several(settings):
        return processes.run_shards(settings, users, read)
    return supervisor.main(settings, processes.ROLES, users, read)
