"""Fields of the forms of settings: made from the bounds that the core checks by, and read as the values that it takes.

A field that is left as it was shown changes nothing, also if another administrator has changed it meanwhile; an empty one
removes the managed value, so that the configuration file or the default counts.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from appliance.managed.draft import value_text
from mailcore.bounds import Bounds, Kind, number_from_text
from mailcore.control.protocol.settings import KeyFault, TunedLayer

__all__ = ["Field", "fields_of", "rest_of", "scope_of", "with_faults"]

Key = tuple[str, ...]
TEXT_MAX = 200_000
GROUP = "\u202f"  # between thousands


@dataclass(slots=True)
class Field:
    """A setting in a form. ``text``: what is entered, or set; ``was``: what was shown, which the form sends back."""

    key: Key
    bounds: Bounds
    name: str
    value: Any = None  # None: not set
    origin: str = ""  # "managed", "file", "removed" or "": the default
    tuned: Sequence[TunedLayer] = ()  # values set live, which count above it
    below: Any = None  # the file's value, where it does not count
    text: str = ""
    was: str = ""
    faults: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Returns the key's last name in words."""
        words = self.key[-1].removesuffix("_s").replace("_", " ")
        return f"{words[:1].upper()}{words[1:]}"

    @property
    def widget(self) -> str:
        """Returns the kind of input: "choice", "checks", "lines", "number" or "text"."""
        if self.bounds.kind is Kind.FLAG or self.bounds.choices:
            return "choice"
        if self.bounds.kind is Kind.LIST:
            return "checks" if self.bounds.elements else "lines"
        return "number" if self.bounds.kind in (Kind.WHOLE, Kind.NUMBER) else "text"

    @property
    def choices(self) -> Sequence[str]:
        """Returns the values of a choice, or those of which several may be chosen."""
        if self.bounds.elements:
            return self.bounds.elements
        return ("true", "false") if self.bounds.kind is Kind.FLAG else self.bounds.choices

    @property
    def chosen(self) -> Sequence[str]:
        """Returns the values of which several may be chosen, those that are."""
        return self.text.split()

    @property
    def rows(self) -> int:
        """Returns the height of a list."""
        return min(10, max(2, self.text.count("\n") + 2))

    @property
    def default(self) -> str:
        """Returns the default as a person would enter it, its digits in groups."""
        return _words(self.bounds.default)

    @property
    def help(self) -> str:
        """Returns what the setting means."""
        return self.bounds.description

    @property
    def allowed(self) -> str:
        """Returns the bounds of a number; "" for others."""
        return self.bounds.allowed("_").replace("_", GROUP) if self.widget == "number" else ""

    @property
    def scope(self) -> str:
        """Returns the scope of the values that are set live."""
        return scope_of(self.key)

    @property
    def origin_words(self) -> str:
        """Returns where the value comes from."""
        if self.origin == "managed":
            words = "changed here"
            return words if self.below is None else f"{words}; the file has {_words(self.below)}"
        if self.origin == "removed":
            return f"removed here; the file still has {_words(self.below)}"
        return "the file" if self.origin == "file" else f"default: {self.default}"

    def change(self) -> tuple[list[str], Any] | None:
        """Returns the change of this setting; None if it stays as it was shown."""
        return None if self.text == self.was else (list(self.key), self.entered())

    def entered(self) -> Any:
        """Returns what is entered as a value of TOML; None: it is not to be set. The core refuses other text."""
        text = self.text.strip()
        if self.widget in ("lines", "checks"):
            items: list[Any] = [line.strip() for line in text.splitlines() if line.strip()]
            if self.bounds.element is int:
                items = [_number(each) for each in items]
            hides = (
                self.below if self.origin == "managed" else self.value if self.origin == "file" else self.bounds.default
            )
            return items if items or hides else None
        if not text:
            return None
        if self.bounds.kind is Kind.FLAG:
            return {"true": True, "false": False}.get(text, text)
        if self.widget == "number":
            return self.bounds.from_text(text)
        return _number(text) if isinstance(self.bounds.default, int | float) else text


def fields_of(
    bounds: Mapping[str, Bounds],
    above: Key,
    known: Mapping[Key, Any],
    posted: Mapping[str, Any] | None = None,
) -> list[Field]:
    """Returns a field for each key below ``above``. ``known``: settings by key; ``posted``: what a form had in its fields."""
    made = []
    for name, each in bounds.items():
        key = (*above, name)
        one = known.get(key)
        found = Field(key, each, name)
        if one is not None:
            found.value, found.origin, found.below, found.tuned = one.value, one.origin, one.below, one.tuned
            found.text = "\n".join(_lines(one.value))
        found.was = found.text
        if posted is not None and f"is-{name}" in posted:
            found.text = _plain(_given(posted, f"is-{name}"))
            found.was = _plain(posted.get(f"was-{name}", ""))
        made.append(found)
    return made


def scope_of(key: Sequence[str]) -> str:
    """Returns the scope in which a setting is tuned, as the tuning page names it: "", "smtp", "smtp:example.org"."""
    section, *names = key[:-1]
    return ":".join(names[::2]) if section == "transports" else ""


def with_faults(fields: Sequence[Field], faults: Sequence[KeyFault], above: str = "") -> list[str]:
    """Puts each fault at its field, and returns those of no field. ``above``: the row's key in the faults."""
    left = []
    for fault in faults:
        for one in fields:
            key = f"{above}.{one.name}" if above else ".".join(one.key)
            if fault.key == key or fault.key.startswith(f"{key}."):
                one.faults.append(fault.reason)
                break
        else:
            left.append(f"{fault.key} {fault.reason}".strip())
    return left


def rest_of(row: Mapping[str, Any], bounds: Mapping[str, Bounds]) -> dict[str, Any]:
    """Returns what a row has besides the fields of its form."""
    return {name: value for name, value in row.items() if name not in bounds}


def _lines(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, list | tuple):
        return [str(each) for each in value]
    return [value_text(value)]


def _words(value: Any) -> str:
    values = value if isinstance(value, list | tuple) else [value]
    shown = [
        f"{each:,}".replace(",", GROUP) if type(each) in (int, float) else "".join(_lines(each)) for each in values
    ]
    return ", ".join(shown) or "empty"


def _number(text: str) -> Any:
    value = number_from_text(text)
    return text if value is None else value


def _given(posted: Mapping[str, Any], name: str) -> Any:
    """Returns what a form has at a name; of boxes those that are checked, a line each."""
    if isinstance(posted, QueryDict):
        return "\n".join(str(each) for each in posted.getlist(name))
    return posted[name]


def _plain(text: Any) -> str:
    return str(text)[:TEXT_MAX].replace("\r\n", "\n").strip()
