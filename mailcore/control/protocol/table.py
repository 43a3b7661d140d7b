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

from mailcore.control.protocol import changes, injection, messages, routing, state, tuning
from mailcore.control.protocol.operation import Operation, WrongArgument
from mailcore.faults import Code, FaultError
from mailcore.lookup.filter import Filter

__all__ = ["CLIENT_FRAME_BYTES_MAX", "OPERATIONS", "ArgumentError", "check"]

CLIENT_FRAME_BYTES_MAX = 1 << 20  # the longest a client may send: 1 000 recipients or 1 000 positions fit


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
        argument, text = _explain(operation, str(error))
        if isinstance(error.__cause__, WrongArgument):
            argument = error.__cause__.argument
        raise ArgumentError(f"{name}: {text}", argument=argument) from None


def _explain(operation: Operation, text: str) -> tuple[str, str]:
    """Returns the argument and the sentence with the argument in front.

    msgspec says "Expected `int` >= 1 - at `$.limit`", and tells the place in no other way.
    """
    path = ""
    if match := _AT_PATH.search(text):
        path, text = match["path"], text[: match.start()]
    if "unknown field" in text:
        allowed = Filter.__struct_fields__ if path == "filter" else operation.arguments.__struct_fields__
        text += f"; allowed: {', '.join(allowed) or 'none'}"
    return path, f"{path}: {text}" if path else text
