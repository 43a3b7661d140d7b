"""``waypost user``: the users who log in to send mail. Receivers use a change within a second, without a restart.

While Waypost runs here its core changes them; otherwise this command does, where nodes share them in the database.

A password is read from the terminal, twice, or from stdin with --password-stdin: never from the command line, which other users
of this host can read. Only its verifier leaves this process.

Law: with --remote no file of this host is read or changed: without the other Waypost nothing is done.
"""

from __future__ import annotations

import argparse
import getpass
import os
import pwd
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mailcore.config.shared_settings import USERS, trouble_in
from mailcore.control.changing_users import change_users
from mailcore.control.client import NotRunning, Refused
from mailcore.control.protocol.users import KnownUser, UserChanged, Users
from mailcore.faults import Code, Fault, FaultError
from mailcore.processes import shared_settings
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, control_client, is_remote, settings_of
from mailcore.terminal.output import JsonLines, complain, complain_fault, plain, print_json, say, whole_table, width
from mailcore.users.scram import PREFIX, SALT_BYTES
from mailcore.users.user import User, name_of, sender_pattern
from mailcore.users.user_file import UserFileError, read_users
from mailcore.users.verifier import argon2_verifier, is_scram, scram_verifier

__all__ = ["configure"]

R = TypeVar("R", bound=msgspec.Struct)
PASSWORD_MIN = 8  # characters, NIST SP 800-63B 5.1.1.2
PASSWORD_BYTES_MAX = 1_024  # the limit of AUTH (mailcore/receiver/mechanisms.py)
LIMIT_MAX = 100_000_000  # the bound of [auth]
SENDERS_HELP = 'address, domain, ".example.org" for its subdomains, or "any"; may be repeated'


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    adding = _command(commands, "add", "add a user; asks for the password", _add)
    _add_password(adding)
    _add_limits(adding, f"{SENDERS_HELP}; default: NAME, if it is an address")
    password = _command(commands, "password", "set the password of a user; open sessions of the user end", _password)
    _add_password(password)
    setting = _command(commands, "set", "change sender addresses and limits of a user", _set)
    _add_limits(setting, f"{SENDERS_HELP}; replaces the ones before")
    _command(commands, "disable", "refuse the logins of a user; open sessions of the user end", _disable)
    _command(commands, "enable", "allow the logins of a user again", _enable)
    removing = _command(commands, "remove", "remove a user", _remove)
    removing.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
    listing = commands.add_parser("list", help="list all users")
    add_common(listing, document=False)
    listing.set_defaults(run=_list)


def _command(commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int]) -> Any:
    parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    parser.add_argument("name", metavar="NAME", type=_name, help="user name, such as alice or alice@example.org")
    add_common(parser)
    parser.set_defaults(run=run)
    return parser


def _add_password(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--password-stdin", action="store_true", help="read the password from the first line of stdin")
    parser.add_argument(
        "--scram",
        action="store_true",
        help="keep a SCRAM-SHA-256 verifier instead of Argon2id. SCRAM is offered if all users have one",
    )


def _add_limits(parser: argparse.ArgumentParser, about: str) -> None:
    parser.add_argument("--sender", metavar="SENDER", action="append", type=_sender, help=about)
    for what in ("messages", "recipients"):
        parser.add_argument(
            f"--{what}-per-hour",
            metavar="N",
            type=_limit,
            help=f"maximum {what} in an hour; 0: no limit; default (the word, too): the value in [auth]",
        )


def _name(text: str) -> str:
    try:
        return name_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (got {plain(text)!r})") from None


def _sender(text: str) -> str:
    try:
        return sender_pattern(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (got {plain(text)!r})") from None


def _limit(text: str) -> int | None:
    if text == "default":
        return -1
    if not text.isdecimal() or int(text) > LIMIT_MAX:
        raise argparse.ArgumentTypeError(
            f"must be a whole number from 0 to {LIMIT_MAX}, or default (got {plain(text)!r})"
        )
    return int(text)


def _changed_here(arguments: argparse.Namespace, edit: Callable[[dict[str, User]], User]) -> User:
    """Changes the users without a core. Raises UsageError if the file has a fault, or the database refuses."""
    settings = settings_of(arguments)
    try:
        return change_users(settings, shared_settings(settings), edit, _who())
    except UserFileError as error:
        raise UsageError(f"{error}; correct the file first") from None
    except UsageError:
        raise
    except FaultError as error:
        raise UsageError(str(error), code=error.code) from None


def _who() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _asked(arguments: argparse.Namespace, operation: str, result: type[R], given: dict[str, Any]) -> R | None:
    """Asks the core, which records who asked; None if it is not running: then the file is changed here.

    Raises NotRunning with --remote: the file is on the other host.
    """
    try:
        with control_client(arguments) as control:
            return control.ask(operation, result, given)
    except NotRunning as error:
        if error.code is Code.FORBIDDEN or is_remote(arguments):
            raise
        return None
    except Refused as error:
        if error.code is Code.NOT_FOUND:
            raise UsageError(f"{error}; waypost user list shows all", argument="NAME") from None
        if error.code is Code.CONFLICT:
            raise UsageError(str(error)) from None
        raise


def _changed_by_core(arguments: argparse.Namespace, operation: str, given: dict[str, Any], done: str) -> int | None:
    """Returns the exit status of a change that the core made; None if it is not running."""
    answer = _asked(arguments, operation, UserChanged, {"name": arguments.name, **given})
    if answer is None:
        return None
    for fault in answer.faults:
        raise UsageError(f"{fault.key} {fault.reason}", argument=fault.key.upper())
    assert answer.user is not None
    if arguments.json:
        shown = msgspec.structs.asdict(answer.user)
        del shown["revision"]
        print_json(shown)
    else:
        say(f"user {answer.user.name} {done}")
    return DONE


def _known(users: dict[str, User], name: str) -> User:
    if name not in users:
        raise UsageError(f"user {name!r} does not exist; waypost user list shows all", argument="NAME")
    return users[name]


def _verifier(arguments: argparse.Namespace) -> str:
    """Reads a password and returns its verifier. Raises UsageError."""
    if arguments.password_stdin:
        line = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 3)
        try:
            password = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise UsageError("the password must be UTF-8") from None
    elif not sys.stdin.isatty():
        raise UsageError("stdin is not a terminal; give --password-stdin to read the password from it")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Password again: ") != password:
            raise UsageError("the two passwords differ; nothing was changed")
    if len(password) < PASSWORD_MIN or len(password.encode()) > PASSWORD_BYTES_MAX:
        raise UsageError(
            f"a password must have {PASSWORD_MIN} or more characters, and at most {PASSWORD_BYTES_MAX} bytes"
        )
    try:
        return (
            scram_verifier(password, secrets.token_bytes(SALT_BYTES)) if arguments.scram else argon2_verifier(password)
        )
    except ValueError as error:
        raise UsageError(f"the password {error}") from None


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields that the options give."""
    fields: dict[str, Any] = {}
    if arguments.sender is not None:
        fields["senders"] = tuple(dict.fromkeys(arguments.sender))
    for name in ("messages_per_hour", "recipients_per_hour"):
        value = getattr(arguments, name)
        if value is not None:
            fields[name] = None if value < 0 else value
    return fields


def _add(arguments: argparse.Namespace) -> int:
    name, fields = arguments.name, _limits(arguments)
    if "senders" not in fields:
        if "@" not in name:
            raise UsageError(
                "give the sender addresses of the user with --sender; any: all addresses", argument="--sender"
            )
        fields["senders"] = (sender_pattern(name),)
    known = _read_known(arguments)
    if name in known:
        raise UsageError(f"user {name!r} exists already", argument="NAME")
    user = User(name=name, verifier=_verifier(arguments), **fields)
    given = {"new": True, "verifier": user.verifier, **fields}
    if (status := _changed_by_core(arguments, "user_put", given, "added")) is not None:
        return status

    def add(users: dict[str, User]) -> User:
        if name in users:  # added while the password was typed
            raise UsageError(f"user {name!r} exists already", argument="NAME")
        users[name] = user
        return user

    return _done(arguments, _changed_here(arguments, add), "added")


def _read_known(arguments: argparse.Namespace) -> dict[str, User]:
    """Returns the users there are, before a password is asked for. Raises UsageError, ControlError."""
    if is_remote(arguments):
        found = _asked(arguments, "users", Users, {})
        assert found is not None
        return {each.name: _of_core(each) for each in found.users}
    try:
        return {user.name: user for user in read_users(settings_of(arguments).users_file)}
    except UserFileError as error:
        raise UsageError(f"{error}; correct the file first") from None


def _password(arguments: argparse.Namespace) -> int:
    _known(_read_known(arguments), arguments.name)
    verifier = _verifier(arguments)
    return _change(arguments, "has another password", verifier=verifier)


def _set(arguments: argparse.Namespace) -> int:
    fields = _limits(arguments)
    if not fields:
        raise UsageError("user set: give --sender, --messages-per-hour or --recipients-per-hour")
    return _change(arguments, "was changed", **fields)


def _disable(arguments: argparse.Namespace) -> int:
    return _change(arguments, "was disabled", enabled=False)


def _enable(arguments: argparse.Namespace) -> int:
    return _change(arguments, "was enabled", enabled=True)


def _change(arguments: argparse.Namespace, done: str, **fields: Any) -> int:
    if (status := _changed_by_core(arguments, "user_put", fields, done)) is not None:
        return status

    def change(users: dict[str, User]) -> User:
        user = users[arguments.name] = msgspec.structs.replace(_known(users, arguments.name), **fields)
        return user

    return _done(arguments, _changed_here(arguments, change), done)


def _remove(arguments: argparse.Namespace) -> int:
    name = arguments.name
    if not arguments.yes:
        _known(_read_known(arguments), name)
        if not sys.stdin.isatty() or arguments.json:
            raise UsageError(f"this would remove user {name!r}; nothing was changed. Confirm with --yes")
        if input(f"remove user {name}? [y/N] ").strip().lower() not in ("y", "yes"):
            return NOT_DONE
    if (status := _changed_by_core(arguments, "user_remove", {}, "was removed")) is not None:
        return status

    def remove(users: dict[str, User]) -> User:
        return users.pop(_known(users, name).name)

    return _done(arguments, _changed_here(arguments, remove), "was removed")


def _done(arguments: argparse.Namespace, user: User, done: str) -> int:
    if arguments.json:
        print_json(_shown(user))
    else:
        say(f"user {user.name} {done}")
    return DONE


def _list(arguments: argparse.Namespace) -> int:
    """Ends with NOT_DONE if a line of the file has a fault, or all nodes have other users; what is here is listed."""
    if (found := _asked(arguments, "users", Users, {})) is not None:
        users_of_core = [_of_core(each) for each in found.users]
        _complain_of_nodes(found.nodes)
        status = _print(arguments, users_of_core, found.faults, found.messages_per_hour, found.recipients_per_hour)
        return NOT_DONE if found.nodes else status
    settings = settings_of(arguments)
    faults: list[str] = []
    try:
        users = read_users(settings.users_file)
    except UserFileError as error:
        if error.usable is None:
            raise UsageError(str(error)) from None
        users, faults = error.usable, str(error).splitlines()
    auth = settings.auth
    why = trouble_in(settings.node_run_directory, (USERS,), time.time()) if settings.nodes.is_on else ""
    _complain_of_nodes(why)
    status = _print(arguments, list(users), faults, auth.messages_per_hour, auth.recipients_per_hour)
    return NOT_DONE if why else status


def _complain_of_nodes(why: str) -> None:
    if why:
        complain(f"this node has other users than the others, or may have: {plain(why)}")


def _of_core(user: KnownUser) -> User:
    """Returns a user with the kind of its verifier alone."""
    fields = msgspec.structs.asdict(user)
    del fields["revision"]
    return User(
        **{**fields, "senders": tuple(user.senders), "verifier": PREFIX if user.verifier.startswith("scram") else ""}
    )


def _print(
    arguments: argparse.Namespace, users: list[User], faults: list[str], messages_max: int, recipients_max: int
) -> int:
    for line in faults:
        complain_fault(Fault(Code.INVALID, line))
    status = NOT_DONE if faults else DONE
    if arguments.json:
        lines = JsonLines()
        for user in users:
            lines.item(_shown(user))
        lines.end(complete=status == DONE)
        return status
    rows = [
        (
            user.name,
            "yes" if user.enabled else "no",
            "SCRAM-SHA-256" if is_scram(user.verifier) else "Argon2id",
            _limit_shown(user.messages_per_hour, messages_max),
            _limit_shown(user.recipients_per_hour, recipients_max),
            ", ".join("any" if each == "*" else each for each in user.senders) or "none",
        )
        for user in users
    ]
    heads = ("NAME", "ENABLED", "VERIFIER", "MESSAGES/H", "RECIPIENTS/H", "SENDERS")
    for line in whole_table(heads, rows, width(sys.stdout)):
        say(line)
    return status


def _limit_shown(given: int | None, default: int) -> str:
    limit = default if given is None else given
    return str(limit) if limit else "no limit"


def _shown(user: User) -> dict[str, object]:
    """Returns a user without the verifier."""
    fields = msgspec.structs.asdict(user)
    fields["verifier"] = "scram-sha-256" if is_scram(user.verifier) else "argon2id"
    return fields
