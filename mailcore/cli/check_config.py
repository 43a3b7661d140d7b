"""``waypost check-config``: prints the settings in use, or every error with its line (exit status 2).

Values of tuned.toml that are not in force are printed on stderr, with their line; the exit status stays 0, as Waypost ignores
them. Faults of the file of users are printed, too, with exit status 1: the users of these lines cannot log in; so are those of
the files of [rewriting] and [recipients]: Waypost does not take them into use. With a fault in a file of [route_maps] all mail
waits after a start, so the exit status is 2. With --file-only none of these files is looked at.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mailcore.config.alerts import alerts_warnings
from mailcore.config.authenticity import authenticity_warnings
from mailcore.config.dane import dane_warnings
from mailcore.config.dnsbl import dnsbl_warnings
from mailcore.config.greylist import greylist_warnings
from mailcore.config.lines import report
from mailcore.config.load import ConfigError, load
from mailcore.config.maps import map_faults, recipient_faults
from mailcore.config.policies_without_mail import policies_without_mail
from mailcore.config.postmaster import postmaster_faults
from mailcore.config.recipients import warnings_about
from mailcore.config.route_files import with_route_files
from mailcore.config.settings import Settings
from mailcore.config.tlsrpt import tlsrpt_warnings
from mailcore.config.tuned_check import ignored
from mailcore.config.unchecked_logins import login_warnings
from mailcore.faults import Code, Fault
from mailcore.rewriting.map_text import MapFault
from mailcore.terminal.command import DONE, NOT_DONE, WRONG_USE, add_common, config_path
from mailcore.terminal.output import complain, complain_fault, plain, print_json, say
from mailcore.users.user_file import UserFileError, read_users

__all__ = ["configure"]

RESOLV_CONF = Path("/etc/resolv.conf")


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.add_argument(
        "--file-only",
        action="store_true",
        help="check only the configuration file, not tuned.toml, the file of users and those of [route_maps], [rewriting] and "
        "[recipients]",
    )
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments)
    try:
        settings = load(path)
        whole = settings if arguments.file_only else with_route_files(settings)
    except (ConfigError, MapFault) as error:
        faults = str(error).splitlines()
        if arguments.json:
            print_json({"valid": False, "file": str(path), "faults": [plain(fault) for fault in faults]})
        for fault in faults:
            complain_fault(Fault(Code.INVALID, fault))
        return WRONG_USE
    values: dict[str, Any] = dataclasses.asdict(settings, dict_factory=_strings_for_paths)
    for each in (
        "written",
        "source",
        "shard",
    ):  # they say where the settings come from and for which queue, and are none
        del values[each]
    tuned = [] if arguments.file_only else _tuned_faults(settings)
    users, not_checked = ([], []) if arguments.file_only else _users_faults(settings)
    said = (
        *_without_mail(whole),
        *postmaster_faults(whole, socket.gethostname()),
        *warnings_about(settings.recipients, settings.relay.domains),
        *dnsbl_warnings(settings.dnsbl),
        *authenticity_warnings(settings.authenticity),
        *greylist_warnings(settings.greylist),
        *tlsrpt_warnings(settings.tlsrpt, settings.dkim),
        *alerts_warnings(settings.alerts, settings.relay.domains),
        *(() if arguments.file_only else login_warnings(settings)),
        *(() if arguments.file_only else dane_warnings(settings, RESOLV_CONF)),
    )
    warnings = [plain(line) for line in said]
    in_files = [] if arguments.file_only else [*map_faults(settings.rewriting), *recipient_faults(settings)]
    maps = [plain(line) for line in in_files]
    status = NOT_DONE if users or maps else DONE
    if arguments.json:
        about = {
            "tuned_faults": [*tuned, *not_checked],
            "users_faults": users,
            "maps_faults": maps,
            "warnings": warnings,
        }
        print_json({"valid": True, "file": str(path), "settings": values, **about})
        return status
    for fault in (*tuned, *not_checked, *warnings):
        complain(fault)
    for fault in (*users, *maps):
        complain_fault(Fault(Code.INVALID, fault))
    say(f"# {path} is valid. All settings, including defaults:")
    _say_table("", values)
    return status


def _tuned_faults(settings: Settings) -> list[str]:
    """Returns a line for each value of tuned.toml that is not in force. They keep the exit status: Waypost starts with them."""
    path = settings.home / "tuned.toml"
    try:
        faults = ignored(path, settings)
    except PermissionError as error:
        return [plain(f"{path}: not checked: {error.strerror}")]
    except (OSError, ValueError) as error:
        return [
            plain(f"{path}: {error}; the next start sets the file aside and uses the values of the configuration file")
        ]
    return [plain(line) for line in report(path, faults).splitlines()]


def _without_mail(settings: Settings) -> Iterator[str]:
    """Yields a line for each TLS policy that no mail can reach. They keep the exit status: the file is valid."""
    for pattern, destination in policies_without_mail(settings):
        yield (
            f'[tls_policy."{pattern}"] has no effect: [routes] sends the mail of this domain to {destination}; set the policy '
            "for that next hop"
        )


def _users_faults(settings: Settings) -> tuple[list[str], list[str]]:
    """Returns a line for each fault of the file of users, and a line if this user cannot read it."""
    try:
        read_users(settings.users_file)
    except UserFileError as error:
        return [plain(line) for line in str(error).splitlines()], []
    except OSError as error:
        return [], [plain(f"{settings.users_file}: not checked: {error.strerror}")]
    return [], []


def _strings_for_paths(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, bool | int | float | dict | tuple | str) else str(value)
        for name, value in pairs
    }


def _say_table(name: str, values: dict[str, Any]) -> None:
    """Prints a table as TOML, so that lines can be copied into the file."""
    if name and (not values or any(not isinstance(value, dict) for value in values.values())):
        say(f"\n[{name}]")
    for key, value in values.items():
        if not isinstance(value, dict) and not (_has_tables(value) or (not name and value == ())):
            say(f"{_key(key)} = {_toml(value)}")
    for key, value in values.items():
        if isinstance(value, dict):
            _say_table(f"{name}.{_key(key)}" if name else _key(key), value)
        elif _has_tables(value):
            for each in value:
                _say_table(f"[{key}]", each)


def _has_tables(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(each, dict) for each in value)


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return json.dumps(value)
