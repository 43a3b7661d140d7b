"""A draft of changed settings: what a person entered, as changes that the core checks.

One setting has a key with dots and a value as in TOML, or several are given as TOML. A draft goes from page to page as JSON,
with the revision that it was checked for, so that the change that is applied is the one that was shown.

Pure: no I/O.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mailcore.config.managed import REMOVED, dotted, named, removed_keys, values_of
from mailcore.control.protocol.settings import CHANGES_MAX

__all__ = ["PLAIN", "Draft", "DraftError", "from_form", "from_json", "plain", "value_text"]

TEXT_MAX = 200_000
DEPTH_MAX = 8  # of lists and tables in one value
INT_MAX = (1 << 63) - 1
PLAIN = "allowed: texts, numbers of 64 bits, true and false, and lists and tables of them"


class DraftError(ValueError):
    """A draft that can't be read; ``field`` is the form's."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class Draft(msgspec.Struct, frozen=True):
    """Changes by key, or the state to return to. ``revision``: of the files that it was checked for; "" before."""

    changes: list[tuple[list[str], Any]] = []
    removed: list[list[str]] = []  # values and rows of the configuration file that are not to count
    to: str = ""
    revision: str = ""

    @property
    def operation(self) -> str:
        """Returns the operation of the core that checks and makes it."""
        return "settings_return" if self.to else "settings_change"

    def arguments(self, *, check: bool) -> dict[str, Any]:
        """Returns the operation's arguments."""
        if self.to:
            return {"to": self.to, "revision": self.revision, "check": check}
        changes: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in self.changes]
        changes += [{"key": key, "removed": True} for key in self.removed]
        return {"changes": changes, "revision": self.revision, "check": check}

    def text(self) -> str:
        """Returns it as JSON."""
        return msgspec.json.encode(self).decode()

    @property
    def subject(self) -> str:
        """Returns the keys, for the audit log."""
        return self.to or ", ".join(dotted(key) for key in [*(key for key, _ in self.changes), *self.removed])


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that a form had in a field."""

    field: str
    text: str


def from_form(given: Mapping[str, Any]) -> Draft:
    """Returns the draft of a form: a key and a value, a key to remove, TOML, a state, or a draft. Raises DraftError."""
    if text := str(given.get("draft", "")):
        return from_json(text)
    if to := str(given.get("to", "")).strip():
        return Draft(to=to[:16])
    if toml := str(given.get("toml", "")).removeprefix("\ufeff").strip():  # a mark that some editors put first
        return _of_toml(_Text("toml", toml))
    key = named(str(given.get("key", "")))
    if key is None:
        raise DraftError('Write the key as in the file, with dots: relay.domains, routes."example.org".', "key")
    if given.get("remove") == "file":
        return Draft(removed=[key])
    if given.get("remove"):
        return Draft(changes=[(key, None)])
    return Draft(changes=[(key, _value(_Text("value", str(given.get("value", "")))))])


def from_json(text: str) -> Draft:
    """Returns a draft that ``text`` made. Raises DraftError."""
    try:
        draft = msgspec.json.decode(text.encode(), type=Draft)
        for _, value in draft.changes:
            plain(value)
    except (ValueError, RecursionError) as error:  # of msgspec, too
        raise DraftError(f"this draft can't be read: {error}", "") from None
    return draft


class NotPlain(ValueError):
    """Raised for a value that TOML or JSON has and no setting can have."""


def plain(value: Any, depth: int = 0) -> Any:
    """Returns the value. Raises NotPlain for one that a draft, the core or the audit log cannot have, such as a date."""
    if value is None and not depth:
        return value
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int) and -INT_MAX - 1 <= value <= INT_MAX:
        return value
    if isinstance(value, float) and abs(value) < float("inf"):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None or depth >= DEPTH_MAX:
        raise NotPlain(PLAIN)
    for each in inner:
        plain(each, depth + 1)
    return value


def _plain_toml(text: str, given: _Text) -> dict[str, Any]:
    """Returns what a TOML text says, as a table. Raises DraftError for a value that no setting can have, TOMLDecodeError."""
    try:
        document = tomllib.loads(text)
        for value in document.values():
            plain(value)
    except tomllib.TOMLDecodeError:
        raise
    except (NotPlain, RecursionError):
        raise DraftError(PLAIN, given.field) from None
    except ValueError:  # an integer with thousands of digits, which Python does not read
        raise DraftError(f"a number is too large; {PLAIN}", given.field) from None
    return document


def value_text(value: Any) -> str:
    """Returns a value as a person enters it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _value(given: _Text) -> Any:
    """Returns a value as in TOML; other text is a string."""
    text = given.text.strip()
    if len(text) > TEXT_MAX:
        raise DraftError(f"At most {TEXT_MAX} characters.", given.field)
    try:
        return _plain_toml(f"value = {text}", given)["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def _of_toml(given: _Text) -> Draft:
    if len(given.text) > TEXT_MAX:
        raise DraftError(f"At most {TEXT_MAX} characters.", given.field)
    try:
        document = _plain_toml(given.text, given)
    except tomllib.TOMLDecodeError as error:
        raise DraftError(f"Not valid TOML: {error}", given.field) from None
    removed = removed_keys(document)
    changes = values_of({name: value for name, value in document.items() if name != REMOVED})
    if not changes and not removed:
        raise DraftError("There is no setting in it.", given.field)
    if len(changes) + len(removed) > CHANGES_MAX:
        raise DraftError(f"At most {CHANGES_MAX} settings at once.", given.field)
    return Draft(changes=[(list(names), value) for names, value in changes.items()], removed=list(map(list, removed)))
