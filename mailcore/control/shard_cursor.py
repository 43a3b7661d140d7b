"""A cursor of several shards: a prefix, and as JSON that of each. The cursor of a queue that is alone has no such prefix.

A program that follows the events keeps its cursor while shards come and go: each of both is understood by the other. Such a
cursor also has the shard that is asked first (``next``), or that alone is asked (``from``): an answer has events of one shard.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

__all__ = ["PREFIX", "Turn", "part_of", "read", "turn_in", "written"]

PREFIX = "shards:"
_NEXT, _FROM = "next", "from"


class Turn(NamedTuple):
    """Says which shard is asked for events first; ``alone``: no other is asked."""

    shard: int
    alone: bool = False


def written(cursors: dict[int, Any], turn: Turn | None = None) -> str:
    """Returns the text of a cursor."""
    parts = {str(number): each for number, each in cursors.items()}
    if turn is not None:
        parts[_FROM if turn.alone else _NEXT] = turn.shard
    return PREFIX + json.dumps(parts, separators=(",", ":"))


def turn_in(text: str) -> Turn | None:
    """Returns whose turn it is after a cursor; None if it does not say. Raises ValueError."""
    given = _parts(text) if text.startswith(PREFIX) else {}
    for key in (_FROM, _NEXT):
        if key in given:
            return Turn(int(given[key]), alone=key == _FROM)
    return None


def read(text: str) -> dict[int, Any]:
    """Returns the cursor of each shard in a text that begins with PREFIX. Raises ValueError."""
    return {int(number): each for number, each in _parts(text).items() if number not in (_NEXT, _FROM)}


def part_of(text: str, shard: int, beginning: str) -> str:
    """Returns the cursor of one shard in one of several, ``beginning`` if it has no part in it; another text as it is."""
    if not text.startswith(PREFIX):
        return text
    try:
        return str(read(text).get(shard) or beginning)
    except ValueError:
        return text


def _parts(text: str) -> dict[str, Any]:
    given = json.loads(text.removeprefix(PREFIX))
    if not isinstance(given, dict):
        raise ValueError("a cursor of shards is a JSON object")
    return given
