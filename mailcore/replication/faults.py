"""The errors of the store: what the caller may conclude from each.

- ``Lost``: nothing is known about the statement that was under way (law: unknown-until-own-write).
- ``ServerError``: the server answered ERROR, so this statement changed nothing.
- ``StoreRefused``: the database does not keep what it is given, or is not ours; its fault names the setting and the remedy.
- ``Fenced``: another owner, or another process of the same writer, has this row; the process must end.
- ``BackInTime``: the database has less than it once confirmed; nothing may be delivered until a person has decided.

Keeps law: unknown-until-own-write (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.faults import Code, Fault, FaultError

__all__ = ["BackInTime", "Fenced", "Lost", "NotReached", "ServerError", "StoreError", "StoreRefused"]


class StoreError(FaultError):
    """The family of errors of the store."""


class Lost(StoreError):
    """Raised if the connection ended, or was ended for a time-out, with a statement under way: its outcome is unknown."""

    default = Code.OUTCOME_UNKNOWN


class NotReached(StoreError):
    """Raised if no member of the cluster takes writes from us now. Nothing was sent."""

    default = Code.UNAVAILABLE


class ServerError(StoreError):
    """Raised for an ERROR of the server: the transaction of this statement was rolled back."""

    default = Code.INTERNAL

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class StoreRefused(StoreError):
    """Raised if the database must not be used as it is. ``faults`` has a sentence for each reason; the first is the error's."""

    default = Code.INVALID

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults[0].message, code=faults[0].code, argument=faults[0].argument)
        self.faults = tuple(faults)


class Fenced(StoreError):
    """Raised if the row of a writer or of a shard is not ours any more. Nothing that was not confirmed will be written."""

    default = Code.CONFLICT


class BackInTime(StoreError):
    """Raised if the database says less than it once confirmed: it was restored to an earlier time, or lost commits."""

    default = Code.CONFLICT
