"""``waypost certificate``: certificates that Waypost keeps: added, made here, or asked for at an authority."""

from __future__ import annotations

import argparse
from typing import Any

from mailcore.cli.kept import add_change, content_of, faulty, list_files, use_file
from mailcore.control.protocol.kept import KeptMade
from mailcore.terminal.command import DONE, add_common, control_client, file_name
from mailcore.terminal.output import complain, plain, print_json, say
from mailcore.terminal.times import shown

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the certificates that are kept, and where they are used")
    listing.set_defaults(run=lambda arguments: list_files(arguments, "certificate"))
    adding = commands.add_parser("add", help="check a certificate and its key, keep them, and use them")
    adding.add_argument("name", metavar="NAME", help="name of the file; the same name replaces an earlier certificate")
    adding.add_argument("certificate", metavar="FILE", type=file_name, help="PEM file: the certificate and its chain")
    adding.add_argument(
        "--key", metavar="FILE", type=file_name, help="PEM file with its key; without it, a key that is kept already"
    )
    making = commands.add_parser("new", help="make a key and a certificate that it signs itself, and use them")
    making.add_argument("--days", type=int, default=397, metavar="N", help="days until it expires (default: 397)")
    asking = commands.add_parser("request", help="make a key, which stays here, and print a request for a certificate")
    for each in (making, asking):
        each.add_argument("names", metavar="NAME", nargs="+", help="names of this host, such as mail.example.org")
    for each in (adding, making):
        each.add_argument(
            "--for", dest="sni", metavar="NAME", action="append", default=[],
            help="only for clients that ask for this name; may be repeated. Otherwise for all clients",
        )  # fmt: skip
        add_change(each)
    for each in (listing, adding, making, asking):
        add_common(each)
    adding.set_defaults(run=_add_certificate)
    making.set_defaults(run=_new_certificate)
    asking.set_defaults(run=_request)


def _add_certificate(arguments: argparse.Namespace) -> int:
    given = {
        "kind": "certificate", "name": arguments.name, "text": content_of(arguments.certificate),
        "key": content_of(arguments.key) if arguments.key else "",
    }  # fmt: skip
    return _certificate_made(arguments, "kept_put", given)


def _new_certificate(arguments: argparse.Namespace) -> int:
    given = {"kind": "certificate", "names": arguments.names, "days": arguments.days}
    return _certificate_made(arguments, "kept_make", given)


def _certificate_made(arguments: argparse.Namespace, operation: str, given: dict[str, Any]) -> int:
    with control_client(arguments) as control:
        made = control.ask(operation, KeptMade, given, why=arguments.why)
    if status := faulty(arguments, made):
        return status
    facts = made.facts.certificate if made.facts is not None else None
    if facts is not None and not arguments.json:
        say(f"{made.file}: {plain(', '.join(facts.names))}, by {plain(facts.issuer)}, until {shown(facts.not_after)}")
        for each in facts.warnings:
            complain(plain(each))
    place = ["certificate"] if arguments.sni else ["receiver", "tls_certificate"]
    return use_file(arguments, made.file, {"place": place, "names": arguments.sni})


def _request(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        made = control.ask("kept_make", KeptMade, {"kind": "request", "names": arguments.names})
    if status := faulty(arguments, made):
        return status
    if arguments.json:
        print_json(made)
    else:
        say(made.request.rstrip("\n"))
        complain("the key stays here; hand in the signed certificate with waypost certificate add, without --key")
    return DONE
