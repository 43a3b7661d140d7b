"""A cursor of several shards: a prefix, and as JSON that of each. The cursor of a queue that is alone has no such prefix.

A program that follows the events keeps its cursor while shards come and go: each of both is understood by the other. Such a
cursor also has the shard that is asked first (``next``), or that alone is asked (``from``): an answer has events of one shard.

In a cursor of a list a shard has its number at this node. In one of events, which a program uses at other nodes, too, it has
the number that the database lent it, behind ``n``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from mailcore.config.known_shards import KnownShard

__all__ = ["PREFIX", "Turn", "key_of", "parts_in", "read", "turn_in", "written", "written_parts"]

PREFIX = "shards:"
_NEXT, _FROM = "next", "from"


class Turn(NamedTuple):
    """Says by its key which shard is asked for events first; ``alone``: no other is asked."""

    key: str
    alone: bool = False


def key_of(shard: KnownShard) -> str:
    """Returns what stands for a shard in a cursor of events, at each node."""
    return str(shard.number) if shard.in_ids < 0 else f"n{shard.in_ids}"


def written(cursors: Mapping[int, Any]) -> str:
    """Returns the text of a cursor."""
    return _text({str(number): each for number, each in cursors.items()})


def written_parts(parts: Mapping[str, str], turn: Turn) -> str:
    """Returns the text of a cursor of events."""
    return _text({**parts, _FROM if turn.alone else _NEXT: turn.key})


def turn_in(text: str) -> Turn | None:
    """Returns whose turn it is after a cursor; None if it does not say. Raises ValueError."""
    given = _parts(text) if text.startswith(PREFIX) else {}
    for key in (_FROM, _NEXT):
        if key in given:
            return Turn(str(given[key]), alone=key == _FROM)
    return None


def read(text: str) -> dict[int, Any]:
    """Returns the cursor of each shard in a text that begins with PREFIX. Raises ValueError."""
    return {int(number): each for number, each in _parts(text).items() if number not in (_NEXT, _FROM)}


def parts_in(text: str) -> dict[str, str]:
    """Returns the cursor of events of each shard, by its key, in a text that begins with PREFIX. Raises ValueError."""
    return {key: str(each) for key, each in _parts(text).items() if key not in (_NEXT, _FROM)}


def _text(parts: Mapping[str, Any]) -> str:
    return PREFIX + json.dumps(parts, separators=(",", ":"))


def _parts(text: str) -> dict[str, Any]:
    given = json.loads(text.removeprefix(PREFIX))
    if not isinstance(given, dict):
        raise ValueError("a cursor of shards is a JSON object")
    return given
