"""Sample answers of the control socket: a test says what it is about, and the other fields get a value of their type."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from mailcore.control.protocol.table import OPERATIONS
from mailcore.manager_answers import ActiveDestination, Destinations, Size, State

__all__ = ["Exactly", "active_destination", "answer_of", "complete", "destinations", "sample", "size", "state"]

S = TypeVar("S", bound=msgspec.Struct)


class Exactly(dict[str, Any]):
    """An answer that is sent as it is, though it is not of the operation's type."""


def answer_of(operation: str, given: Any) -> Any:
    """Returns the answer with every field that its type has; as it is, if the operation or its type is not known."""
    row = OPERATIONS.get(operation)
    return given if row is None or isinstance(given, Exactly) else complete(row.result, given)


def complete(type_: Any, given: Any) -> Any:
    """Returns ``given`` as a map, with a value for each field that it lacks. What is not of the type's shape stays as it is."""
    return _filled(inspect.type_info(type_), msgspec.to_builtins(given) if isinstance(given, msgspec.Struct) else given)


def _filled(type_: inspect.Type, given: Any) -> Any:
    if isinstance(given, msgspec.Struct):
        given = msgspec.to_builtins(given)
    if isinstance(type_, inspect.StructType) and isinstance(given, dict):
        types = {field.encode_name: field.type for field in type_.fields}
        lacking = {each.encode_name: _sample(each.type) for each in type_.fields if each.required}
        return lacking | {
            name: _filled(types[name], value) if name in types else value for name, value in given.items()
        }
    if isinstance(type_, inspect.DictType) and isinstance(given, dict):
        return {name: _filled(type_.value_type, value) for name, value in given.items()}
    if isinstance(type_, inspect.ListType) and isinstance(given, list | tuple):
        return [_filled(type_.item_type, each) for each in given]
    if isinstance(type_, inspect.UnionType) and isinstance(given, dict):
        inner = [each for each in type_.types if isinstance(each, inspect.StructType | inspect.DictType)]
        return _filled(inner[0], given) if inner else given
    return given


def _sample(type_: inspect.Type) -> Any:
    plain: list[tuple[type[inspect.Type], Any]] = [
        (inspect.IntType, 0), (inspect.FloatType, 0.0), (inspect.StrType, ""), (inspect.BoolType, False),
    ]  # fmt: skip
    for kind, value in plain:
        if isinstance(type_, kind):
            return value
    if isinstance(type_, inspect.StructType):
        return _filled(type_, {})
    if isinstance(type_, inspect.DictType):
        return {}
    if isinstance(type_, inspect.ListType):
        return []
    if isinstance(type_, inspect.EnumType):
        return next(iter(type_.cls)).value
    if isinstance(type_, inspect.UnionType) and not any(isinstance(each, inspect.NoneType) for each in type_.types):
        return _sample(type_.types[0])
    return None


def sample(type_: type[S], fields: dict[str, Any]) -> S:
    """Returns a sample of the type with ``fields``."""
    return msgspec.convert(complete(type_, fields), type_)


def active_destination(**fields: Any) -> ActiveDestination:
    """Returns a destination without mail, except for ``fields``."""
    return sample(ActiveDestination, fields)


def destinations(**fields: Any) -> Destinations:
    """Returns an answer without destinations, except for ``fields``."""
    return sample(Destinations, fields)


def state(**fields: Any) -> State:
    """Returns the state of an idle manager, except for ``fields``."""
    return sample(State, fields)


def size(**fields: Any) -> Size:
    """Returns the size of an empty queue, except for ``fields``."""
    return sample(Size, fields)
