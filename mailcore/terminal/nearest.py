"""Suggestions for a mistyped command or option."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches  # no cost at start-up: mailcore.config.load needs it, too

__all__ = ["did_you_mean"]

SUGGESTIONS_MAX = 3
SIMILARITY_MIN = 0.6  # difflib's own default


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns "; did you mean 'queue'?" with the nearest of ``known``, or "" if none is similar."""
    nearest = get_close_matches(given, list(known), SUGGESTIONS_MAX, SIMILARITY_MIN)
    return f"; did you mean {' or '.join(map(repr, nearest))}?" if nearest else ""
