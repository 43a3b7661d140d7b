"""``waypost dkim``: makes a key that signs mail, and compares the keys in use with their DNS records."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mailcore.authenticity.key_record import compared, strings
from mailcore.bounds import BadValue
from mailcore.cli.kept import add_change, faulty, list_files, use_file
from mailcore.config.arc import Arc
from mailcore.config.dkim import DkimKey, domain_name, selector_name
from mailcore.config.settings import Settings
from mailcore.control.protocol.kept import Kept, KeptMade
from mailcore.dkim.key import ALGORITHMS, BadKey, load_key, new_key
from mailcore.doctor.as_user import ids_of_role, name_of_user, unreadable
from mailcore.doctor.host import Host, processes_of
from mailcore.doctor.resolver import ALL_S, Server, ask, servers_of, system_servers
from mailcore.faults import Code, Fault
from mailcore.terminal.command import (
    DONE,
    NOT_DONE,
    UsageError,
    add_common,
    config_path,
    control_client,
    fault_of,
    is_remote,
    settings_of,
)
from mailcore.terminal.output import JsonLines, complain, complain_fault, print_json, say, whole_table, width

__all__ = ["configure"]

TRIES = 2
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    making = commands.add_parser(
        "new",
        help="make a key; print its DNS record and its section of the configuration file",
        description="Make a key; print its DNS record and its section of the configuration file.",
    )
    making.add_argument("domain", metavar="DOMAIN", type=_domain, help="domain of the mail to sign")
    making.add_argument(
        "selector", metavar="SELECTOR", type=_selector, help="name of the key in the DNS, such as 2026a"
    )
    making.add_argument(
        "--key",
        metavar="FILE",
        type=Path,
        help="file for the private key; must not exist. Without this, Waypost keeps the key, which then never leaves",
    )
    making.add_argument(
        "--algorithm", choices=ALGORITHMS, default="rsa", help="default: rsa, which every server verifies"
    )
    add_common(making)
    making.set_defaults(run=_new)
    using = commands.add_parser(
        "use",
        help="sign with a key that Waypost keeps",
        description="Sign with a key that Waypost keeps, if its DNS record is published.",
    )
    using.add_argument("domain", metavar="DOMAIN", type=_domain, help="domain of the mail to sign")
    using.add_argument("selector", metavar="SELECTOR", type=_selector, help="name of the key in the DNS")
    using.add_argument("--subdomains", action="store_true", help="also sign mail from subdomains without a key")
    using.add_argument("--unpublished", action="store_true", help="also if the DNS has another record, or none")
    add_change(using)
    add_common(using)
    using.set_defaults(run=_use)
    listing = commands.add_parser("list", help="list the keys that Waypost keeps, and where they are used")
    add_common(listing)
    listing.set_defaults(run=lambda arguments: list_files(arguments, "dkim"))
    checking = commands.add_parser(
        "check",
        help="compare the keys with their DNS records",
        description="Compare the keys of the configuration file with their DNS records. "
        "Exit status 1 if a key cannot be used, or its record is missing, another one or not valid.",
    )
    add_common(checking, document=False)
    checking.set_defaults(run=_check)


def _domain(text: str) -> str:
    try:
        return domain_name(text)
    except BadValue as error:
        raise argparse.ArgumentTypeError(error.reason) from None


def _selector(text: str) -> str:
    try:
        return selector_name(text)
    except BadValue as error:
        raise argparse.ArgumentTypeError(error.reason) from None


def _new(arguments: argparse.Namespace) -> int:
    if arguments.key is not None and is_remote(arguments):
        raise UsageError("--key makes a file of the host; run it there, or without --key", argument="--key")
    return _new_kept(arguments) if arguments.key is None else _new_file(arguments)


def _new_kept(arguments: argparse.Namespace) -> int:
    given = {
        "kind": "dkim", "domain": arguments.domain, "selector": arguments.selector, "algorithm": arguments.algorithm,
    }  # fmt: skip
    with control_client(arguments) as control:
        made = control.ask("kept_make", KeptMade, given)
    if status := faulty(arguments, made):
        return status
    if arguments.json:
        print_json(made)
        return DONE
    assert made.facts is not None
    assert made.facts.dkim is not None
    say("Waypost keeps the private key. Add this record to the DNS:")
    say()
    say(f"    {made.facts.dkim.zone_line}")
    say()
    say(f"When it is published: waypost dkim use {arguments.domain} {arguments.selector}")
    return DONE


def _use(arguments: argparse.Namespace) -> int:
    name = f"{arguments.selector}._domainkey.{arguments.domain}"
    with control_client(arguments) as control:
        files = control.ask("kept", Kept).files
    file = next((each for each in files if each.kind == "dkim" and each.name == name), None)
    if file is None or file.dkim is None:
        raise UsageError(f"Waypost keeps no key {name}; waypost dkim list shows all", argument="SELECTOR")
    if not arguments.unpublished:
        found = _published(file.dkim.record, file.dkim.algorithm, name, _servers(arguments))
        if found.state != "ok":
            complain_fault(Fault(Code.CONFLICT, f"{found.state}: {found.about}"))
            complain("nothing was changed; --unpublished signs all the same, and servers will not verify it")
            return NOT_DONE
    return use_file(arguments, file.file, {"place": ["dkim"], "subdomains": arguments.subdomains})


def _servers(arguments: argparse.Namespace) -> list[Server]:
    """Returns the name servers of the deliverers; with --remote those of this host: the record is public."""
    resolv_conf = Path("/etc/resolv.conf")
    return system_servers(resolv_conf) if is_remote(arguments) else servers_of(settings_of(arguments), resolv_conf)


def _new_file(arguments: argparse.Namespace) -> int:
    key = new_key(arguments.algorithm)
    path: Path = arguments.key
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        raise UsageError(f"{path} exists; an existing key is never overwritten", argument="--key") from None
    except OSError as error:
        complain_fault(fault_of(error, str(path)))
        return NOT_DONE
    with os.fdopen(fd, "wb") as file:
        file.write(key.pem)
        file.flush()
        os.fsync(file.fileno())
    name = f"{arguments.selector}._domainkey.{arguments.domain}"
    if arguments.json:
        print_json({"key": str(path), "algorithm": arguments.algorithm, "name": name, "record": key.record})
        return DONE
    say(f"The private key is in {path}. Let the user of the deliverers read it, and no other user.")
    say()
    say("1. Add this record to the DNS:")
    say()
    say(f"    {name}. IN TXT ( {strings(key.record)} )")
    say()
    say("2. Add this to the configuration file:")
    say()
    for line in (
        "[[dkim]]",
        f'domain = "{arguments.domain}"',
        f'selector = "{arguments.selector}"',
        f'key = "{path.absolute()}"',
    ):
        say(f"    {line}")
    say()
    say("3. When waypost dkim check finds the record, restart Waypost.")
    return DONE


class _Found(NamedTuple):
    """The result for one key.

    ``state`` is "ok", "key_unusable", "no_record", "other_key", "revoked", "not_valid", "testing" or "no_answer".
    """

    state: str
    about: str


def _check(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    servers = servers_of(settings, Path("/etc/resolv.conf"))
    lines = JsonLines() if arguments.json else None
    rows = []
    good = True
    closed = _closed(settings, arguments)
    for section, each in _keys(settings):
        found = closed.get(each.key) or _look(each, servers, "rsa-sha256" if section == "arc" else "")
        good &= found.state == "ok"
        if lines is not None:
            lines.item(
                {
                    "section": section,
                    "domain": each.domain,
                    "selector": each.selector,
                    "key": each.key,
                    "state": found.state,
                    "about": found.about,
                }
            )
        rows.append((section, each.domain, each.selector, found.state, found.about))
    if lines is not None:
        lines.end()
    elif rows:
        for line in whole_table(("SECTION", "DOMAIN", "SELECTOR", "STATE", ""), rows, width(sys.stdout)):
            say(line)
    else:
        complain_fault(
            Fault(
                Code.NOT_FOUND,
                "the configuration file has no [[dkim]] section and no [arc] key; waypost dkim new makes a key",
            )
        )
    return DONE if good and rows else NOT_DONE


def _keys(settings: Settings) -> list[tuple[str, DkimKey | Arc]]:
    """Returns the keys with the section of each."""
    keys: list[tuple[str, DkimKey | Arc]] = [("dkim", each) for each in settings.dkim]
    return [*keys, ("arc", settings.arc)] if settings.arc.key else keys


def _closed(settings: Settings, arguments: argparse.Namespace) -> dict[str, _Found]:
    """Returns the keys that the deliverers' user cannot read, as far as this user can tell: while one runs, and as root."""
    ids = ids_of_role(
        Host(settings, config_path(arguments), processes=processes_of(settings.run_directory)), "deliverer"
    )
    found = (unreadable(ids, [each.key for _, each in _keys(settings)]) if ids is not None else None) or {}
    return {
        path: _Found("key_unusable", f"{path}: the deliverers' user {name_of_user(ids)} cannot read it: {why}")
        for path, why in found.items()
        if ids is not None
    }


def _look(settings: DkimKey | Arc, servers: list[Server], algorithm: str) -> _Found:
    """Looks at one key. ``algorithm``: the only one that is allowed, if there is one."""
    try:
        key = load_key(settings.key)
        if algorithm not in ("", key.algorithm):
            raise BadKey(f"must be a key for {algorithm}")
    except BadKey as bad:
        return _Found("key_unusable", f"{settings.key}: {bad}")
    return _published(key.record, key.algorithm, f"{settings.selector}._domainkey.{settings.domain}", servers)


def _published(record: str, algorithm: str, name: str, servers: list[Server]) -> _Found:
    """Compares a key's record with what the DNS has."""
    why = "no name server is configured"
    for server in servers:
        answer = ask(server, name, "TXT", TRIES, time.monotonic() + ALL_S)
        if answer.is_usable:
            texts = ["".join(_STRING.findall(text)) for text in answer.records]
            return _Found(*compared(record, algorithm, name, texts))
        why = f"name server {server[0]}: {answer.error or answer.rcode}"
    return _Found("no_answer", why)
