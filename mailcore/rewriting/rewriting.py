"""Rewrites the envelope of a message before it is stored: the sender's canonical address, the recipients', and aliases.

As Postfix's cleanup(8): canonical addresses first, then copies (bcc), then aliases, whose results are looked up again. A
name that stands for itself ends there. The rewriting happens before the message is acknowledged, so what the queue holds
are the final recipients, and a crash can neither lose nor repeat it.

Laws
- Each final recipient is there once. A loop ends; an expansion beyond its bounds, or patterns beyond their time, refuse the
  message, which stays with the client (451).
- The address that the client gave stays in ORCPT (RFC 3461 5.2.7), so that a report names what the sender knows.

Keeps law: expansion-bounded (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mailcore.dsn_request import NOTIFY_NEVER, with_original
from mailcore.envelope import RECIPIENTS_PER_RECORD, Envelope, Recipient
from mailcore.rewriting.budget import Budget, PatternTooSlow
from mailcore.routing.address import comparable

if TYPE_CHECKING:  # it loads the library of regular expressions
    from mailcore.rewriting.address_map import AddressMap

__all__ = ["Bounds", "Maps", "Rewritten", "canonical", "rewrite"]

CANONICAL_STEPS_MAX = 10  # as Postfix


class Bounds(NamedTuple):
    """How far an expansion may go."""

    depth: int = 1_000
    of_one: int = 1_000  # results of one recipient
    of_all: int = 100_000  # recipients of a message


class Maps(NamedTuple):
    """The maps in the order in which they are asked; the first that has an address counts."""

    sender_canonical: Sequence[AddressMap] = ()
    recipient_canonical: Sequence[AddressMap] = ()
    aliases: Sequence[AddressMap] = ()
    bounds: Bounds = Bounds()
    always_bcc: str = ""
    sender_bcc: Sequence[AddressMap] = ()
    recipient_bcc: Sequence[AddressMap] = ()
    time_s: float = 0.5  # for all patterns and all addresses of a message


class Rewritten(NamedTuple):
    """The result. ``why`` says why the message must be refused for now; "" if it need not."""

    envelope: Envelope
    more: tuple[Recipient, ...]  # those beyond the envelope's record
    why: str = ""


def rewrite(
    maps: Maps, envelope: Envelope, more: Sequence[Recipient], clock: Callable[[], float] = time.monotonic
) -> Rewritten:
    """Returns the envelope with its final addresses. ``clock``: seconds."""
    budget = Budget(maps.time_s, clock)
    try:
        with budget:
            sender = canonical(maps.sender_canonical, envelope.sender, budget) if envelope.sender else ""
            given = [_moved(maps, recipient, budget) for recipient in (*envelope.recipients, *more)]
            final = _recipients(maps, [*given, *_copies(maps, sender, given, budget)], budget)
    except (PatternTooSlow, _TooMany) as error:
        return Rewritten(envelope, tuple(more), str(error))
    made = msgspec.structs.replace(
        envelope, sender=sender, recipients=final[:RECIPIENTS_PER_RECORD], recipient_count=len(final)
    )
    return Rewritten(made, final[RECIPIENTS_PER_RECORD:])


class _TooMany(Exception):
    """An expansion has no end, or too many results."""


def _recipients(maps: Maps, recipients: Iterable[Recipient], budget: Budget) -> tuple[Recipient, ...]:
    final: dict[str, Recipient] = {}
    for recipient in recipients:
        results = _expanded(maps, recipient.address, budget) if maps.aliases else (recipient.address,)
        for result in results:
            key = comparable(result)
            if key not in final:
                final[key] = _as(recipient, len(final), result)
        if len(final) > maps.bounds.of_all:
            raise _TooMany(f"the aliases make more than {maps.bounds.of_all} recipients of the message")
    return tuple(final.values())


def _moved(maps: Maps, recipient: Recipient, budget: Budget) -> Recipient:
    """Returns the recipient with its canonical address."""
    return _as(recipient, recipient.number, canonical(maps.recipient_canonical, recipient.address, budget))


def _copies(maps: Maps, sender: str, recipients: Sequence[Recipient], budget: Budget) -> list[Recipient]:
    """Returns who gets a copy without being named. Reports about copies go to no sender (RFC 3461 4.1)."""
    addresses = [maps.always_bcc] if maps.always_bcc else []
    if maps.sender_bcc and sender:
        addresses += _find(maps.sender_bcc, sender, budget) or ()
    if maps.recipient_bcc:
        for recipient in recipients:
            addresses += _find(maps.recipient_bcc, recipient.address, budget) or ()
    return [Recipient(-1, address, options=NOTIFY_NEVER) for address in dict.fromkeys(addresses)]


def canonical(maps: Sequence[AddressMap], address: str, budget: Budget | None = None) -> str:
    """Returns the canonical address. Raises PatternTooSlow."""
    for _ in range(CANONICAL_STEPS_MAX if maps else 0):
        found = _find(maps, address, budget)
        if found is None or len(found) != 1 or found[0] == address:
            break
        address = found[0]
    return address


def _expanded(maps: Maps, address: str, budget: Budget) -> list[str]:
    """Returns the final addresses of an alias. An address on its own way stands for itself."""
    results: list[str] = []
    waiting: list[tuple[str, frozenset[str]]] = [(address, frozenset())]
    steps = 0
    while waiting:
        name, above = waiting.pop()
        steps += 1
        if len(above) > maps.bounds.depth or steps > 2 * maps.bounds.of_one + maps.bounds.depth:
            raise _TooMany(f"the expansion of {address!a} goes too deep")
        key = comparable(name)
        found = None if key in above else _find(maps.aliases, name, budget)
        if found is None:
            results.append(name)
            if len(results) > maps.bounds.of_one:
                raise _TooMany(f"the alias {address!a} stands for more than {maps.bounds.of_one} addresses")
            continue
        below = above | {key}
        waiting += [(each, below) for each in reversed(found)]
    return results


def _find(maps: Sequence[AddressMap], address: str, budget: Budget | None) -> tuple[str, ...] | None:
    for each in maps:
        found = each.find(address, budget)
        if found is not None:
            return found
    return None


def _as(recipient: Recipient, number: int, address: str) -> Recipient:
    if address == recipient.address:
        return recipient if number == recipient.number else msgspec.structs.replace(recipient, number=number)
    options = with_original(recipient.options, recipient.address)
    return msgspec.structs.replace(recipient, number=number, address=address, options=options)
