"""``sendmail -bs``: speaks SMTP on stdin and stdout, and puts each message into the maildrop.

A 250 at the end of the data means what exit status 0 of sendmail means: the message is on disk, with its name
(law: submitted-is-durable). The user of the program is trusted as a user of sendmail is: any recipient is allowed.

Only what the maildrop keeps is offered: a parameter of any other extension is refused, so that no program relies on one.

Keeps law: submitted-is-durable (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from mailcore.cli.postfix.exits import DATAERR, OK, UNAVAILABLE, Ended
from mailcore.cli.postfix.submit import author, hostname_of, origin_of, qualified, write
from mailcore.config.settings import Settings
from mailcore.envelope import Options
from mailcore.esmtp import EXTENSIONS, Offering, without_binary
from mailcore.pickup.dropped import PIECE_BYTES, RECIPIENTS_MAX, Submission
from mailcore.receiver.command import Mail, ReplyOf, parse_mail, parse_rcpt
from mailcore.receiver.lenient_path import lenient_path
from mailcore.receiver.path import Path

__all__ = ["Session"]

LINE_BYTES_MAX = 2048  # RFC 5321 4.5.3.1.4 says 512, parameters take more
OFFERED = [
    row
    for row in EXTENSIONS
    if row.keyword in {"PIPELINING", "SIZE", "ENHANCEDSTATUSCODES", "8BITMIME", "DSN", "SMTPUTF8"}
]
MAIL_PARAMETERS = {each.keyword: without_binary(each) for row in OFFERED for each in row.mail}
RCPT_PARAMETERS = {each.keyword: each for row in OFFERED for each in row.rcpt}


class _Disconnected(Exception):
    """The input ended in the middle of a message: there is no message."""


class Session:
    """One session."""

    def __init__(self, settings: Settings, stdin: BinaryIO, stdout: BinaryIO) -> None:
        self._settings = settings
        self._in = stdin
        self._out = stdout
        self._hostname = hostname_of(settings)
        self._origin = origin_of(settings)
        # As sendmail completes the addresses on its command line; what SMTP clients may do is another question.
        self._lenient = replace(settings.lenient, without_domain=True)
        self._extended = False
        self._mail: Mail | None = None
        self._recipients: dict[str, Options] = {}

    def run(self) -> int:
        """Answers commands until QUIT or the end of the input; returns the exit status."""
        self._say(f"220 {self._hostname} ESMTP Waypost")
        while line := self._in.readline(LINE_BYTES_MAX):
            if not line.endswith(b"\n"):
                self._say("500 5.5.2 Line too long")
                while line and not line.endswith(b"\n"):
                    line = self._in.readline(LINE_BYTES_MAX)
                continue
            word, _, argument = line.rstrip(b"\r\n").partition(b" ")
            verb = word.decode("ascii", "replace").upper()
            if verb == "QUIT":
                self._say("221 2.0.0 Bye")
                break
            try:
                self._answer(verb, argument.strip())
            except _Disconnected:
                break
        return OK

    def _answer(self, verb: str, argument: bytes) -> None:
        if verb in ("EHLO", "HELO"):
            self._extended = verb == "EHLO"
        if verb == "EHLO":
            self._reset()
            offering = Offering(self._settings.receiver.message_size_limit, has_certificate=False, is_encrypted=False)
            *lines, last = self._hostname, *(row.offer(offering) for row in OFFERED)
            for line in lines:
                self._say(f"250-{line}")
            self._say(f"250 {last}")
        elif verb in ("HELO", "RSET", "NOOP"):
            if verb != "NOOP":
                self._reset()
            self._say(f"250 {self._hostname}" if verb == "HELO" else "250 2.0.0 Ok")
        elif verb == "MAIL":
            self._from(argument)
        elif verb == "RCPT":
            self._to(argument)
        elif verb == "DATA":
            self._data()
        else:
            self._say("252 2.0.0 Cannot VRFY user" if verb == "VRFY" else "500 5.5.2 Error: command not recognized")

    def _from(self, argument: bytes) -> None:
        if self._mail is not None:
            self._say("503 5.5.1 Error: nested MAIL command")
            return
        mail = parse_mail(argument, self._extended, MAIL_PARAMETERS)
        if isinstance(mail, ReplyOf):
            mail = parse_mail(argument, self._extended, MAIL_PARAMETERS, self._path)
        if isinstance(mail, ReplyOf):
            self._say(mail.reply.decode())
        elif mail.size_bytes > self._settings.receiver.message_size_limit:
            self._say("552 5.3.4 Message size exceeds fixed limit")
        else:
            self._mail = mail
            self._say("250 2.1.0 Ok")

    def _to(self, argument: bytes) -> None:
        if self._mail is None:
            self._say("503 5.5.1 Error: need MAIL command")
            return
        parameters = RCPT_PARAMETERS if self._extended else {}
        found = parse_rcpt(argument, self._mail.smtputf8, parameters)
        if isinstance(found, ReplyOf):
            found = parse_rcpt(argument, self._mail.smtputf8, parameters, self._path)
        if isinstance(found, ReplyOf):
            self._say(found.reply.decode())
        elif len(self._recipients) >= RECIPIENTS_MAX:
            self._say("452 4.5.3 Error: too many recipients")
        else:
            path, options = found
            self._recipients[qualified(path.address, self._origin)] = options  # <postmaster> has no domain
            self._say("250 2.1.5 Ok")

    def _path(self, text: str, at: int) -> tuple[Path, str] | None:
        return lenient_path(text, at, self._lenient, self._hostname)

    def _data(self) -> None:
        mail = self._mail
        if mail is None or not self._recipients:
            self._say("503 5.5.1 Error: need MAIL and RCPT commands")
            return
        self._say("354 End data with <CR><LF>.<CR><LF>")
        user, full_name = author()
        data = self._until_end()
        try:
            submission = Submission(
                sender=mail.sender,
                recipients=tuple(self._recipients),
                submitted_at=time.time(),
                user=user,
                full_name=full_name,
                options=mail.options,
                recipient_options=tuple(self._recipients.values()),
                smtputf8=mail.smtputf8,
            )
            write(self._settings, submission, data)
            reply = "250 2.0.0 Ok: queued in the maildrop"
        except Ended as error:
            for _ in data:
                pass  # the rest of the data is not a command
            reply = f"{'552 5.3.4' if error.status in (UNAVAILABLE, DATAERR) else '451 4.3.0'} {error}"
        self._reset()
        self._say(reply.encode("ascii", "backslashreplace").decode())

    def _until_end(self) -> Iterator[bytes]:
        """Yields the data without the dots that were added, up to the line that is a dot. Raises _Disconnected."""
        continued = False
        while line := self._in.readline(PIECE_BYTES):
            if not continued:
                if line in (b".\r\n", b".\n"):
                    return
                line = line.removeprefix(b".")
            continued = not line.endswith(b"\n")
            if line:
                yield line
        raise _Disconnected

    def _reset(self) -> None:
        self._mail, self._recipients = None, {}

    def _say(self, reply: str) -> None:
        self._out.write(f"{reply}\r\n".encode())
        self._out.flush()
