"""The errors of the API: a class for each code. A program decides by the class; the text is for a person."""

from __future__ import annotations

__all__ = [
    "Busy",
    "Conflict",
    "Forbidden",
    "Internal",
    "Invalid",
    "NotFound",
    "NotReached",
    "OutcomeUnknown",
    "Unavailable",
    "WaypostError",
    "error_of",
]


class WaypostError(Exception):
    """An error that was answered: its status, and the argument that is wrong, such as ``changes[2].value``."""

    def __init__(self, message: str, *, status: int = 0, argument: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.argument = argument
        self.retry_after_s = retry_after_s


class Invalid(WaypostError):
    """The request is wrong; see ``argument``."""


class NotFound(WaypostError):
    """There is no such message, change, report or operation."""


class Conflict(WaypostError):
    """The state does not allow it; nothing was done."""


class Busy(WaypostError):
    """A limit of the server is reached; nothing was done. Ask again after ``retry_after_s``."""


class Unavailable(WaypostError):
    """The core does not answer; nothing was done. Ask again later."""


class OutcomeUnknown(WaypostError):
    """It may have been done: look before you repeat it, or repeat it with its key."""


class Forbidden(WaypostError):
    """The token is not valid (status 401), or its scopes or its user's role do not allow it (403)."""


class Internal(WaypostError):
    """The server has a bug, or an answer is not understood: client and server are of different releases."""


class NotReached(WaypostError):
    """No portal answers, or its certificate is not valid; nothing was done."""


_CLASSES: dict[str, type[WaypostError]] = {
    "invalid": Invalid,
    "not_found": NotFound,
    "conflict": Conflict,
    "busy": Busy,
    "unavailable": Unavailable,
    "outcome_unknown": OutcomeUnknown,
    "forbidden": Forbidden,
    "internal": Internal,
}


def error_of(code: str, message: str, status: int, argument: str, retry_after_s: float) -> WaypostError:
    """Returns the error for a code."""
    return _CLASSES.get(code, Internal)(message, status=status, argument=argument, retry_after_s=retry_after_s)
