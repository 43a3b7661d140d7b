"""``waypost dkim``: makes a key that signs mail, and compares the keys in use with their DNS records."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mailcore.authenticity.public_key import read_key
from mailcore.authenticity.tags import tags_of
from mailcore.bounds import BadValue
from mailcore.config.arc import Arc
from mailcore.config.dkim import DkimKey, domain_name, selector_name
from mailcore.config.settings import Settings
from mailcore.counted import counted
from mailcore.dkim.key import ALGORITHMS, BadKey, SigningKey, load_key, new_key
from mailcore.doctor.as_user import ids_of_role, name_of_user, unreadable
from mailcore.doctor.host import Host, processes_of
from mailcore.doctor.resolver import ALL_S, Server, ask, servers_of
from mailcore.faults import Code, Fault
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, config_path, fault_of, settings_of
from mailcore.terminal.output import JsonLines, complain_fault, plain, print_json, say, whole_table, width

__all__ = ["configure"]

STRING_MAX = 255  # characters of one string of a TXT record, RFC 1035 3.3.14
TRIES = 2
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\([0-9]{3}|.)")  # RFC 1035 5.1
_PUBLIC = re.compile(r"(?:^|;)\s*p\s*=([^;]*)")


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
        "--key", metavar="FILE", type=Path, required=True, help="file for the private key; must not exist"
    )
    making.add_argument(
        "--algorithm", choices=ALGORITHMS, default="rsa", help="default: rsa, which every server verifies"
    )
    add_common(making)
    making.set_defaults(run=_new)
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
    say(f"    {name}. IN TXT ( {_strings(key.record)} )")
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


def _strings(record: str) -> str:
    return " ".join(f'"{record[at : at + STRING_MAX]}"' for at in range(0, len(record), STRING_MAX))


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
    name = f"{settings.selector}._domainkey.{settings.domain}"
    why = "no name server is configured"
    for server in servers:
        answer = ask(server, name, "TXT", TRIES, time.monotonic() + ALL_S)
        if answer.is_usable:
            return _compared(key, name, answer.records)
        why = f"name server {server[0]}: {answer.error or answer.rcode}"
    return _Found("no_answer", why)


def _compared(key: SigningKey, name: str, records: tuple[str, ...]) -> _Found:
    texts = ["".join(_STRING.findall(record)) for record in records]
    there = [(text, match[1]) for text in texts if (match := _PUBLIC.search(text))]
    if not there:
        return _Found("no_record", f"add {name}. IN TXT ( {_strings(key.record)} )")
    if len(there) > 1:
        return _Found("other_key", f"{name} has {counted(len(there), 'record')}; it must have one")
    text, value = there[0]
    public = re.sub(r"\s", "", value)
    if not public:
        return _Found("revoked", f"{name} has an empty key: signatures with it are not valid")
    if public != key.public:
        return _Found("other_key", f"{name} has another key: {plain(public[:20])}…, here it is {key.public[:20]}…")
    # As a server reads it that checks our signature: a key without k= is RSA, and s= and h= may exclude mail and SHA-256.
    whole = _ESCAPED.sub(_character, text)
    verifying = read_key(whole, key.algorithm)
    tags = {} if verifying.key is None else tags_of(whole)
    # Some servers are strict about it, and none of them says so.
    reason = "v= is not the first tag" if "v" in tags and next(iter(tags)) != "v" else verifying.reason
    better = f"change it to {name}. IN TXT ( {_strings(key.record)} )"
    if reason:
        return _Found("not_valid", f"{name}: {reason}; {better}")
    if "y" in {flag.strip() for flag in tags.get("t", "").split(":")}:
        return _Found("testing", f"{name} has t=y: servers take the mail as unsigned (RFC 6376 3.6.1); {better}")
    return _Found("ok", "")


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1])) if len(escaped[1]) > 1 else escaped[1]
