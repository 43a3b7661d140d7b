"""``waypost inject``: a message from a file or stdin into the queue. Its queue id is printed when it is safe."""

from __future__ import annotations

import argparse
import email.policy
import email.utils
import sys
from collections.abc import Iterator
from email.parser import BytesHeaderParser
from typing import BinaryIO

from mailcore.control.arguments import CHUNK_BYTES_MAX
from mailcore.terminal.command import DONE, UsageError, add_common, control_client, moment
from mailcore.terminal.output import print_json, say
from mailcore.terminal.times import TIME_FORMS

__all__ = ["configure"]

HEADER_BYTES_MAX = CHUNK_BYTES_MAX  # in which From is looked for


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="-", help="a message with its header; - or nothing: stdin")
    parser.add_argument(
        "--from", dest="sender", metavar="ADDRESS", help='default: the header\'s From; "" or "<>": none'
    )
    parser.add_argument("--to", action="append", required=True, metavar="ADDRESS", help="may be given several times")
    parser.add_argument("--not-before", type=moment, metavar="TIME", help=TIME_FORMS)
    parser.add_argument("--why", default="", metavar="TEXT", help="goes into the journal")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.file == "-":
        return _inject(arguments, sys.stdin.buffer)
    with open(arguments.file, "rb") as file:
        return _inject(arguments, file)


def _inject(arguments: argparse.Namespace, file: BinaryIO) -> int:
    first = file.read(HEADER_BYTES_MAX)
    sender = arguments.sender.removeprefix("<").removesuffix(">") if arguments.sender is not None else _from_of(first)
    begin = {"sender": sender, "recipients": arguments.to, "not_before": arguments.not_before}
    with control_client(arguments) as control:
        control.call("inject_begin", begin, why=arguments.why)
        for chunk in _chunks(first, file):
            control.call("inject_data", {"data": chunk})
        answer = control.call("inject_end", why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(answer["queue_id"])
    return DONE


def _chunks(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = file.read(CHUNK_BYTES_MAX)


def _from_of(beginning: bytes) -> str:
    """The address in the header's From. Raises UsageError when there is none, or several."""
    header = BytesHeaderParser(policy=email.policy.compat32).parsebytes(beginning)
    values = [str(value) for value in header.get_all("From", [])]
    addresses = [address for _, address in email.utils.getaddresses(values) if address]
    if len(addresses) != 1:
        what = "no" if not addresses else "more than one"
        raise UsageError(f"inject: the header has {what} From address; give the sender with --from ADDRESS")
    return addresses[0]
