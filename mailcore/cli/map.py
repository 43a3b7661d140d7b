"""``waypost map``: aliases, canonical addresses, valid recipients and routes in maps that Waypost keeps."""

from __future__ import annotations

import argparse

from mailcore.cli.kept import FILE_HELP, add_change, content_of, faulty, list_files, use_file
from mailcore.control.protocol.kept import KeptMade, KeptText
from mailcore.terminal.command import DONE, add_common, control_client, file_name
from mailcore.terminal.output import plain, print_json, say

__all__ = ["configure"]

FORMS = {  # the setting -> what the lines of its map are
    "rewriting.header_checks": "header_checks",
    "recipients.relay_recipient_maps": "recipients",
    "route_maps.routes": "routes",
    "route_maps.sender_routes": "sender_routes",
    "route_maps.login_routes": "login_routes",
    "route_maps.fallback_relay": "fallback_relay",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    listing = commands.add_parser("list", help="list the maps that are kept, and where they are used")
    listing.set_defaults(run=lambda arguments: list_files(arguments, "map"))
    putting = commands.add_parser("put", help="check a map, keep it, and use it in a setting")
    putting.add_argument("name", metavar="NAME", help="name of the map; the same name replaces an earlier one")
    putting.add_argument("file", metavar="FILE", type=file_name, help="text file with its lines; -: stdin")
    putting.add_argument(
        "--in", dest="place", metavar="KEY", required=True, help="setting that uses it: rewriting.virtual_alias_maps"
    )
    putting.add_argument("--patterns", action="store_true", help="its lines are regular expressions")
    putting.set_defaults(run=_put_map)
    add_change(putting)
    showing = commands.add_parser("show", help="print the lines of a map")
    showing.add_argument("file", metavar="MAP", help=FILE_HELP)
    showing.set_defaults(run=_show_map)
    for each in (listing, putting, showing):
        add_common(each)


def _put_map(arguments: argparse.Namespace) -> int:
    form = FORMS.get(arguments.place, "patterns" if arguments.patterns else "addresses")
    given = {"kind": "map", "name": arguments.name, "text": content_of(arguments.file), "form": form}
    with control_client(arguments) as control:
        made = control.ask("kept_put", KeptMade, given, why=arguments.why)
    if status := faulty(arguments, made):
        return status
    return use_file(arguments, made.file, {"place": arguments.place.split("."), "patterns": arguments.patterns})


def _show_map(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        found = control.ask("kept_text", KeptText, {"file": arguments.file})
    if arguments.json:
        print_json(found)
    else:
        for line in found.text.splitlines():
            say(plain(line))
    return DONE
