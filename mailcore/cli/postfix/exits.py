"""Exit statuses of sysexits.h, which callers of sendmail know, and the exception that ends a command with one."""

from __future__ import annotations

__all__ = ["CONFIG", "DATAERR", "NOUSER", "OK", "SOFTWARE", "TEMPFAIL", "UNAVAILABLE", "USAGE", "Ended"]

OK = 0
USAGE = 64
DATAERR = 65
NOUSER = 67
UNAVAILABLE = 69
SOFTWARE = 70
TEMPFAIL = 75  # the message was not taken; try again later
CONFIG = 78


class Ended(Exception):
    """Ends a command with an exit status; the text goes to stderr."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
