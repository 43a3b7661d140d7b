"""The ESMTP extensions, a row each: what a server offers, which parameters it takes, and what goes to the next hop.

A row says all that the wire needs: the keyword in the reply to EHLO, the parameters of MAIL and RCPT with their parsers,
and what happens when the next hop does not offer the keyword. A parameter's value is kept in ``Envelope.options`` or
``Recipient.options`` and comes along through the queue to the deliverer, the bounce and the events. A new extension is a
row here, and beside it only the code for what it does.

Laws
- This is the only place that knows keywords and parameters; mailcore.dsn_request says what the values of DSN mean, and
  mailcore.timed_request and mailcore.request_priority those of FUTURERELEASE, DELIVERBY and MT-PRIORITY.
- A parser returns printable ASCII without a space, or a reply that refuses: the value is written to the next hop as it is.

Pure: no I/O, no settings; the clock is an argument.

Keeps law: auth-only-under-tls (docs/laws.md).
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mailcore.dsn_request import ENVID, NOTIFY, ORCPT, RET, is_envid, is_notify, is_ret, parse_orcpt
from mailcore.envelope import Options
from mailcore.request_priority import MT_PRIORITY, parse_priority
from mailcore.timed_request import BY, HOLDFOR, HOLDUNTIL, parse_by, parse_hold_for, parse_hold_until, written_by

__all__ = [
    "BINARY",
    "EXTENSIONS",
    "REQUIRETLS",
    "Extension",
    "Offering",
    "Outgoing",
    "OutgoingTable",
    "Parameter",
    "ReplyOf",
    "Value",
    "without_binary",
]

SIZE_DIGITS_MAX = 20  # RFC 1870 3
AUTH_OCTETS_MAX = 500  # RFC 4954 3 (6)
BINARY = ("BODY", "BINARYMIME")  # the option of a message with any octets in it (RFC 3030)
REQUIRETLS = "REQUIRETLS"  # the option of a message that must not leave in the clear (RFC 8689)
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})+")  # RFC 3461 4


class ReplyOf(NamedTuple):
    """The reply (without CRLF) that refuses a parameter."""

    reply: bytes


class Offering(NamedTuple):
    """Holds the properties of a server and a connection that decide which extensions are offered."""

    message_size_limit: int  # bytes
    has_certificate: bool
    is_encrypted: bool
    mechanisms: str = ""  # of AUTH, separated by spaces; "": clients cannot log in
    recipient_limit: int = 1000  # recipients of a transaction
    hold_max_s: int = 0  # how long a message may be held for a client; 0: not at all
    deliver_by_min_s: int = 60
    now: float = 0.0  # wall clock


class Outgoing(Protocol):
    """Describes a message on its way to a next hop: ``mailcore.frames.Deliver``."""

    @property
    def sender(self) -> str:
        """Returns the return path; "" for a bounce."""

    @property
    def recipients(self) -> tuple[tuple[int, str], ...]:
        """Returns number and address of each recipient."""

    @property
    def length(self) -> int:
        """Returns the size of the data in bytes."""

    @property
    def eight_bit(self) -> bool:
        """Returns whether the client sent BODY=8BITMIME."""

    @property
    def smtputf8(self) -> bool:
        """Returns whether the client sent SMTPUTF8."""


Value = str | int | float | bool


class Parameter(NamedTuple):
    """A parameter of MAIL or RCPT.

    ``parse`` gets the text after the "=", or None without one, and returns the value to keep: text for the options ("" for a
    parameter without value), or the value of ``field`` of ``Mail`` if the parameter has a field of its own there.
    """

    keyword: str  # in upper case
    parse: Callable[[str | None], Value | ReplyOf]
    field: str = ""  # "size_bytes", "eight_bit", "smtputf8" or "submitter"; "": the value is kept in the options
    # Whether the session must act on it: the value then goes into ``Mail.requests``, and what follows from it is up to
    # mailcore.receiver.requests.
    is_request: bool = False
    takes_utf8: bool = (
        False  # whether the value may be beyond ASCII in a transaction with SMTPUTF8; ``parse`` makes it ASCII
    )
    written: Callable[[str, float], str] | None = None  # makes the value for a next hop out of the one kept, now


class Extension(NamedTuple):
    """One extension. ``keyword`` is its name in EHLO, in upper case."""

    keyword: str
    offer: Callable[[Offering], str | None]  # its line in the reply to EHLO; None: not offered now
    mail: tuple[Parameter, ...] = ()
    rcpt: tuple[Parameter, ...] = ()
    mail_unoffered: tuple[Parameter, ...] = ()  # of MAIL, accepted where the keyword is not offered
    # The enhanced status code with which mail bounces that needs the extension where the next hop does not offer it. "":
    # the mail is sent without the parameters.
    missing_dsn: str = ""
    # Of an extension with ``missing_dsn``: whether a message with this value needs it; None: with any value.
    needed_for: Callable[[str], bool] | None = None
    needs: tuple[str, ...] = ()  # of an extension with ``missing_dsn``: parameters of another row that need it
    # Of an extension with a field of its own: what to send with MAIL (b"" or " PARAMETER"), and whether a message or an
    # address needs the extension. The second argument of ``needed`` returns the header section.
    argument: Callable[[Outgoing], bytes] | None = None
    needed: Callable[[Outgoing, Callable[[], bytes]], bool] | None = None
    needed_by: Callable[[str], bool] | None = None


_BAD_PARAMETER = ReplyOf(b"501 5.5.4 Bad parameter syntax")


def _size(value: str | None) -> int | ReplyOf:
    """Parses the value of SIZE (RFC 1870 3)."""
    if value is None or not value.isdecimal() or len(value) > SIZE_DIGITS_MAX:
        return _BAD_PARAMETER
    return int(value)


def _body(value: str | None) -> bool | str | ReplyOf:
    """Parses the value of BODY; returns whether it is 8BITMIME (RFC 6152 3), or "BINARYMIME" (RFC 3030 3)."""
    kind = value.upper() if value is not None else ""
    if kind == BINARY[1]:
        return kind
    return kind == "8BITMIME" if kind in ("7BIT", "8BITMIME") else ReplyOf(b"501 5.5.4 BODY is 7BIT or 8BITMIME")


def without_binary(parameter: Parameter) -> Parameter:
    """Returns the parameter of MAIL as it is without BINARYMIME, which needs BDAT (RFC 3030 3)."""

    def parse(value: str | None) -> Value | ReplyOf:
        found = parameter.parse(value)
        return ReplyOf(b"555 5.5.4 Unsupported option") if found == BINARY[1] else found

    return parameter._replace(parse=parse) if parameter.keyword == BINARY[0] else parameter


def _flag(value: str | None) -> bool | ReplyOf:
    """Parses a parameter that has no value."""
    return True if value is None else _BAD_PARAMETER


def _without_value(value: str | None) -> str | ReplyOf:
    """Parses a parameter that has no value and is kept in the options."""
    return "" if value is None else _BAD_PARAMETER


def _submitter(value: str | None) -> str | ReplyOf:
    """Parses the value of AUTH, "<>" or an address as xtext (RFC 4954 5, RFC 3461 4)."""
    if value is None or len(value) > AUTH_OCTETS_MAX or _XTEXT.fullmatch(value) is None:
        return _BAD_PARAMETER
    return value


def _no_submitter(value: str | None) -> str | ReplyOf:
    """Parses the value of AUTH where no client can log in: "<>" claims nothing and is accepted, an address is not."""
    return value if value == "<>" else ReplyOf(b"503 5.5.4 Error: authentication disabled")


def _of(kind: str, parse: Callable[[str], Value | None]) -> Callable[[str | None], Value | ReplyOf]:
    """Returns a parser for a value that must be there; ``parse`` returns None for a wrong one."""
    refusal = ReplyOf(b"501 5.5.4 Bad %s parameter syntax" % kind.encode())

    def parsed(value: str | None) -> Value | ReplyOf:
        found = parse(value) if value is not None else None
        return refusal if found is None else found

    return parsed


def _by(value: str) -> str | None:
    found = parse_by(value)
    return None if found is None else f"{found[0]};{found[1]}"


def _future_release(offering: Offering) -> str | None:
    """Returns the line of FUTURERELEASE: the longest time, and the last moment (RFC 4865 4)."""
    if not offering.hold_max_s:
        return None
    last = datetime.datetime.fromtimestamp(offering.now + offering.hold_max_s, datetime.UTC)
    return f"FUTURERELEASE {offering.hold_max_s} {last:%Y-%m-%dT%H:%M:%SZ}"


def _text(kind: str, is_valid: Callable[[str], bool]) -> Callable[[str | None], str | ReplyOf]:
    """Returns a parser that keeps a value as the client gave it, as RFC 3461 5.2.1 demands."""
    refusal = ReplyOf(b"501 5.5.4 Bad %s parameter syntax" % kind.encode())
    return lambda value: value if value is not None and is_valid(value) else refusal


def _always(keyword: str) -> Callable[[Offering], str]:
    return lambda offering: keyword


def _is_binary(body: str) -> bool:
    return body == BINARY[1]


def _sends_utf8(mail: Outgoing) -> bool:
    return mail.smtputf8 or not mail.sender.isascii() or not all(address.isascii() for _, address in mail.recipients)


def _needs_utf8(mail: Outgoing, header: Callable[[], bytes]) -> bool:
    """Returns whether the mail needs SMTPUTF8 (RFC 6531 3.2): because of its sender, or of a header section that is not
    ASCII (RFC 6532)."""
    return not mail.sender.isascii() or (mail.smtputf8 and not header().isascii())


EXTENSIONS: tuple[Extension, ...] = (  # in the order of the reply to EHLO
    Extension("PIPELINING", _always("PIPELINING")),  # RFC 2920
    Extension(  # RFC 1870
        "SIZE",
        lambda offering: f"SIZE {offering.message_size_limit}",
        mail=(Parameter("SIZE", _size, "size_bytes"),),
        argument=lambda mail: b" SIZE=%d" % mail.length,
    ),
    Extension(  # RFC 3207
        "STARTTLS",
        lambda offering: "STARTTLS" if offering.has_certificate and not offering.is_encrypted else None,
    ),
    Extension("ENHANCEDSTATUSCODES", _always("ENHANCEDSTATUSCODES")),  # RFC 2034
    Extension(  # RFC 6152; mailcore.deliverer.conversion says what becomes of 8-bit data without it (decision 0045)
        "8BITMIME",
        _always("8BITMIME"),
        mail=(Parameter("BODY", _body, "eight_bit"),),
        argument=lambda mail: b" BODY=8BITMIME" if mail.eight_bit else b"",
    ),
    Extension(  # RFC 3461; where it is not offered, the notices are ours to send (``OutgoingTable.notices_are_ours``)
        "DSN",
        _always("DSN"),
        mail=(Parameter(RET, _text(RET, is_ret)), Parameter(ENVID, _text(ENVID, is_envid))),
        rcpt=(
            Parameter(NOTIFY, _text(NOTIFY, is_notify)),
            Parameter(ORCPT, _of(ORCPT, parse_orcpt), takes_utf8=True),
        ),
    ),
    Extension(  # RFC 6531
        "SMTPUTF8",
        _always("SMTPUTF8"),
        mail=(Parameter("SMTPUTF8", _flag, "smtputf8"),),
        missing_dsn="5.6.7",
        argument=lambda mail: b" SMTPUTF8" if _sends_utf8(mail) else b"",
        needed=_needs_utf8,
        needed_by=lambda address: not address.isascii(),
    ),
    Extension(  # RFC 8689; mailcore.deliverer.require_tls says what it demands of a connection
        REQUIRETLS,
        lambda offering: REQUIRETLS if offering.is_encrypted else None,
        mail=(Parameter(REQUIRETLS, _without_value),),
        missing_dsn="5.7.30",
    ),
    Extension(  # RFC 4954; the parameter is not passed on: a server that trusts no client treats it as AUTH=<> (RFC 4954 5)
        "AUTH",
        lambda offering: f"AUTH {offering.mechanisms}" if offering.mechanisms and offering.is_encrypted else None,
        mail=(Parameter("AUTH", _submitter, "submitter"),),
        mail_unoffered=(Parameter("AUTH", _no_submitter, "submitter"),),
    ),
    Extension(  # RFC 4865; we hold the message, so the next hop must not hold it again
        "FUTURERELEASE",
        _future_release,
        mail=(
            Parameter(HOLDFOR, _of(HOLDFOR, parse_hold_for), is_request=True),
            Parameter(HOLDUNTIL, _of(HOLDUNTIL, parse_hold_until), is_request=True),
        ),
    ),
    Extension(  # RFC 2852; mail that is to be returned in time must not go where it would not be
        "DELIVERBY",
        lambda offering: f"DELIVERBY {offering.deliver_by_min_s}",
        mail=(Parameter(BY, _of(BY, _by), is_request=True, written=written_by),),
        missing_dsn="5.3.3",
        needed_for=lambda stored: ";R" in stored,
    ),
    Extension(  # RFC 6710; where it is not offered, the mail is sent without
        "MT-PRIORITY",
        _always("MT-PRIORITY"),
        mail=(Parameter(MT_PRIORITY, _of(MT_PRIORITY, parse_priority), is_request=True),),
    ),
    # RFC 3030; BINARYMIME needs both, which DATA cannot carry; mailcore.deliverer.chunks sends chunks
    Extension("CHUNKING", _always("CHUNKING"), missing_dsn="5.6.1", needs=("BODY",), needed_for=_is_binary),
    Extension("BINARYMIME", _always("BINARYMIME"), missing_dsn="5.6.1", needs=("BODY",), needed_for=_is_binary),
    # RFC 9422; what a next hop announces is read by mailcore.deliverer.server_limits
    Extension("LIMITS", lambda offering: f"LIMITS RCPTMAX={offering.recipient_limit}"),
    Extension("HELP", _always("HELP")),
)


class OutgoingTable:
    """Says what a message needs from one next hop and what is sent with it; what the next hop offers is known since EHLO.

    ``features`` are its keywords in lower case, as EHLO is parsed. An option of which no row knows (its row was removed since
    the message came) is not sent.
    """

    def __init__(
        self, extensions: Sequence[Extension], features: Mapping[str, str], clock: Callable[[], float] = time.time
    ) -> None:
        offered = [row for row in extensions if row.keyword.lower() in features]
        lacking = [row for row in extensions if row.keyword.lower() not in features]
        self._arguments = [row.argument for row in offered if row.argument is not None]
        self._mail_offered = {parameter.keyword: parameter for row in offered for parameter in row.mail}
        self._rcpt_offered = {parameter.keyword: parameter for row in offered for parameter in row.rcpt}
        self._clock = clock
        self._needed = [(row, row.needed) for row in lacking if row.needed is not None]
        self._needed_by = [(row, row.needed_by) for row in lacking if row.needed_by is not None]
        self._mail_lacking = {parameter.keyword: row for row in lacking if row.missing_dsn for parameter in row.mail}
        self._mail_lacking |= {keyword: row for row in lacking for keyword in row.needs}
        self._rcpt_lacking = {parameter.keyword: row for row in lacking if row.missing_dsn for parameter in row.rcpt}
        # Whether this next hop reports no success to senders that asked for it, so that it is up to us.
        self.notices_are_ours = NOTIFY not in self._rcpt_offered
        # Whether an address may need an extension that this next hop does not offer; then ask ``missing_for`` for each.
        self.lacks_some = bool(self._needed_by)
        self.returns_in_time = BY in self._mail_offered  # and notifies of a delay

    def missing(self, mail: Outgoing, options: Options, header: Callable[[], bytes]) -> Extension | None:
        """Returns the extension that the message needs and this next hop does not offer; None if none is missing."""
        for row, needed in self._needed:
            if needed(mail, header):
                return row
        return _first_of(self._mail_lacking, options) if options else None

    def missing_for(self, address: str, options: Options) -> Extension | None:
        """Returns the extension that this recipient needs and the next hop does not offer; None if none is missing."""
        for row, needed_by in self._needed_by:
            if needed_by(address):
                return row
        return _first_of(self._rcpt_lacking, options) if options else None

    def mail_arguments(self, mail: Outgoing, options: Options) -> bytes:
        """Returns the parameters of MAIL, each with a space before it."""
        line = b""
        for argument in self._arguments:
            line += argument(mail)
        return line + self._written(self._mail_offered, options) if options else line

    def rcpt_arguments(self, options: Options) -> bytes:
        """Returns the parameters of RCPT, each with a space before it."""
        return self._written(self._rcpt_offered, options) if options else b""

    def _written(self, offered: dict[str, Parameter], options: Options) -> bytes:
        line = ""
        for keyword, value in options:
            parameter = offered.get(keyword)
            if parameter is not None:
                text = value if parameter.written is None else parameter.written(value, self._clock())
                line += f" {keyword}={text}" if text else f" {keyword}"
        return line.encode("ascii")


def _first_of(lacking: dict[str, Extension], options: Options) -> Extension | None:
    for keyword, value in options:
        row = lacking.get(keyword)
        if row is not None and (row.needed_for is None or row.needed_for(value)):
            return row
    return None
