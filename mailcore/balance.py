"""The balance equation: mail queued at the start + mail that came in = mail that left + mail still queued.

The manager checks it while it runs, the portal shows it for today, a report proves it for a day. Only this file defines the
terms, signs and labels. It imports no file of ours, so that every room can import it, and so can the report pipeline, which
knows only the columns of events.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TERMS", "Scope", "Term", "difference", "ends", "equation", "terms"]


class Scope(enum.Enum):
    """Names what a balance counts, and over which time."""

    RECIPIENTS = "recipients"  # live: since the manager started
    MESSAGES = "messages"  # live: since the manager started
    REPORT = "report"  # recipients, from events, between two counts of the queue


@dataclass(frozen=True)
class Term:
    """Describes one addend of the balance equation."""

    name: str  # the key in answers of the control socket, in report.json and in samples
    sign: int  # +1: mail that was queued or came in; -1: mail that left or is still queued
    label: str
    scopes: frozenset[Scope]


_ALL = frozenset(Scope)
_LIVE = frozenset({Scope.RECIPIENTS, Scope.MESSAGES})
_BY_RECIPIENT = frozenset({Scope.RECIPIENTS, Scope.REPORT})  # one message may be delivered, bounced and expired at once
_REPORT = frozenset({Scope.REPORT})

TERMS = (
    Term("queued_at_start", +1, "queued at the start", _ALL),
    Term("accepted", +1, "accepted", _ALL),
    # In events a recipient counts as deleted only once the deletion can no longer be undone, so a report has no such term.
    Term("undeleted", +1, "undeleted", _LIVE),
    Term("delivered", -1, "delivered", _BY_RECIPIENT),
    Term("bounced", -1, "bounced", _BY_RECIPIENT),
    # Bounced by an operator, or because no route exists. The live counters have both in bounced.
    Term("returned", -1, "returned without attempt", _REPORT),
    Term("expired", -1, "expired", _BY_RECIPIENT),
    Term("finished", -1, "finished", frozenset({Scope.MESSAGES})),
    Term("deleted", -1, "deleted", _ALL),
    # Their envelopes cannot be read any more, so they have no ID by which a report could name them: there they are missing.
    Term("lost", -1, "lost to damage", _LIVE),
    Term("queued", -1, "still queued", _LIVE),
    Term("queued_at_end", -1, "queued at the end", _REPORT),
)
_QUEUED = frozenset({"queued_at_start", "queued", "queued_at_end"})  # counted in the queue, not as events happen


def terms(scope: Scope) -> list[Term]:
    """Returns the terms of a balance, the positive ones first."""
    return [term for term in TERMS if scope in term.scopes]


def ends(scope: Scope) -> list[str]:
    """Returns the names of the terms by which mail leaves."""
    return [term.name for term in terms(scope) if term.sign < 0 and term.name not in _QUEUED]


def difference(scope: Scope, amounts: Mapping[str, int]) -> int:
    """Returns the positive terms minus the negative ones: 0 if it balances, above 0 if mail disappeared.

    Raises KeyError when ``amounts`` lacks a term.
    """
    return sum(term.sign * amounts[term.name] for term in terms(scope))


def equation(scope: Scope) -> str:
    """Returns the equation in words, "queued at the start + accepted = delivered + …"."""
    sides = [" + ".join(term.label for term in terms(scope) if term.sign == sign) for sign in (+1, -1)]
    return " = ".join(sides)
