"""Bounds of values: what a setting, a scheduler parameter or a key of a scenario may be, and the sentence that refuses others.

Each value is defined once, beside its field: kind, unit, lowest and highest, special values, default, meaning. The
configuration file, ``tuned.toml``, the control socket, scenario files and the portal's forms all read values through here,
so that all of them refuse the same values with the same sentence: "process_limit must be between 1 and 10000 deliveries
(got 0)". A leaf, because the scheduler uses it and may import nothing of the configuration.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self

__all__ = [
    "DAY_S", "BadValue", "Bounds", "Kind", "bad", "bounds_by_name", "choice", "custom", "flag", "number", "number_from_text",
    "percent_from_text", "shown", "text", "texts", "whole", "wholes",
]  # fmt: skip

DAY_S = 86_400

_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_WHOLE = re.compile(r"[+-]?\d+")
_GROUP = re.compile(r"(?<=\d)[ _\u00a0\u202f](?=\d{3}\b)")  # between thousands: "20 000", "20_000"
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?) ?%")
_TYPED_MAX = 1 << 63  # the limit of the control socket's frames and of the portal's database

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 80
_short.maxlist = _short.maxtuple = 12


class Kind(enum.Enum):
    """The type of a value, as the control socket names it."""

    WHOLE = "whole"
    NUMBER = "number"
    FLAG = "flag"
    FEEDBACK = "feedback"  # of a scheduler's window: see ``scheduler.feedback``
    TEXT = "text"
    LIST = "list"
    CUSTOM = "custom"  # has its own reader


class BadValue(ValueError):
    """A value that is not allowed: its ``name`` ("" if not known here), the ``value``, and the ``reason``.

    The message is name and reason: "process_limit must be between 1 and 10000 deliveries (got 0)".
    """

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"{name} {reason}" if name else reason)
        self.name = name
        self.value = value
        self.reason = reason

    def __reduce__(self) -> tuple[type[Self], tuple[str, object, str]]:
        return type(self), (self.name, self.value, self.reason)


def bad(value: object, reason: str) -> BadValue:
    """Returns the error for a value of a name not known here; ``reason`` begins with "must be"."""
    return BadValue("", value, f"{reason} (got {shown(value)})")


def shown(value: object) -> str:
    """Returns the value as a person would write it, cut to about 80 characters."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "nothing" if value is None else _short.repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of one value. Both ends are allowed; nan never is."""

    kind: Kind
    doc: str
    default: Any
    name: str = ""
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    special: Mapping[Any, str] = field(default_factory=dict)  # a value within the bounds that means something else
    choices: tuple[str, ...] = ()
    form: str = ""  # the syntax of a value that has its own, after "must be"
    element: type = str  # of a list
    elements: tuple[str, ...] = ()  # all that may be in a list; () if they can't be listed
    reader: Callable[[Any], Any] | None = None  # of a text, an element or a custom value; raises ValueError
    list_check: Callable[[tuple[Any, ...]], object] | None = None  # of the whole list; raises ValueError

    def allowed(self, grouping: str = "") -> str:
        """Returns what is allowed, as a noun phrase; ``grouping`` "_" separates thousands, as TOML permits."""
        if self.form:
            return self.form
        if self.kind is Kind.FLAG:
            return "true or false"
        if self.choices:
            return _either([f'"{each}"' for each in self.choices])
        if self.kind is Kind.TEXT:
            return "a string"
        if self.kind is Kind.LIST:
            return "a list of whole numbers" if self.element is int else "a list of strings"
        noun = "a whole number" if self.kind is Kind.WHOLE else "a number"
        if self.low == -math.inf:
            return noun
        unit = f" ({self.unit})" if self.unit else ""
        return f"{noun} from {_plain(self.low, grouping)} to {_plain(self.high, grouping)}{unit}"

    def __str__(self) -> str:
        return self.allowed()

    @property
    def description(self) -> str:
        """Returns the meaning, then the special values: "pause between two deliveries; 0: none"."""
        return "; ".join([self.doc, *(f"{_special(value)}: {meaning}" for value, meaning in self.special.items())])

    def error(self, value: object) -> BadValue:
        """Returns the error for a value that is not allowed."""
        if self.kind not in (Kind.WHOLE, Kind.NUMBER) or self.low == -math.inf:
            rule = self.allowed()
        else:
            kind = "" if self._has_type(value) else "a whole number " if self.kind is Kind.WHOLE else "a number "
            unit = f" {self.unit}" if self.unit not in ("", self.name) else ""
            rule = f"{kind}between {_plain(self.low)} and {_plain(self.high)}{unit}{self._highest_in_words()}"
        return BadValue(self.name, value, f"must be {rule} (got {shown(value)})")

    def read(self, value: Any) -> Any:
        """Returns a value of TOML or JSON as the code uses it. Raises BadValue."""
        if self.kind is Kind.LIST:
            if not isinstance(value, list | tuple) or not all(type(element) is self.element for element in value):
                raise self.error(value)
            return self.read_list(tuple(self.read_element(element) for element in value))
        if self.kind in (Kind.CUSTOM, Kind.FEEDBACK):
            return self.read_element(value)
        if self.kind is Kind.TEXT:
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                raise self.error(value)
            return self.read_element(value) if value else value
        if self.kind is Kind.FLAG:
            if not isinstance(value, bool):
                raise self.error(value)
            return value
        if not self._has_type(value) or not self.low <= value <= self.high:
            raise self.error(value)
        return int(value) if self.kind is Kind.WHOLE else float(value)

    def read_element(self, value: Any) -> Any:
        """Returns one element of a list, a text or a custom value, in its one spelling. Raises BadValue."""
        return self._called(self.reader, value) if self.reader is not None else value

    def read_list(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the elements, each read, after the check of the whole list. Raises BadValue."""
        if self.list_check is not None:
            self._called(self.list_check, values)
        return values

    def from_text(self, typed: str) -> Any:
        """Returns what a person typed, as ``read`` takes it. Text that does not fit is returned, for ``read`` to refuse."""
        typed = typed.strip()
        if self.kind is Kind.FLAG:
            return _FLAGS.get(typed.lower(), typed)
        if self.kind not in (Kind.WHOLE, Kind.NUMBER):
            return typed
        value = number_from_text(typed)
        return typed if value is None else value

    def share(self, value: float, percent: float) -> float:
        """Returns that many percent of the value, rounded down to a whole number, not below the lowest, where one is needed."""
        share = value * percent / 100
        return max(int(share), int(self.low)) if self.kind is Kind.WHOLE else share

    def _highest_in_words(self) -> str:
        """Returns ", which is 100 days" where the highest is that many seconds; "" where the number is as easy to read."""
        for length, word in ((DAY_S, "day"), (3600, "hour")):
            count, rest = divmod(self.high, length)
            if self.unit == "seconds" and count and not rest:
                return f", which is {count:.0f} {word}{'' if count == 1 else 's'}"
        return ""

    def _has_type(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.kind is Kind.NUMBER or isinstance(value, int)

    def _called(self, reader: Callable[[Any], Any], value: Any) -> Any:
        try:
            return reader(value)
        except BadValue as error:
            raise BadValue(error.name or self.name, error.value, error.reason) from None
        except ValueError as error:
            raise BadValue(self.name, value, str(error)) from None


def number_from_text(typed: str) -> int | float | None:
    """Reads "20000", "20 000", "20_000", "0.5" or "1e3"; None if it is not a number, or one of 2**63 or more."""
    plain = _GROUP.sub("", typed.strip())
    if not _NUMBER.fullmatch(plain) or abs(float(plain)) >= _TYPED_MAX:
        return None
    return int(plain) if _WHOLE.fullmatch(plain) else float(plain)


def percent_from_text(typed: str) -> float | None:
    """Reads "50%": a share of the value in force. None if it is not a percentage."""
    match = _PERCENT.fullmatch(typed.strip())
    return float(match[1]) if match else None


@functools.cache
def bounds_by_name(kind: type) -> Mapping[str, Bounds]:
    """Returns the bounds of a dataclass's fields, each with its name; a field without bounds is left out."""
    return MappingProxyType(
        {
            each.name: dataclasses.replace(each.metadata["bounds"], name=each.name)
            for each in fields(kind)
            if "bounds" in each.metadata
        }
    )


# Fields of a dataclass


def whole(
    default: int, low: int, high: int, unit: str, doc: str, *, special: Mapping[int, str] = MappingProxyType({})
) -> Any:
    """Defines a field that is a whole number."""
    return _field(
        default, Bounds(kind=Kind.WHOLE, doc=doc, default=default, low=low, high=high, unit=unit, special=special)
    )


def number(
    default: float | None,
    low: float,
    high: float,
    unit: str,
    doc: str,
    *,
    special: Mapping[float, str] = MappingProxyType({}),
) -> Any:
    """Defines a field that is a number."""
    return _field(
        default, Bounds(kind=Kind.NUMBER, doc=doc, default=default, low=low, high=high, unit=unit, special=special)
    )


def flag(default: bool, doc: str) -> Any:
    """Defines a field that is true or false."""
    return _field(default, Bounds(kind=Kind.FLAG, doc=doc, default=default))


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    """Defines a field that is one of some words."""
    return _field(default, Bounds(kind=Kind.TEXT, doc=doc, default=default, choices=choices))


def text(
    default: str,
    doc: str,
    reader: Callable[[str], str] | None = None,
    *,
    special: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Defines a field that is text; ``reader`` returns a text that is not empty in its one spelling, or raises ValueError."""
    return _field(default, Bounds(kind=Kind.TEXT, doc=doc, default=default, reader=reader, special=special))


def texts(
    default: tuple[str, ...],
    doc: str,
    reader: Callable[[str], str] | None = None,
    list_check: Callable[[tuple[str, ...]], object] | None = None,
    *,
    special: Mapping[str, str] = MappingProxyType({}),
    elements: tuple[str, ...] = (),
) -> Any:
    """Defines a field that is a list of texts; ``reader`` reads each, ``list_check`` sees all of them.

    ``elements`` are all that ``reader`` takes, for forms.
    """
    bounds = Bounds(
        kind=Kind.LIST,
        doc=doc,
        default=default,
        reader=reader,
        list_check=list_check,
        special=special,
        elements=elements,
    )
    return _field(default, bounds)


def wholes(default: tuple[int, ...], doc: str, list_check: Callable[[tuple[int, ...]], object]) -> Any:
    """Defines a field that is a list of whole numbers."""
    return _field(default, Bounds(kind=Kind.LIST, doc=doc, default=default, element=int, list_check=list_check))


def custom(
    default: Any, form: str, doc: str, reader: Callable[[Any], Any], *, kind: Kind = Kind.CUSTOM, unit: str = ""
) -> Any:
    """Defines a field with its own syntax, which ``form`` describes; ``reader`` raises ValueError."""
    return _field(default, Bounds(kind=kind, doc=doc, default=default, form=form, reader=reader, unit=unit))


def _field(default: Any, bounds: Bounds) -> Any:
    return field(default=default, metadata={"bounds": bounds})


def _plain(limit: float, grouping: str = "") -> str:
    """Digits without an exponent, however large."""
    return f"{int(limit):{grouping}}" if float(limit).is_integer() else f"{limit:.12g}"


def _special(value: object) -> str:
    return "empty" if value in ("", ()) else shown(value)


def _either(parts: Sequence[str] | Iterable[str]) -> str:
    *front, last = parts
    return f"{', '.join(front)} or {last}" if front else last
