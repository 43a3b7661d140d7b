"""The messages between a shard and the giver of shares: one in each direction for all destinations of the shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["NEVER", "Answer", "Ask", "Term", "Welcome", "Wish"]


class Term(NamedTuple):
    """Says which answer is meant: ``epoch`` of the giver, +1 with each election, and ``round`` of the question."""

    epoch: int
    round: int


NEVER = Term(0, 0)  # before the first answer


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Says how much of one destination's limit a shard has, and could use, in connections."""

    wanted: int  # those in use, and those for mail that waits
    in_use: int  # may be more than its share, which became smaller
    held: int = 0  # its share


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """shard -> giver, once a beat, and at once when there is mail for a new destination or a share is given back.

    ``applied`` names the last answer that the shard uses: it never goes back to one before it. ``is_final``: it uses no answer
    to an earlier question any more, and at most ``held``, until there is an answer to this question or a later one.
    """

    shard: str  # with the number of its start: after a restart it has another name
    epoch: int  # of the last giver that it knows
    round: int  # +1 with each question
    applied: Term
    is_final: bool
    wishes: Mapping[str, Wish]  # by destination; one without mail and connections is left out


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """giver -> shard: its shares, which hold for ``SHARE_S`` from before the question was sent."""

    term: Term
    shares: Mapping[str, int]  # by destination, connections; one that is left out has no share


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """giver -> shard: there is another giver; ask again, so that it knows what you hold since its election."""

    epoch: int
