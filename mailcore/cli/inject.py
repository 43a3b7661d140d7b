"""``waypost inject``: adds a message to the queue and prints its queue ID once the message is stored."""

from __future__ import annotations

import argparse
import email.policy
import email.utils
import sys
from collections.abc import Iterator
from email.parser import BytesHeaderParser
from typing import BinaryIO

from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX, Nothing
from mailcore.terminal.command import DONE, UsageError, add_common, control_client, file_name, moment
from mailcore.terminal.output import print_json, say
from mailcore.terminal.times import TIME_FORMS

__all__ = ["configure"]

HEADER_BYTES_MAX = CHUNK_BYTES_MAX  # the From field must be within this


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", type=file_name, help="message with header; default: - (stdin)"
    )
    parser.add_argument(
        "--from",
        dest="sender",
        metavar="ADDRESS",
        help='envelope sender; default: the From field; "" or "<>": no sender',
    )
    parser.add_argument("--to", action="append", required=True, metavar="ADDRESS", help="recipient; may be repeated")
    parser.add_argument("--not-before", type=moment, metavar="TIME", help=f"do not deliver before TIME: {TIME_FORMS}")
    parser.add_argument("--why", default="", metavar="TEXT", help="reason, recorded with your user name")
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
        control.ask("inject_begin", Injected, begin, why=arguments.why)
        for chunk in _chunks(first, file):
            control.ask("inject_data", Nothing, {"data": chunk})
        answer = control.ask("inject_end", Injected, why=arguments.why)
    if arguments.json:
        print_json(answer)
    else:
        say(answer.queue_id)
    return DONE


def _chunks(first: bytes, file: BinaryIO) -> Iterator[bytes]:
    chunk = first
    while chunk:
        yield chunk
        chunk = file.read(CHUNK_BYTES_MAX)


def _from_of(beginning: bytes) -> str:
    """Returns the address of the From field. Raises UsageError if there is no address, or more than one."""
    header = BytesHeaderParser(policy=email.policy.compat32).parsebytes(beginning)
    values = [str(value) for value in header.get_all("From", [])]
    addresses = [address for _, address in email.utils.getaddresses(values) if address]
    if len(addresses) != 1:
        count = "no" if not addresses else "more than one"
        raise UsageError(f"inject: the header has {count} From address; set the sender with --from ADDRESS")
    return addresses[0]
