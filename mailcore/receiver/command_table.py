"""The table of SMTP commands: which command is allowed in which phase of a session, and the reply otherwise.

The form is that of h11's ``_state.py``: the rules are data, the session looks each command up here before it acts. A new
command is a row in ``TABLE`` and a method ``smtp_VERB`` of the session.

Laws
- Every command has exactly one entry for each phase: ``ALLOWED``, or the reply that refuses it there.
- The argument is checked before the phase.
- What a client must do first, STARTTLS or AUTH, is a table of its own: nothing is checked for each command (``Gate``).

Pure: knows neither the session nor mail.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["ALLOWED", "NOT_IMPLEMENTED", "TABLE", "Argument", "Gate", "Phase", "Rule", "table_of"]


class Phase(enum.IntEnum):
    """How far a session has come, between two commands (RFC 5321 4.1.4)."""

    CONNECTED = 0  # no HELO or EHLO yet, or STARTTLS since then
    GREETED = 1  # no mail transaction
    MAIL = 2  # a transaction without recipients
    REFUSED = 3  # a transaction of which every RCPT so far was refused
    RECIPIENT = 4  # a transaction with at least one recipient: DATA may follow
    CHUNKS = 5  # a transaction in which BDAT was accepted: only BDAT may follow


class Gate(enum.Enum):
    """Says what a client may do before it sends mail, by the settings of the listener and what it has done."""

    OPEN = enum.auto()  # nothing, and it cannot log in here
    LOGIN_OFFERED = enum.auto()  # nothing, but it may log in
    TLS_FIRST = enum.auto()
    LOGIN_FIRST = enum.auto()
    CLOSED = enum.auto()  # it may not send: a listener for our own networks, and it is in none of them


class Argument(enum.Enum):
    """Says whether an argument may follow the verb."""

    NONE = enum.auto()
    REQUIRED = enum.auto()
    ANY = enum.auto()  # nothing, or something that the command itself checks


class Rule(NamedTuple):
    """One command. ``replies`` is indexed by Phase: ``ALLOWED``, or the reply (without CRLF) that refuses the command."""

    argument: Argument
    syntax: bytes  # of the command, for the reply 501 to a wrong argument
    replies: tuple[bytes, bytes, bytes, bytes, bytes, bytes]
    is_junk: bool = False  # brings no mail nearer; too many count as errors (Postfix's smtpd_junk_command_limit)
    is_offered: bool = True  # named in the reply to HELP


ALLOWED = b""
_NEED_HELLO = b"503 5.5.1 Error: send HELO/EHLO first"
_NESTED = b"503 5.5.1 Error: nested MAIL command"
_NEED_MAIL = b"503 5.5.1 Error: need MAIL command"
_NEED_RCPT = b"503 5.5.1 Error: need RCPT command"
_NO_RECIPIENTS = b"554 5.5.1 Error: no valid recipients"
_NO_AUTH = b"503 5.5.1 Error: authentication not enabled"
_IN_TRANSACTION = b"503 5.5.1 Error: MAIL transaction in progress"
_TLS_FIRST = b"530 5.7.0 Must issue a STARTTLS command first"
_LOGIN_FIRST = b"530 5.7.0 Authentication required"
_CLOSED = b"554 5.7.1 Error: access denied: this address is for clients in our own networks"
_AFTER_BDAT = b"503 5.5.1 Error: BDAT must be followed by BDAT up to the last chunk, or RSET"
NOT_IMPLEMENTED = b"502 5.5.1 Error: command not implemented"

_ALWAYS = (ALLOWED,) * 6
_UNIMPLEMENTED = Rule(Argument.ANY, b"", (NOT_IMPLEMENTED,) * 6, is_offered=False)
# Before HELO as well, as in Postfix; the session refuses all hosts but those that are listed.
_NAMES_CLIENT = Rule(
    Argument.ANY,
    b"",
    (ALLOWED, ALLOWED, _IN_TRANSACTION, _IN_TRANSACTION, _IN_TRANSACTION, _IN_TRANSACTION),
    is_offered=False,
)
# Postfix's smtpd_forbidden_commands: a web page that talks to port 25, never a mail client.
_FORBIDDEN = Rule(Argument.ANY, b"", _ALWAYS, is_offered=False)

TABLE: dict[bytes, Rule] = {
    # phase:                                   CONNECTED    GREETED     MAIL        REFUSED         RECIPIENT  CHUNKS
    b"HELO": Rule(Argument.REQUIRED, b"HELO hostname", _ALWAYS, is_junk=True),
    b"EHLO": Rule(Argument.REQUIRED, b"EHLO hostname", _ALWAYS, is_junk=True),
    b"MAIL": Rule(Argument.ANY, b"", (_NEED_HELLO, ALLOWED, _NESTED, _NESTED, _NESTED, _NESTED)),
    b"RCPT": Rule(Argument.ANY, b"", (_NEED_MAIL, _NEED_MAIL, ALLOWED, ALLOWED, ALLOWED, _AFTER_BDAT)),
    b"DATA": Rule(Argument.NONE, b"DATA", (_NEED_MAIL, _NEED_MAIL, _NEED_RCPT, _NO_RECIPIENTS, ALLOWED, _AFTER_BDAT)),
    # Its argument is checked by the command: the octets that follow must be thrown away also when it is refused.
    b"BDAT": Rule(Argument.ANY, b"", (_NEED_MAIL, _NEED_MAIL, _NEED_RCPT, _NO_RECIPIENTS, ALLOWED, ALLOWED)),
    b"RSET": Rule(Argument.NONE, b"RSET", _ALWAYS, is_junk=True),
    b"NOOP": Rule(Argument.ANY, b"", _ALWAYS, is_junk=True),
    b"VRFY": Rule(Argument.REQUIRED, b"VRFY address", _ALWAYS, is_junk=True),
    b"HELP": Rule(Argument.ANY, b"", _ALWAYS, is_junk=True),
    b"QUIT": Rule(Argument.ANY, b"", _ALWAYS),  # with any argument: the client leaves
    b"STARTTLS": Rule(Argument.NONE, b"STARTTLS", _ALWAYS),
    b"AUTH": Rule(Argument.ANY, b"", (_NO_AUTH,) * 6, is_offered=False),
    b"XCLIENT": _NAMES_CLIENT,
    b"XFORWARD": _NAMES_CLIENT,
    b"ETRN": _UNIMPLEMENTED,
    b"EXPN": _UNIMPLEMENTED,
    b"SAML": _UNIMPLEMENTED,
    b"SEND": _UNIMPLEMENTED,
    b"SOML": _UNIMPLEMENTED,
    b"TURN": _UNIMPLEMENTED,
    b"CONNECT": _FORBIDDEN,
    b"GET": _FORBIDDEN,
    b"POST": _FORBIDDEN,
}

# RFC 3207 4: "other than NOOP, EHLO, STARTTLS, or QUIT"; HELO as in Postfix, whose clients see the 530 at MAIL then.
_BEFORE_TLS = (b"HELO", b"EHLO", b"NOOP", b"STARTTLS", b"QUIT", b"CONNECT", b"GET", b"POST")
_AUTH = Rule(
    Argument.REQUIRED,
    b"AUTH mechanism",
    (_NEED_HELLO, ALLOWED, _IN_TRANSACTION, _IN_TRANSACTION, _IN_TRANSACTION, _IN_TRANSACTION),
    is_offered=False,
)


def table_of(gate: Gate) -> dict[bytes, Rule]:
    """Returns the table of a session behind this gate."""
    if gate is Gate.OPEN:
        return TABLE
    if gate is Gate.TLS_FIRST:
        refused = (_TLS_FIRST,) * 6
        return {verb: rule if verb in _BEFORE_TLS else rule._replace(replies=refused) for verb, rule in TABLE.items()}
    table = dict(TABLE)
    if gate is not Gate.CLOSED:
        table[b"AUTH"] = _AUTH
    if gate is not Gate.LOGIN_OFFERED:
        refusal = _LOGIN_FIRST if gate is Gate.LOGIN_FIRST else _CLOSED
        hello, _, *nested = table[b"MAIL"].replies
        table[b"MAIL"] = table[b"MAIL"]._replace(replies=(hello, refusal, nested[0], nested[1], nested[2], nested[3]))
    return table
