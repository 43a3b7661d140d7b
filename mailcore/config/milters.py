"""[[milter]], and the lists of milters in [receiver] and [[listener]]: the programs that check mail while it is received."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mailcore.bounds import BadValue, bad, choice, number, shown, text, texts

__all__ = [
    "LISTS",
    "MILTERS_MAX",
    "Milter",
    "MilterUse",
    "list_of_milters",
    "milter_address",
    "milter_faults",
    "milters_of",
]

LISTS = ("milters", "non_smtpd_milters")  # of [receiver]
MILTERS_MAX = 16  # each is a connection for every session
MACRO_CHARACTERS_MAX = 255
PATH_BYTES_MAX = 107  # unix(7)
_INET = re.compile(r"inet:([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([0-9]{1,5})")
_FORMS = 'must be "inet:HOST:PORT" or "unix:/PATH", such as "inet:127.0.0.1:11332"'


def milter_address(given: str) -> str:
    """Returns the address of a milter. Raises BadValue."""
    if given.startswith("unix:/") and len(given.encode()) - len("unix:") <= PATH_BYTES_MAX and "\0" not in given:
        return given
    match = _INET.fullmatch(given)
    if match is None or not 0 < int(match[2]) < 65_536:
        raise bad(given, _FORMS)
    return given


def macro_value(given: str) -> str:
    """Returns the value of a macro. Raises BadValue."""
    if len(given) > MACRO_CHARACTERS_MAX or not given.isascii() or not given.isprintable():
        raise bad(given, f"must be at most {MACRO_CHARACTERS_MAX} printable ASCII characters")
    return given


def few_and_different(given: Sequence[str]) -> None:
    """Raises BadValue for a list that has a milter twice, or too many."""
    for each in given:
        if given.count(each) > 1:
            raise BadValue("", each, f"must not have a value twice (got {shown(each)} twice)")
    if len(given) > MILTERS_MAX:
        raise BadValue("", given, f"must have at most {MILTERS_MAX} values (got {len(given)})")


def list_of_milters(doc: str) -> tuple[str, ...]:
    """Defines a field that is a list of milters."""
    field: tuple[str, ...] = texts((), doc, milter_address, few_and_different)
    return field


@dataclass(frozen=True, kw_only=True)
class MilterUse:
    """The settings of [receiver] that name the milters."""

    milters: tuple[str, ...] = list_of_milters(
        'programs that check and change mail while it is received, in this order: "inet:HOST:PORT" or "unix:/PATH"'
    )
    non_smtpd_milters: tuple[str, ...] = list_of_milters(
        "milters for mail that does not come over SMTP, as Postfix's non_smtpd_milters: that of waypost-sendmail, of "
        "`waypost inject` and of the portal, not bounces"
    )


@dataclass(frozen=True, kw_only=True)
class Milter:
    """[[milter]]: how a milter is used that a list of `milters` names. A milter without such a section has these defaults."""

    address: str = text("", "the milter, as in `milters`", milter_address)
    default_action: str = choice(
        "tempfail",
        ("tempfail", "accept", "reject", "quarantine"),
        "reply to mail while the milter cannot be reached, is late, or breaks the protocol, as Postfix's "
        "milter_default_action: 451, none, 550; quarantine: mail is accepted and held",
    )
    connect_timeout_s: float = number(
        30, 0.1, 3600, "seconds", "time to connect and negotiate, as Postfix's milter_connect_timeout"
    )
    command_timeout_s: float = number(
        30, 0.1, 3600, "seconds", "time for the answer to a command, as Postfix's milter_command_timeout"
    )
    content_timeout_s: float = number(
        300, 0.1, 3600, "seconds", "time for the answer to each part of a message, as Postfix's milter_content_timeout"
    )
    message_timeout_s: float = number(
        600,
        0.1,
        86_400,
        "seconds",
        "time for all answers about one message together, also of a milter that asks for more time (SMFIR_PROGRESS); at "
        "least the other time-outs of one answer; Postfix has no such limit",
    )


def milters_of(addresses: Sequence[str], sections: Sequence[Milter]) -> tuple[Milter, ...]:
    """Returns the milters of a list, each with its settings."""
    known: Mapping[str, Milter] = {each.address: each for each in sections}
    return tuple(known.get(address) or Milter(address=address) for address in addresses)


def milter_faults(sections: Sequence[Milter], used: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yields number, key and reason of each section that names no milter, one that is not used, or one a second time."""
    taken: set[str] = set()
    for place, each in enumerate(sections):
        if not each.address:
            yield place, "address", "must be set, as in the list of milters"
        elif each.address in taken:
            yield place, "address", f"must be another one; {each.address} has a section already"
        elif each.address not in used:
            yield place, "address", f"must be in a list of milters; {each.address} is in none"
        taken.add(each.address)
