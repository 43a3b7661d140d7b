"""A value that is set live: its scope as the routes spell it, and the value as the scheduler takes it.

The manager sets values with these functions; the control process checks with the same ones what would be allowed. Laws: no
I/O; an error names the argument that is wrong: scope, parameter, value or until.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mailcore.config.settings import Settings
from mailcore.config.values import destination_pattern
from mailcore.faults import Code, FaultError
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, allowed_in

__all__ = ["LiveValueError", "known_transport", "naming_argument", "settable", "spelled_scope"]


class LiveValueError(FaultError):
    """A value that cannot be set; the message says what is allowed."""

    default = Code.INVALID


def known_transport(settings: Settings, name: str, message: str, argument: str = "scope") -> None:
    """Raises LiveValueError (NOT_FOUND) with this message when the configuration has no such transport."""
    if name not in settings.transports:
        raise LiveValueError(message, code=Code.NOT_FOUND, argument=argument)


def spelled_scope(settings: Settings, text: str, argument: str = "scope") -> str:
    """Returns a scope in its one spelling, as the routes give it. Raises LiveValueError for a destination that cannot be."""
    transport, colon, rest = text.partition(":")
    if not colon:
        return text
    there_are = ", ".join(settings.transports)
    message = f"{argument}: {text!r}: there is no transport {transport!r}; there are {there_are}"
    known_transport(settings, transport, message, argument)
    try:
        return f"{transport}:{destination_pattern(rest, settings.deliverer.port)}"
    except ValueError as error:
        raise LiveValueError(f"{argument}: {error}", argument=argument) from None


def settable(parameter: str) -> None:
    """Raises LiveValueError for ``suspended_until``, which has operations of its own."""
    if parameter == SUSPENDED_UNTIL:
        raise LiveValueError(
            f"{parameter} is not set as a parameter is; use destination suspend, destination resume",
            argument="parameter",
        )


@contextlib.contextmanager
def naming_argument(settings: Settings, scope: str, parameter: str, *, is_over: bool = False) -> Iterator[None]:
    """Turns a ValueError of the scheduler into a LiveValueError that names the argument that is wrong.

    ``is_over``: the value is for a time that has ended.
    """
    try:
        yield
    except ValueError as error:
        transport = scope.partition(":")[0]
        if scope and transport not in settings.transports:
            raise LiveValueError(str(error), code=Code.NOT_FOUND, argument="scope") from error
        argument = "parameter" if parameter not in allowed_in(scope) else "until" if is_over else "value"
        raise LiveValueError(str(error), argument=argument) from error
