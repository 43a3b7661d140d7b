"""Parameters and results of PostgreSQL in its binary form: as text, a commit costs three times the CPU.

Only the types that the store's statements use. The forms are those of PostgreSQL's send and receive functions
(src/backend/utils/adt): numbers in network order, an array as a header and its elements, each behind its length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

__all__ = [
    "BYTEA",
    "BYTEAS",
    "CHAR",
    "CHARS",
    "INT8",
    "INT8S",
    "TEXT",
    "TEXTS",
    "as_bool",
    "as_int",
    "as_text",
    "encoder",
]

# Numbers of types, from pg_type.dat
BYTEA, CHAR, INT8, TEXT = 17, 18, 20, 25
BYTEAS, CHARS, INT8S, TEXTS = 1001, 1002, 1016, 1009
_ELEMENTS = {BYTEAS: BYTEA, CHARS: CHAR, INT8S: INT8, TEXTS: TEXT}

_INT8 = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_ARRAY = struct.Struct(">iiIii")  # dimensions, has nulls, type of the elements; length and lower bound of the dimension
_EMPTY = struct.Struct(">iiI")

Encoder = Callable[..., bytes]


def _text(value: str) -> bytes:
    return value.encode()


def _bytes(value: bytes) -> bytes:
    return bytes(value)


_SCALARS: dict[int, Encoder] = {BYTEA: _bytes, CHAR: _text, INT8: _INT8.pack, TEXT: _text}


def encoder(type_: int) -> Encoder:
    """Returns the function that encodes a parameter of this type. Raises KeyError for a type that no statement has."""
    if type_ in _SCALARS:
        return _SCALARS[type_]
    element = _ELEMENTS[type_]
    return lambda values: _array(element, values)


def _array(element: int, values: Sequence[object]) -> bytes:
    if not values:
        return _EMPTY.pack(0, 0, element)
    encode = _SCALARS[element]
    parts = [_ARRAY.pack(1, 0, element, len(values), 1)]
    for value in values:
        encoded = encode(value)
        parts += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(parts)


def as_int(value: bytes | None) -> int:
    """Returns a whole number of two, four or eight bytes. A null is a mistake in a statement of ours."""
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


def as_text(value: bytes | None) -> str:
    """Returns a text."""
    assert value is not None
    return value.decode()


def as_bool(value: bytes | None) -> bool:
    """Returns a truth value; null is false."""
    return value == b"\x01"
