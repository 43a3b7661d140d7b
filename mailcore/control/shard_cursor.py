"""A cursor of several shards: a prefix, and as JSON that of each. The cursor of a queue that is alone has no such prefix.

A program that follows the events keeps its cursor while shards come and go: each of both is understood by the other.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["PREFIX", "part_of", "read", "written"]

PREFIX = "shards:"


def written(cursors: dict[int, Any]) -> str:
    """Returns the text of a cursor."""
    return PREFIX + json.dumps({str(number): each for number, each in cursors.items()}, separators=(",", ":"))


def read(text: str) -> dict[int, Any]:
    """Returns the cursor of each shard in a text that begins with PREFIX. Raises ValueError."""
    given = json.loads(text.removeprefix(PREFIX))
    if not isinstance(given, dict):
        raise ValueError("a cursor of shards is a JSON object")
    return {int(number): each for number, each in given.items()}


def part_of(text: str, shard: int, beginning: str) -> str:
    """Returns the cursor of one shard in one of several, ``beginning`` if it has no part in it; another text as it is."""
    if not text.startswith(PREFIX):
        return text
    try:
        return str(read(text).get(shard) or beginning)
    except ValueError:
        return text
