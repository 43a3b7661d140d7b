"""postcat: prints a message of the queue, with the marks of Postfix's postcat."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from mailcore.cli.postfix.exits import OK, Ended
from mailcore.cli.postfix.mailq import queue_of
from mailcore.cli.queue.message import pieces_of
from mailcore.control.client import ControlClient, Refused
from mailcore.control.protocol.messages import ShowPart
from mailcore.control.protocol.operation import QUEUE_ID_PATTERN
from mailcore.terminal.output import plain

__all__ = ["postcat"]

FAILED = 1
USAGE = "usage: postcat [-b] [-c config_file] [-e] [-h] [-o] [-q] [-v] queue_id..."


def postcat(argv: Sequence[str], client: Callable[[str], ControlClient]) -> int:
    """Runs postcat; returns the exit status. Raises Ended."""
    parts: set[str] = set()
    names: list[str] = []
    config, by_id = "", False
    arguments = list(argv)
    while arguments:
        option = arguments.pop(0)
        if not option.startswith("-") or option == "-":
            names.append(option)
            continue
        letters = option[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter == "c":
                config, letters = letters or (arguments.pop(0) if arguments else ""), ""
            elif letter in "bhe":
                parts.add(letter)
            elif letter == "q":
                by_id = True
            elif letter not in "ov":
                raise Ended(FAILED, USAGE)
    if not names:
        raise Ended(FAILED, USAGE)
    for name in names:
        if by_id and not re.fullmatch(QUEUE_ID_PATTERN, name.upper()):
            raise Ended(FAILED, f"{plain(name)!r} is not a queue ID")
    if not by_id:
        raise Ended(FAILED, "Waypost has no file for each message; name messages of the queue with: postcat -q ID")
    with client(config) as control:
        for name in names:
            _print(control, name.upper(), parts or {"b", "h", "e"})
    return OK


def _print(control: ControlClient, name: str, parts: set[str]) -> None:
    with_marks = "e" in parts
    try:
        shown = list(control.ask_parts("show", ShowPart, {"queue_id": name}))
    except Refused as error:
        raise Ended(FAILED, f"open queue file {name}: {error}") from None
    message = shown[0].message
    where = f"{queue_of(message)}/{name}" if message else name
    if with_marks:
        print(f"*** ENVELOPE RECORDS {where} ***")
        for line in _envelope(shown):
            print(line)
        print(f"*** MESSAGE CONTENTS {where} ***")
    sys.stdout.flush()
    if parts & {"b", "h"}:
        for data in _lines(control, name, header="h" in parts, body="b" in parts):
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    if with_marks:
        print(f"*** HEADER EXTRACTED {where} ***")
        print(f"*** MESSAGE FILE END {where} ***")


def _envelope(shown: list[ShowPart]) -> Iterator[str]:
    message, envelope = shown[0].message, shown[0].envelope
    assert message
    assert envelope
    yield f"message_size: {message.size_bytes:15d} {0:15d} {message.recipient_count:15d}"
    yield f"message_arrival_time: {time.asctime(time.localtime(message.arrived_at))}"
    if envelope.client_address:
        yield f"named_attribute: client_address={plain(envelope.client_address)}"
        yield f"named_attribute: helo_name={plain(envelope.helo)}"
    if envelope.login:
        yield f"named_attribute: sasl_username={plain(envelope.login)}"
    yield f"sender: {plain(message.sender)}"
    for part in shown:
        for recipient in part.recipients or ():
            yield f"{'done_recipient' if recipient.done else 'recipient'}: {plain(recipient.address)}"


def _lines(control: ControlClient, name: str, *, header: bool, body: bool) -> Iterator[bytes]:
    """Yields the message with LF at the end of lines: its header section, the empty line and the body, or one of them."""
    in_header = True
    begun = False  # a part of the header was yielded
    held = b""
    for piece in pieces_of(control, name):
        if piece.damage:
            raise Ended(FAILED, f"{name}: the message is damaged, and ends here: {plain(piece.damage)}")
        data = held + piece.data
        held = b""
        if in_header:
            end = 0 if not begun and data.startswith(b"\r\n") else data.find(b"\r\n\r\n") + 2
            if end == 1:  # not found yet; it may be divided
                cut = max(len(data) - 3, 0)
                cut -= data[:cut].endswith(b"\r")  # its LF belongs to it
                data, held = data[:cut], data[cut:]
                begun = begun or cut > 0
                if header:
                    yield _unix(data)
                continue
            if header:
                yield _unix(data[:end])
            in_header = False
            data = data[end:]
        if not body:
            return
        if data.endswith(b"\r"):
            data, held = data[:-1], b"\r"
        yield _unix(data)
    if held and (header if in_header else body):
        yield _unix(held)


def _unix(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")
