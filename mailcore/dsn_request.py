"""The notices that a client asks for (RFC 3461): NOTIFY and ORCPT of a recipient, RET and ENVID of a message.

The values are kept in the options as the client gave them, because they go to the next hop unchanged (RFC 3461 5.2.1). Here
they are checked when they come in, and read when a report is made.

Laws
- NOTIFY=NEVER, and a NOTIFY without the word, means that no report of that kind is made; without NOTIFY, failures and delays
  are reported, and success is not.
- A value that passed its check has printable ASCII only, also decoded: it cannot begin a line or a field of a report.

Pure.

Keeps law: notify-is-kept (docs/laws.md).
"""

from __future__ import annotations

import re

from mailcore.envelope import Options, Status

__all__ = [
    "ENVID",
    "NOTIFY",
    "NOTIFY_NEVER",
    "ORCPT",
    "RET",
    "envelope_id",
    "is_envid",
    "is_notify",
    "is_orcpt",
    "is_ret",
    "original_address",
    "original_recipient",
    "parse_orcpt",
    "wants",
    "wants_headers_only",
    "wants_nothing",
    "with_original",
]

NOTIFY, ORCPT, RET, ENVID = "NOTIFY", "ORCPT", "RET", "ENVID"
NOTIFY_NEVER: Options = ((NOTIFY, "NEVER"),)  # with which a report itself is sent (RFC 3461 6.1)
ENVID_MAX = 100  # characters, RFC 3461 5.4
ORCPT_MAX = 500  # characters, RFC 3461 5.4
ORCPT_STORED_MAX = 1_000  # an address has 254 octets, and each character of two or more takes 6 to 10 of ASCII

_OF_STATUS = {  # the word of NOTIFY for a verdict
    Status.DELIVERED: "SUCCESS",
    Status.DEFERRED: "DELAY",
    Status.BOUNCED: "FAILURE",
    Status.EXPIRED: "FAILURE",
}
_WORDS = frozenset(_OF_STATUS.values())
_DEFAULT = frozenset({"FAILURE", "DELAY"})  # without NOTIFY; RFC 3461 4.1 leaves DELAY open, Postfix has it

_xtext = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2})+").fullmatch  # RFC 3461 4
_hexchar = re.compile(r"\+([0-9A-F]{2})")
_address_type = re.compile(r"[A-Za-z0-9!#$%&'*+\-/?^_`{|}~]+").fullmatch  # an atom, RFC 5322 3.2.3, without "="
_printable = re.compile(r"[ -~]+").fullmatch


def is_ret(value: str) -> bool:
    """Returns whether this is a value of RET (RFC 3461 4.3)."""
    return value.upper() in ("FULL", "HDRS")


def is_envid(value: str) -> bool:
    """Returns whether this is a value of ENVID (RFC 3461 4.4)."""
    return len(value) <= ENVID_MAX and _is_text(value)


def is_notify(value: str) -> bool:
    """Returns whether this is a value of NOTIFY (RFC 3461 4.1): NEVER alone, or a list of the other words."""
    words = value.upper().split(",")
    return words == ["NEVER"] or _WORDS.issuperset(words)


def is_orcpt(value: str) -> bool:
    """Returns whether this is a value of ORCPT (RFC 3461 4.2): the type of the address, ";", and the address as xtext."""
    kind, _, address = value.partition(";")
    return len(value) <= ORCPT_MAX and _address_type(kind) is not None and _is_text(address)


def parse_orcpt(value: str) -> str | None:
    """Returns the value of ORCPT as it is kept, in ASCII; None if it is none.

    An address of the type utf-8 may be written in UTF-8 in a transaction with SMTPUTF8 (utf-8-addr-unitext, RFC 6533 3). It is
    kept as utf-8-addr-xtext, which is right for every next hop: each other character as its number, \\x{F6}.
    """
    if value.isascii():
        return value if is_orcpt(value) else None
    kind, _, address = value.partition(";")
    if kind.lower() != "utf-8" or len(value) > ORCPT_MAX or not address.isprintable():
        return None
    stored = f"{kind};" + "".join(c if c.isascii() else f"\\x{{{ord(c):X}}}" for c in address)
    return stored if len(stored) <= ORCPT_STORED_MAX and _is_text(stored.partition(";")[2]) else None


def wants(options: Options, status: Status) -> bool:
    """Returns whether the sender is to hear of this verdict. ``options``: of the recipient."""
    word = _OF_STATUS.get(status, "")
    if not options:
        return word in _DEFAULT
    value = _value(options, NOTIFY)
    return word in (_DEFAULT if value is None else value.upper().split(","))


def wants_nothing(options: Options) -> bool:
    """Returns whether the sender said NOTIFY=NEVER. ``options``: of the recipient."""
    return (_value(options, NOTIFY) or "").upper() == "NEVER"


def wants_headers_only(options: Options) -> bool:
    """Returns whether a report about the message must not contain its body. ``options``: of the message."""
    return (_value(options, RET) or "").upper() == "HDRS"


def envelope_id(options: Options) -> str:
    """Returns what ENVID says, decoded; "" without one. ``options``: of the message."""
    return _decoded(_value(options, ENVID) or "")


def original_recipient(options: Options) -> str:
    """Returns type and address as Original-Recipient has them, "rfc822;user@example.org"; "" without ORCPT."""
    kind, semicolon, address = (_value(options, ORCPT) or "").partition(";")
    return f"{kind}{semicolon}{_decoded(address)}"


def original_address(options: Options, address: str) -> str:
    """Returns the address that became ``address`` by an alias, by ORCPT; "" if it is the same, or not known."""
    kind, _, original = original_recipient(options).partition(";")
    return original if kind.lower() == "rfc822" and original.lower() != address.lower() else ""


def with_original(options: Options, address: str) -> Options:
    """Returns the parameters of RCPT with ORCPT; an address beyond ASCII is left out, as RFC 3461 has no form for it."""
    if not address.isascii() or any(keyword == ORCPT for keyword, _ in options):
        return options
    xtext = "".join(c if "!" <= c <= "~" and c not in "+=" else f"+{ord(c):02X}" for c in address)
    return (*options, (ORCPT, f"rfc822;{xtext}"))


def _value(options: Options, keyword: str) -> str | None:
    return next((value for name, value in options if name == keyword), None)


def _is_text(value: str) -> bool:
    return _xtext(value) is not None and _printable(_decoded(value)) is not None


def _decoded(value: str) -> str:
    return _hexchar.sub(lambda match: chr(int(match[1], 16)), value)
