"""Errors as values: a code for programs, a sentence for people, and the argument that is wrong.

Law: a program decides by ``code`` and ``argument``. It never searches ``message``, which may be reworded at any time.
Must not know: any other room.
"""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Code", "Fault", "FaultError"]


class Code(enum.StrEnum):
    """The kinds of errors that a program has to tell apart."""

    INVALID = "invalid"  # the request is wrong; ``argument`` names the place
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"  # the message or the connection is in another state
    BUSY = "busy"  # a limit of ours; retry later
    UNAVAILABLE = "unavailable"  # the manager is down; nothing was done
    OUTCOME_UNKNOWN = "outcome_unknown"  # it may have been done; look before repeating it
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"  # a bug, or a disk that fails


class Fault(msgspec.Struct, frozen=True):
    """An error as it is sent over a socket."""

    code: Code
    message: str  # for a person; may be reworded at any time
    argument: str = ""  # the argument that is wrong, as "changes[2].value"; "" when none is

    @property
    def at_field(self) -> str:
        """Returns the message for a form, which shows it at the field: without the argument in front of it."""
        return self.message.removeprefix(f"{self.argument}: ")


class FaultError(Exception):
    """An exception that carries a Fault. A subclass sets ``default``, the code of those raised without one."""

    default = Code.INTERNAL

    def __init__(self, message: str, *, code: Code | None = None, argument: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(self.default if code is None else code, message, argument)

    @property
    def code(self) -> Code:
        """Returns the fault's code."""
        return self.fault.code

    @property
    def argument(self) -> str:
        """Returns the argument that is wrong; "" when none is."""
        return self.fault.argument
