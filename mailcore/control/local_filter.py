"""The interface to the milters of mail that does not come over SMTP (``[receiver] non_smtpd_milters``): only types.

A process without such milters loads nothing of them: it is given ``no_filter``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from mailcore.envelope import Envelope, Recipient
from mailcore.queue.spool import Spool, SpoolFile

__all__ = ["Filtered", "LocalFilter", "OpenFilter", "WaitingData", "no_filter"]


class WaitingData(Protocol):
    """The data of a message until the milters have decided, in a file without a name: used as a ``SpoolFile``."""

    data_bytes: int

    def write(self, buffers: list[bytes]) -> None:
        """Appends data as on the wire. Raises OSError."""

    def abandon(self) -> None:
        """Gives the file back."""


class Filtered(NamedTuple):
    """The result. ``envelope`` and the data are as the milters left them; ``refused`` are recipients to return at once.

    ``file`` is written, but not complete; None: the data is ``data``. ``why`` not empty: nothing of it counts, and the message
    must wait; ``is_failure``: because a milter failed, which the next message would meet, too.
    """

    envelope: Envelope
    data: bytes = b""
    file: SpoolFile | None = None
    refused: tuple[Recipient, ...] = ()
    why: str = ""
    is_failure: bool = False


class LocalFilter(Protocol):
    """Shows messages to the milters. The calls block and run in threads."""

    def waiting(self, spool: Spool, queue_id: str) -> WaitingData:
        """Returns a file for the data of a message. Raises OSError."""

    def ask(
        self,
        spool: Spool,
        envelope: Envelope,
        data: bytes | WaitingData,
        *,
        inline_limit: int,
        recipients_max: int,
        own_fields: int = 1,
    ) -> Filtered:
        """Shows a message with all its recipients in ``envelope``. ``inline_limit``: -1 for a spool file in any case.

        ``own_fields``: how many fields at the top are ours: Received, or what a header check made of it.

        A message that a header check returns or discards (its recipients have a route) is not shown. Raises OSError if our
        disk fails.
        """


OpenFilter = Callable[..., "LocalFilter | None"]
"""Opens the milters: (settings). None if there are none."""


def no_filter(settings: Any) -> None:
    """Stands for ``OpenFilter`` in tests of processes without such milters."""
    if settings.receiver.non_smtpd_milters:  # mail would pass that no milter has seen
        raise RuntimeError("non_smtpd_milters is set, and this process has nothing that asks them")
