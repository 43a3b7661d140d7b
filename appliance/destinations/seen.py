"""The form of a dialog carries the values that were in force when it was opened; they are compared when it is sent.

Law: if another user has changed the value meanwhile, the form shows an error and nothing is sent to the core.
"""

from __future__ import annotations

import json
from typing import Any

from appliance.common.templatetags.waypost import visible
from appliance.tuning.parameter import Shown, same_shown
from appliance.tuning.value import is_value, readable, typed

__all__ = ["SEEN_MAX", "as_text", "meanwhile"]

SEEN_MAX = 20_000  # characters: a destination has some ten parameters


def as_text(values: dict[str, Shown]) -> str:
    """Returns the values as the text of the form's hidden field."""
    return json.dumps(values)


def meanwhile(text: str, parameter: str, now: Shown) -> str:
    """Returns a message if the value differs from the one that the page showed; "" if it is the same.

    ``text``: the hidden field of the form; "" if the form does not come from a page of the portal.
    """
    if not text:
        return ""
    seen = _seen(text).get(parameter)
    if seen is None:
        return "This page has expired. Reload it and try again."
    if same_shown(seen, now):
        return ""
    if typed(seen["value"]) == typed(now["value"]):
        return (
            f"The value was changed since you opened this: it is still {_said(parameter, now)}, "
            "but with another end or from another scope."
        )
    return f"The value was changed since you opened this: it is {_said(parameter, now)} now and was {_said(parameter, seen)}."


def _seen(text: str) -> dict[str, Shown]:
    try:
        given: dict[str, Any] = json.loads(text)
        return {name: shown for name, shown in given.items() if _is_shown(shown)}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _is_shown(given: Any) -> bool:
    return isinstance(given, dict) and is_value(given.get("value")) and isinstance(given.get("until", 0), int | float)


def _said(parameter: str, shown: Shown) -> str:
    return visible(readable(parameter, shown["value"]))
