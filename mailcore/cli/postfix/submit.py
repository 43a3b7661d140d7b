"""Submits a message: reads it from stdin and puts it into the maildrop of the home, whether Waypost runs or not.

Exit status 0 means that the message is on disk, with its name (law: submitted-is-durable). With any other, no message was
taken.

Keeps law: submitted-is-durable (docs/laws.md).
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, BinaryIO

from mailcore.cli.postfix.addresses import NotAddresses, addresses_in
from mailcore.cli.postfix.exits import DATAERR, OK, TEMPFAIL, UNAVAILABLE, USAGE, Ended
from mailcore.cli.postfix.options import Given
from mailcore.config.settings import Settings
from mailcore.counted import counted
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import DIRECTORY, PIECE_BYTES, RECIPIENTS_MAX, Draft, Submission, names_of
from mailcore.pickup.letter import HEADER_BYTES_MAX, Header, HeaderTooLong, split_header
from mailcore.receiver.path import plain_local_part
from mailcore.routing.address import is_mailbox, is_return_path

__all__ = ["author", "complain", "hostname_of", "open_draft", "origin_of", "qualified", "submit", "verify", "write"]

NOT_VERIFIED = (
    b"Subject: sendmail -bv was not answered\n\n"
    b"This Waypost is older than sendmail -bv and has verified no address. Use: waypost route resolve ADDRESS\n"
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"\Z', re.DOTALL)
UMASK = 0o027  # the directory's group, which Waypost has, may read the file


class _Killed(BaseException):
    """A signal that ends the program: no part of a message stays."""


def hostname_of(settings: Settings) -> str:
    """Returns our name."""
    return settings.receiver.hostname or socket.gethostname()


def origin_of(settings: Settings) -> str:
    """Returns the domain that completes an address without one."""
    return settings.lenient.own_domain(hostname_of(settings))


def author() -> tuple[str, str]:
    """Returns login name and full name of the calling user."""
    try:
        entry = pwd.getpwuid(os.getuid())
    except KeyError:
        return f"uid{os.getuid()}", ""
    return entry.pw_name, entry.pw_gecos.partition(",")[0].replace("&", entry.pw_name.capitalize())


def qualified(address: str, origin: str) -> str:
    """Returns the address with a domain, as Postfix's append_at_myorigin, and without needless quotes; "" stays."""
    local_part, at, domain = address.rpartition("@")
    if not at:
        local_part, domain = domain, origin
    if _QUOTED.match(local_part):
        local_part = plain_local_part(local_part)
    return f"{local_part}@{domain}" if address else ""


def open_draft(settings: Settings) -> Draft:
    """Begins a message in the maildrop. Raises Ended."""
    disk, directory = Disk(), str(settings.home / DIRECTORY)
    os.umask(UMASK)
    try:
        free_bytes, free_inodes = disk.free_bytes(directory), disk.free_inodes(directory)
        if free_bytes < settings.queue.reserve_bytes or free_inodes < settings.queue.reserve_inodes:
            raise Ended(TEMPFAIL, f"{directory}: the disk has less room than [queue] reserve_bytes; try again later")
        try:
            waiting = len(names_of(disk.list(directory)))
        except (
            PermissionError
        ):  # as it is for all but the owner: then Waypost shuts the directory when there are too many
            waiting = 0
        if waiting >= settings.maildrop.files_max:
            raise Ended(
                TEMPFAIL,
                f"{directory} already has {counted(waiting, 'message')} ([maildrop] files_max); try again later",
            )
        return Draft(disk, directory)
    except FileNotFoundError:
        raise Ended(TEMPFAIL, f"{directory} does not exist: Waypost was never started on this home") from None
    except PermissionError:
        text = f"{directory}: this user may not submit, or too many messages wait; try again later"
        raise Ended(TEMPFAIL, text) from None
    except OSError as error:
        raise Ended(TEMPFAIL, f"{directory}: {error.strerror or error}") from None


def submit(given: Given, settings: Settings, stdin: BinaryIO) -> int:
    """Reads a message and submits it; returns the exit status. Raises Ended."""
    origin = origin_of(settings)
    user, full_name = author()
    sender = _sender(given.sender, user, origin)
    recipients = [address for text in given.recipients for address in _addresses(text, origin, USAGE)]
    if not recipients and not given.from_header:
        raise Ended(USAGE, "name the recipients on the command line, or use -t to take them from the header")
    pieces = _until_dot(stdin, ignore_dots=given.ignore_dots)
    beginning = b""
    if given.from_header:
        header, beginning = _read_header(pieces)
        recipients += _in_header(header, origin)
        if not recipients:
            raise Ended(USAGE, "no recipient addresses found in the header section")
    recipients = list(dict.fromkeys(recipients))
    if len(recipients) > RECIPIENTS_MAX:
        raise Ended(USAGE, f"{counted(len(recipients), 'recipient')}; at most {RECIPIENTS_MAX} are allowed")
    options: list[tuple[str, str]] = []
    if given.ret:
        options.append(("RET", given.ret))
    if given.envelope_id:
        options.append(("ENVID", _xtext(given.envelope_id)))
    submission = Submission(
        sender=sender,
        recipients=tuple(recipients),
        submitted_at=time.time(),
        user=user,
        full_name=given.full_name or full_name,
        options=tuple(options),
        recipient_options=((("NOTIFY", given.notify),),) * len(recipients) if given.notify else (),
    )
    write(settings, submission, _chained(beginning, pieces))
    return OK


def verify(given: Given, settings: Settings) -> int:
    """Asks what would become of mail for the addresses, by a file in the maildrop that Waypost answers with a report by mail.

    Nothing is read from stdin. Returns the exit status. Raises Ended.
    """
    if given.from_header:
        raise Ended(USAGE, "-t cannot be used with -bv: name the addresses on the command line")
    origin = origin_of(settings)
    user, full_name = author()
    reader = _sender(given.sender, user, origin)
    if not is_mailbox(reader):
        raise Ended(USAGE, f"-f {reader or '<>'}: the report of -bv needs a reader; name an address with -f")
    addresses = tuple(dict.fromkeys(each for text in given.recipients for each in _addresses(text, origin, USAGE)))
    if not addresses:
        raise Ended(USAGE, "name the addresses to verify on the command line")
    limit = settings.maildrop.verify_addresses_max
    if len(addresses) > limit:
        given_text = counted(len(addresses), "address")
        raise Ended(USAGE, f"{given_text}; at most {limit} are allowed with -bv ([maildrop] verify_addresses_max)")
    # A Waypost that does not know such requests sends what it finds here, to the reader alone.
    submission = Submission(
        sender="",
        recipients=(reader,),
        submitted_at=time.time(),
        user=user,
        full_name=full_name,
        verify=addresses,
    )
    write(settings, submission, [NOT_VERIFIED])
    return OK


def write(settings: Settings, submission: Submission, pieces: Iterable[bytes]) -> None:
    """Puts a whole message into the maildrop; returns when it is on disk. Raises Ended, and then there is no message."""
    draft = open_draft(settings)
    signals: dict[signal.Signals, Any] = {}
    limit = settings.receiver.message_size_limit
    try:
        try:  # a signal that comes while the handlers are put back is caught, too
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signals[number] = signal.signal(number, _end)
            draft.begin(submission)
            for piece in _with_short_header(iter(pieces)):
                if draft.data_bytes + len(piece) > limit:
                    raise Ended(
                        UNAVAILABLE, f"the message is bigger than {limit} bytes ([receiver] message_size_limit)"
                    )
                draft.write(piece)
            draft.submit()
        finally:
            for number, before in signals.items():
                signal.signal(number, before)
    except OSError as error:
        draft.abandon()
        raise Ended(TEMPFAIL, f"the message was not taken: {error.strerror or error}") from None
    except _Killed:
        draft.abandon()
        raise Ended(TEMPFAIL, "interrupted; the message was not taken") from None
    except BaseException:
        draft.abandon()
        raise


def _end(number: int, frame: FrameType | None) -> None:
    raise _Killed


def _chained(beginning: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if beginning:
        yield beginning
    yield from pieces


def _until_dot(stdin: BinaryIO, *, ignore_dots: bool) -> Iterator[bytes]:
    """Yields the message in pieces; a line that is a dot ends it, unless ``ignore_dots``."""
    if ignore_dots:
        while piece := stdin.read(PIECE_BYTES):
            yield piece
        return
    yield from _gathered(_lines_until_dot(stdin))


def _lines_until_dot(stdin: BinaryIO) -> Iterator[bytes]:
    continued = False  # the line did not end with the piece before
    while line := stdin.readline(PIECE_BYTES):
        if not continued and line.rstrip(b"\r\n") == b"." and len(line) <= 3:
            break
        continued = not line.endswith(b"\n")
        yield line


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields larger pieces: a header section is read again with each of them."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= PIECE_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _read_header(pieces: Iterator[bytes]) -> tuple[Header, bytes]:
    """Reads on until the header section is complete; returns it and all that was read. Raises Ended."""
    beginning = b""
    try:
        for piece in _gathered(pieces):
            beginning += piece
            if (header := split_header(beginning, is_all=False)) is not None:
                return header, beginning
        header = split_header(beginning, is_all=True)
    except HeaderTooLong as error:
        raise Ended(DATAERR, str(error)) from None
    assert header is not None
    return header, beginning


def _with_short_header(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the message, from the end of its header section on. Raises Ended if Waypost would set it aside for its header."""
    header, beginning = _read_header(pieces)
    if len(beginning) - len(header.rest) > HEADER_BYTES_MAX:
        raise Ended(DATAERR, str(HeaderTooLong()))
    yield beginning
    yield from pieces


def _in_header(header: Header, origin: str) -> list[str]:
    """Returns the addresses of To, Cc and Bcc; of a message that is resent, those of the Resent- fields. Raises Ended."""
    prefix = b"resent-" if any(field.name.startswith(b"resent-") for field in header.fields) else b""
    wanted = {prefix + name for name in (b"to", b"cc", b"bcc")}
    found = []
    for field in header.fields:
        if field.name in wanted:
            found += _addresses(field.value.decode("utf-8", "surrogateescape"), origin, DATAERR)
    return found


def _addresses(text: str, origin: str, wrong: int) -> list[str]:
    """Returns the addresses in a list (RFC 5322 3.4), with domains. Raises Ended with ``wrong`` if one is not an address."""
    try:
        found = addresses_in(text)
    except NotAddresses:
        raise Ended(wrong, f"{text!a}: not a list of addresses") from None
    addresses = [qualified(each, origin) for each in found]
    for address in addresses:
        if not is_mailbox(address):
            raise Ended(wrong, f"{address!a} is not an address; allowed: local@domain")
    return addresses


def _sender(given: str | None, user: str, origin: str) -> str:
    if given is None:
        return qualified(user, origin)
    text = given.strip()
    if text in ("", "<>"):
        return ""
    try:
        (address,) = addresses_in(text)
    except ValueError:
        address = ""
    sender = qualified(address, origin)
    if not address or not is_return_path(sender):
        raise Ended(USAGE, f"-f {given!a}: not an address; allowed: local@domain, or <>")
    return sender


def _xtext(text: str) -> str:
    """Returns the text as a parameter's value (RFC 3461 4)."""
    return "".join(c if "!" <= c <= "~" and c not in "+=" else f"+{ord(c):02X}" for c in text)


def complain(program: str, message: str) -> None:
    """Prints an error as Postfix's sendmail does."""
    print(f"{program}: fatal: {message}", file=sys.stderr)
