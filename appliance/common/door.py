"""The only door to the core: the control client, with the name of the acting user and a time-out.

    core = door(request)
    core.ask("disks", Disks)
    core.ask_change("hold", ChangeResult, {...}, why="asked for by the sender")

Laws: no other code of the portal talks to the core, and no code of the portal opens a file of the queue. A read waits
``core_timeout_s``, a change ``change_timeout_s``; an error is a ControlError, which CoreErrorsMiddleware shows as a page. No
request is sent twice.

Keeps law: one-door (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.http import HttpRequest

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlClient, ControlError, Refused, TimedOut
from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX, Nothing
from mailcore.faults import Code

__all__ = ["Door", "as_outcome", "async_door", "door", "door_of"]

R = TypeVar("R", bound=msgspec.Struct)


class Door:
    """Opens a connection for each question: this costs 0.1 ms, and a slow page occupies no connection."""

    def __init__(self, who: str) -> None:
        self._who = who

    def ask(self, operation: str, result: type[R], arguments: dict[str, Any] | None = None) -> R:
        """Returns the answer as its type in ``mailcore.control.protocol``. Raises ControlError."""
        with self._client(settings.PORTAL.core_timeout_s) as client:
            return client.ask(operation, result, arguments)

    def ask_parts(
        self,
        operation: str,
        result: type[R],
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> Generator[R, None, None]:
        """Yields the parts of a long answer as they come, each as its type. Raises ControlError."""
        with self._client(timeout_s or settings.PORTAL.core_timeout_s) as client:
            yield from client.ask_parts(operation, result, arguments, why=why)

    def parts(
        self, operation: str, arguments: dict[str, Any], *, why: str, timeout_s: float
    ) -> Generator[Any, None, None]:
        """Yields the parts of an answer as they are, for a caller that passes them on. Raises ControlError."""
        with self._client(timeout_s) as client:
            yield from client.parts(operation, arguments, why=why)

    def ask_change(self, operation: str, result: type[R], arguments: dict[str, Any], *, why: str) -> R:
        """Returns the answer as its type, once the change is synced. Raises ControlError."""
        with self._client(settings.PORTAL.change_timeout_s) as client:
            try:
                return client.ask(operation, result, arguments, why=why)
            except Refused as error:
                raise as_outcome(error) from error

    def inject(
        self, sender: str, recipients: list[str], message: bytes, *, why: str, not_before: float | None = None
    ) -> str:
        """Puts a message into the queue; returns its queue id after it is synced. Raises ControlError.

        ``not_before``: wall clock, in seconds; None: it is due at once.
        """
        arguments = {"sender": sender, "recipients": recipients, "not_before": not_before}
        return self.inject_as(arguments, message, why=why).queue_id

    def inject_as(self, arguments: dict[str, Any], message: bytes, *, why: str) -> Injected:
        """Puts a message into the queue with the arguments of ``inject_begin``. Raises ControlError."""
        with self._client(settings.PORTAL.change_timeout_s) as client:
            try:
                client.ask("inject_begin", Injected, arguments, why=why)
                for begin in range(0, len(message), CHUNK_BYTES_MAX):
                    client.ask("inject_data", Nothing, {"data": message[begin : begin + CHUNK_BYTES_MAX]})
                return client.ask("inject_end", Injected, why=why)
            except Refused as error:
                raise as_outcome(error) from error

    def _client(self, timeout_s: float) -> ControlClient:
        return ControlClient(settings.CONTROL_SOCKET, who=self._who, timeout_s=timeout_s)


def as_outcome(error: Refused) -> ControlError:
    """Returns the error of a change: TimedOut when the manager ended in the middle, which is not a refusal."""
    return TimedOut(str(error)) if error.code is Code.OUTCOME_UNKNOWN else error


def door(request: HttpRequest) -> Door:
    """Returns a door that acts in the name of the signed-in user."""
    return door_of(request.user.get_username() if request.user.is_authenticated else "")


def door_of(who: str) -> Door:
    """Returns a door that acts in this name."""
    return Door(who)


def async_door(who: str, timeout_s: float | None = None, *, skips_silent: bool = False) -> AsyncControlClient:
    """Returns a client for the event loop, with one lasting connection. ``skips_silent``: as in the client."""
    return AsyncControlClient(
        settings.CONTROL_SOCKET,
        who=who,
        timeout_s=timeout_s or settings.PORTAL.core_timeout_s,
        skips_silent=skips_silent,
    )
