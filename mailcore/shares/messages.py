"""The messages between a shard and the giver of shares: one in each direction for all destinations of the shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["NEVER", "PARTS", "Answer", "Ask", "Dead", "Term", "Welcome", "Wish", "rate_of"]

PARTS = 5040  # of a rate: it is divided by up to ten shards without a rest


class Term(NamedTuple):
    """Says which answer is meant: ``epoch`` of the giver, +1 with each election, and ``round`` of the question."""

    epoch: int
    round: int


NEVER = Term(0, 0)  # before the first answer


def rate_of(destination: str) -> str:
    """Returns the name under which the rate of a destination is divided: as a limit of ``PARTS`` that are never in use."""
    return f"rate {destination}"


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """Says how much of one destination's limit a shard has, and could use, in connections."""

    wanted: int  # those in use, and those for mail that waits
    in_use: int  # may be more than its share, which became smaller
    held: int = 0  # its share


class Dead(msgspec.Struct, frozen=True, array_like=True):
    """Says that a destination is dead. It is a time from now on: no clock is compared with another."""

    left_s: float
    reason: str  # text of the site's last failure


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=1):
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
    dead: Mapping[str, Dead] = {}  # by destination, those that this shard itself found dead
    alive: tuple[str, ...] = ()  # destinations of which this shard knows better, after it had heard that they are dead


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """giver -> shard: its shares, which hold for ``SHARE_S`` from before the question was sent."""

    term: Term
    shares: Mapping[str, int]  # by destination, connections; one that is left out has no share
    sought: tuple[str, ...] = ()  # destinations of which another shard wants more than it has
    dead: Mapping[str, Dead] = {}  # by destination, of those that the question names: any shard found them dead


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """giver -> shard: there is another giver; ask again, so that it knows what you hold since its election."""

    epoch: int
