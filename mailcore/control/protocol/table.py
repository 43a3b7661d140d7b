"""Lists the operations of the control socket: each once, with its arguments, their bounds, and the process that answers it.

Frames are ``frames.Request`` and ``frames.Response``. Portal, command line and tests speak only this protocol. Arguments are
a map; an argument that is missing, unknown or out of bounds gives an error that names it and says what is allowed. A change
carries who and why, and is answered once its record is synced. Each family of operations has a module beside this one, with
their rows and the types of their arguments and answers.

Laws: values only, no I/O. An operation that is not in ``OPERATIONS`` is refused. An operation for the manager has the same
name and arguments on its socket, except that control has turned ``queue_ids`` into ``messages``.

Keeps law: operations-are-listed (docs/laws.md).
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
from msgspec.inspect import ListType, Metadata, StructType, Type, UnionType, type_info

from mailcore.control.protocol import changes, injection, messages, routing, state, tuning
from mailcore.control.protocol.operation import Operation, WrongArgument
from mailcore.faults import Code, FaultError

__all__ = ["CLIENT_FRAME_BYTES_MAX", "OPERATIONS", "ArgumentError", "check"]

CLIENT_FRAME_BYTES_MAX = 1 << 20  # the longest a client may send: 1 000 recipients or 1 000 positions fit
PATH_CHARACTERS_MAX = 200  # of an argument's name in an error: a client may have sent any


class ArgumentError(FaultError):
    """An argument that is wrong: the message says what is allowed."""

    default = Code.INVALID


_FAMILIES = (messages, changes, injection, state, tuning, routing)
OPERATIONS: dict[str, Operation] = {
    operation.name: operation for family in _FAMILIES for operation in family.OPERATIONS
}

_AT_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def check(name: str, arguments: dict[str, Any]) -> tuple[Operation, Any]:
    """Returns the operation and its arguments, typed. Raises ArgumentError."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ArgumentError(f"there is no operation {name[:50]!r}; allowed: {', '.join(sorted(OPERATIONS))}")
    for argument, value in arguments.items():
        if isinstance(value, float) and not math.isfinite(value):  # passes every comparison, and so every bound
            raise ArgumentError(f"{name}: {argument}: Expected a finite number", argument=argument)
    try:
        return operation, msgspec.convert(arguments, operation.arguments)
    except msgspec.ValidationError as error:
        if wrong := _wrong_field(arguments, type_info(operation.arguments), ""):
            argument, text = wrong
            raise ArgumentError(f"{name}: {argument}: {text}", argument=argument) from None
        argument, text = _explain(str(error))
        if isinstance(error.__cause__, WrongArgument):
            argument = error.__cause__.argument
        raise ArgumentError(f"{name}: {text}", argument=argument) from None


def _wrong_field(value: Any, kind: Type, path: str) -> tuple[str, str] | None:
    """Returns the path of the first field that ``kind`` does not have, or that it lacks, and a sentence; None if all fit."""
    if isinstance(kind, Metadata):
        return _wrong_field(value, kind.type, path)
    if isinstance(kind, UnionType):
        found = (_wrong_field(value, each, path) for each in kind.types)
        return next((each for each in found if each), None)
    if isinstance(kind, ListType) and isinstance(value, list):
        found = (_wrong_field(each, kind.item_type, f"{path}[{number}]") for number, each in enumerate(value))
        return next((each for each in found if each), None)
    if not isinstance(kind, StructType) or not isinstance(value, dict) or not kind.forbid_unknown_fields:
        return None
    fields = {field.encode_name: field.type for field in kind.fields}
    for name, each in value.items():
        inner = f"{path}.{name}" if path else str(name)
        if name not in fields:
            return inner[:PATH_CHARACTERS_MAX], f"there is no such argument; allowed: {', '.join(fields) or 'none'}"
        if wrong := _wrong_field(each, fields[name], inner):
            return wrong
    for field in kind.fields:
        if field.required and field.encode_name not in value:
            return f"{path}.{field.encode_name}" if path else field.encode_name, "this argument is needed"
    return None


def _explain(text: str) -> tuple[str, str]:
    """Returns the argument and the sentence with the argument in front.

    msgspec says "Expected `int` >= 1 - at `$.limit`", and tells the place in no other way.
    """
    path = ""
    if match := _AT_PATH.search(text):
        path, text = match["path"], text[: match.start()]
    return path, f"{path}: {text}" if path else text
