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
from typing import Any

import msgspec
from msgspec.inspect import type_info

from mailcore.control.protocol import (
    changes,
    effects,
    events,
    injection,
    kept,
    log,
    messages,
    nodes,
    past,
    routing,
    settings,
    state,
    tuning,
    users,
)
from mailcore.control.protocol.operation import Operation, WrongArgument
from mailcore.control.protocol.wrong_value import wrong_value
from mailcore.faults import Code, FaultError

__all__ = ["CLIENT_FRAME_BYTES_MAX", "OPERATIONS", "ArgumentError", "check"]

CLIENT_FRAME_BYTES_MAX = 1 << 20  # the longest a client may send: 1 000 recipients or 1 000 positions fit
NOT_ALLOWED = "this value is not allowed here"  # of the few types that no client sends


class ArgumentError(FaultError):
    """An argument that is wrong: the message says what is allowed."""

    default = Code.INVALID


_FAMILIES = (
    messages,
    changes,
    injection,
    state,
    tuning,
    routing,
    settings,
    effects,
    log,
    kept,
    users,
    past,
    events,
    nodes,
)
OPERATIONS: dict[str, Operation] = {
    operation.name: operation for family in _FAMILIES for operation in family.OPERATIONS
}


def check(name: str, arguments: dict[str, Any]) -> tuple[Operation, Any]:
    """Returns the operation and its arguments, typed. Raises ArgumentError."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise ArgumentError(f"there is no operation {name[:50]!r}; allowed: {', '.join(sorted(OPERATIONS))}")
    for argument, value in arguments.items():
        if isinstance(value, float) and not math.isfinite(value):  # passes every comparison, and so every bound
            raise ArgumentError(f"{name}: {argument}: {value} is not a finite number", argument=argument)
    try:
        return operation, msgspec.convert(arguments, operation.arguments)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, WrongArgument):
            raise ArgumentError(f"{name}: {error.__cause__}", argument=error.__cause__.argument) from None
        argument, text = wrong_value(arguments, type_info(operation.arguments)) or ("", NOT_ALLOWED)
        raise ArgumentError(
            f"{name}: {argument}: {text}" if argument else f"{name}: {text}", argument=argument
        ) from None
