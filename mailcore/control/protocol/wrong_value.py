"""Finds the first value of a request that is not of its type, and says in a sentence what is allowed.

msgspec says whether a request is of its type, and nothing here changes that. But its words are for programmers ("Expected `str`
matching regex"), so place and sentence come from this walk over the same types. A type with a ``title`` is called by it.

Law: values only, no I/O.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from msgspec.inspect import (
    BoolType,
    BytesType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    TupleType,
    Type,
    UnionType,
)

from mailcore.counted import counted

__all__ = ["wrong_value"]

PATH_CHARACTERS_MAX = 200  # of an argument's name in an error: a client may have sent any
SHOWN_CHARACTERS = 50  # of a value
Wrong = tuple[str, str]


def wrong_value(value: Any, kind: Type, path: str = "", title: str = "") -> Wrong | None:
    """Returns the path of the first value that ``kind`` does not allow, and a sentence; None if all that is known fits."""
    match kind:
        case Metadata(type=inner, extra_json_schema=schema):
            return wrong_value(value, inner, path, (schema or {}).get("title", title))
        case UnionType(types=types):
            return _wrong_in_union(value, types, path)
        case StructType(array_like=False):
            return _wrong_in_struct(value, kind, path)
        case ListType() | TupleType() | DictType():
            return _wrong_in_container(value, kind, path)
    sentence = _wrong_scalar(value, kind, title)
    return (path, sentence) if sentence else None


def _wrong_in_union(value: Any, types: tuple[Type, ...], path: str) -> Wrong | None:
    of_its_kind = [kind for kind in types if _is_of(value, kind)]
    if not of_its_kind:
        return path, f"{_shown(value)} is not allowed here; allowed: {' or '.join(dict.fromkeys(map(_noun, types)))}"
    wrong = [wrong_value(value, kind, path) for kind in of_its_kind]
    return None if None in wrong else wrong[0]


def _wrong_in_struct(value: Any, kind: StructType, path: str) -> Wrong | None:
    if not isinstance(value, dict):
        return path, f"{_shown(value)} is not allowed here; allowed: names with values"
    fields = {field.encode_name: field for field in kind.fields}
    for name, inner in value.items():
        place = f"{path}.{name}" if path else str(name)
        if name in fields:
            if wrong := wrong_value(inner, fields[name].type, place):
                return wrong
        elif kind.forbid_unknown_fields:
            return place[:PATH_CHARACTERS_MAX], f"there is no such argument; allowed: {', '.join(fields) or 'none'}"
    missing = next((name for name, field in fields.items() if field.required and name not in value), None)
    if missing is None:
        return None
    return f"{path}.{missing}" if path else missing, "this argument is needed"


def _wrong_in_container(value: Any, kind: ListType | TupleType | DictType, path: str) -> Wrong | None:
    if not _is_of(value, kind):
        return path, f"{_shown(value)} is not {_noun(kind)}"
    if isinstance(kind, TupleType):
        if len(value) != len(kind.item_types):
            return path, f"{counted(len(value), 'value')}; allowed: exactly {len(kind.item_types)}"
        inner: Iterator[tuple[Any, Type, str]] = (
            (item, type_, f"{path}[{number}]")
            for number, (item, type_) in enumerate(zip(value, kind.item_types, strict=True))
        )
    else:
        if sentence := _wrong_length(len(value), kind.min_length, kind.max_length, "values"):
            return path, sentence
        if isinstance(kind, ListType):
            inner = ((item, kind.item_type, f"{path}[{number}]") for number, item in enumerate(value))
        else:
            inner = itertools.chain(
                ((key, kind.key_type, path) for key in value),
                ((item, kind.value_type, f"{path}.{key}"[:PATH_CHARACTERS_MAX]) for key, item in value.items()),
            )
    return next((wrong for item, type_, place in inner if (wrong := wrong_value(item, type_, place))), None)


def _wrong_scalar(value: Any, kind: Type, title: str) -> str:
    """Returns a sentence, or "" if the value is allowed, or its kind is not known here."""
    if isinstance(kind, LiteralType):
        allowed = ", ".join(map(str, kind.values))
        return "" if value in kind.values else f"{_shown(value)} is not known; allowed: {allowed}"
    if not _is_of(value, kind):
        bounds = _bounds(kind) if isinstance(kind, IntType | FloatType) else ""
        return f"{_shown(value)} is not {f'a {title}' if title else _noun(kind)}{bounds}"
    if isinstance(kind, IntType | FloatType):
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value} is not a finite number"
        low = (kind.ge is not None and value < kind.ge) or (kind.gt is not None and value <= kind.gt)
        high = (kind.le is not None and value > kind.le) or (kind.lt is not None and value >= kind.lt)
        return f"{_shown(value)} is too {'small' if low else 'large'}{_bounds(kind)}" if low or high else ""
    if isinstance(kind, StrType | BytesType):
        unit = "characters" if isinstance(kind, StrType) else "bytes"
        if sentence := _wrong_length(len(value), kind.min_length, kind.max_length, unit):
            return sentence
    if isinstance(kind, StrType) and kind.pattern is not None and re.search(kind.pattern, value) is None:
        return f"{_shown(value)} is not {f'a {title}' if title else 'of the form that is allowed here'}"
    return ""


def _wrong_length(length: int, least: int | None, most: int | None, unit: str) -> str:
    if least is not None and length < least:
        return "an empty value is not allowed" if not length else f"{length} {unit}; allowed: {least} or more"
    return f"{length} {unit}; allowed: {most} at most" if most is not None and length > most else ""


def _bounds(kind: IntType | FloatType) -> str:
    low, high = kind.ge if kind.ge is not None else kind.gt, kind.le if kind.le is not None else kind.lt
    least = f"{'more than ' if kind.ge is None else ''}{_number(low)}" if low is not None else ""
    if low is not None and high is not None:
        return f"; allowed: {least} {'to' if kind.ge is not None else 'and at most'} {_number(high)}"
    if low is not None:
        return f"; allowed: {least}{' or more' if kind.ge is not None else ''}"
    return f"; allowed: {_number(high)} at most" if high is not None else ""


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


_NOUNS: dict[type[Type], tuple[str, type | tuple[type, ...]]] = {
    BoolType: ("true or false", bool),
    BytesType: ("bytes", (bytes, bytearray, memoryview)),
    DictType: ("a map of names and values", dict),
    FloatType: ("a number", (int, float)),
    IntType: ("a whole number", int),
    ListType: ("a list", (list, tuple)),
    NoneType: ("nothing", type(None)),
    StrType: ("text", str),
    StructType: ("a map of names and values", dict),
    TupleType: ("a list", (list, tuple)),
}


def _is_of(value: Any, kind: Type) -> bool:
    """Returns True if the value has the kind's Python type, or if the kind is not known here."""
    if isinstance(kind, Metadata):
        return _is_of(value, kind.type)
    if isinstance(value, bool):  # Python takes it for an int
        return isinstance(kind, BoolType) or type(kind) not in _NOUNS
    if isinstance(value, float) and isinstance(kind, IntType):
        return value.is_integer() and abs(value) < 1 << 63  # msgspec takes 5.0 for 5
    return type(kind) not in _NOUNS or isinstance(value, _NOUNS[type(kind)][1])


def _noun(kind: Type) -> str:
    if isinstance(kind, Metadata):
        return _noun(kind.type)
    return _NOUNS.get(type(kind), ("another value", object))[0]


def _shown(value: Any) -> str:
    """Returns the value in few characters; a list or a map by what it is."""
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
