"""Speaks to the control socket: a blocking client for the command line and the portal (``async_client`` has the other).

    with ControlClient(path) as control:
        control.call("delete", {"queue_ids": [...]}, why="asked for by the sender")
        for part in control.parts("show", {"queue_id": "..."}):
            ...

One request at a time. An error is a ``ControlError`` with a code and a text for a person: ``NotRunning`` when no process
listens, ``TimedOut`` when no answer comes, ``Refused`` with the fault that was answered. After any but ``Refused`` the client
connects again with the next call; nothing is ever sent twice.

Keeps law: never-sent-twice (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from mailcore.config.waiting import waits_in
from mailcore.control.control_errors import (
    ControlError,
    NotRunning,
    NotUnderstood,
    Refused,
    TimedOut,
    Waits,
)
from mailcore.control.shard_clients import Several
from mailcore.faults import Code
from mailcore.frames import Frame, FrameDecoder, Request, Response, WireError, encode

__all__ = [
    "READ_BYTES",
    "TIMEOUT_S",
    "ControlClient",
    "ControlError",
    "NotRunning",
    "NotUnderstood",
    "Refused",
    "TimedOut",
    "Waits",
    "broken",
    "encoded",
    "no_connection",
    "result_of",
    "timed_out",
    "typed",
]

TIMEOUT_S = 90.0  # for each part; the control process itself waits 60 s for the manager
READ_BYTES = 256 << 10
R = TypeVar("R", bound=msgspec.Struct)


def no_connection(path: str, error: OSError) -> NotRunning:
    """Returns the error of a socket that cannot be connected to, with what to do about it."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError) and (why := waits_in(Path(path).parent)):
        return Waits(why)
    if isinstance(error, FileNotFoundError):
        missing = f"Waypost is not running: no control socket at {path}"
        return NotRunning(f"{missing}. If it runs with another home, pass --config FILE.")
    if isinstance(error, ConnectionRefusedError):
        return NotRunning(f"Waypost is not running: no process listens on {path}. See waypost doctor.")
    if isinstance(error, PermissionError):
        forbidden = f"this user (uid {os.getuid()}) has no permission to use the control socket; see [control] group"
        return NotRunning(f"{path}: {forbidden}", code=Code.FORBIDDEN)
    return NotRunning(f"{path}: {error.strerror or error}")


def result_of(response: Response) -> Any:
    """Returns the result in a response. Raises Refused."""
    if response.error is not None:
        raise Refused.of(response.error)
    return response.result


def encoded(request: Request) -> bytes:
    """Returns the frame of a request. Raises Refused for text that is not UTF-8."""
    try:
        return encode(request)
    except UnicodeEncodeError as error:  # half of a surrogate pair, or a byte that Python could not decode
        text = error.object.encode("ascii", "backslashreplace").decode()
        raise Refused(f"'{text}' is not UTF-8; nothing was done", code=Code.INVALID) from None


def timed_out(operation: str, arguments: dict[str, Any] | None) -> TimedOut:
    """Returns the error of an operation that was not answered in time."""
    if _only_asks(operation, arguments):
        return TimedOut(f"no answer to {operation} in time", code=Code.UNAVAILABLE)
    return TimedOut(f"no answer to {operation} in time; whether anything was changed is not known")


def broken(path: str, operation: str, arguments: dict[str, Any] | None, error: Exception) -> ControlError:
    """Returns the error of an operation whose connection broke before the answer."""
    code = Code.UNAVAILABLE if _only_asks(operation, arguments) else Code.OUTCOME_UNKNOWN
    return ControlError(f"{path}: the connection broke: {error}", code=code)


def _only_asks(operation: str, arguments: dict[str, Any] | None) -> bool:
    """Returns whether the operation changes nothing: a question, message data, or a count before a change."""
    # Loaded after a failure only: the types of all operations would take a command a third of its start.
    from mailcore.control.protocol.operation import Access
    from mailcore.control.protocol.table import OPERATIONS

    known = OPERATIONS.get(operation)
    if known is not None and known.access is Access.READ:
        return True
    return operation == "data" or bool((arguments or {}).get("dry_run"))


def typed(operation: str, result: type[R], answer: Any) -> R:
    """Returns an answer as its type. Raises NotUnderstood."""
    try:
        return msgspec.convert(answer, result)
    except msgspec.ValidationError as error:
        message = f"the answer to {operation} is not understood; client and server may be of two versions: {error}"
        raise NotUnderstood(message) from None


class ControlClient:
    """Blocking. Not for several threads. ``who``: the acting person, where the server takes this user's word for it; ``here``:
    the shards of other nodes are left out."""

    def __init__(
        self, path: str | os.PathLike[str], *, who: str = "", timeout_s: float = TIMEOUT_S, here: bool = False
    ) -> None:
        self._path = os.fspath(path)
        self._who = who
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._socket: socket.socket | None = None
        self._frames: Iterator[Frame] = iter(())
        self._decoder = FrameDecoder()
        self._several: Several[ControlClient] = Several(self._path, here=here)

    def call(
        self,
        operation: str,
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> Any:
        """Returns the result of an operation; the last part of a long answer. Raises ControlError."""
        result = None
        for part in self.parts(operation, arguments, why=why, timeout_s=timeout_s):
            result = part
        return result

    def ask(
        self,
        operation: str,
        result: type[R],
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> R:
        """Returns the result, of a long answer the last part, as its type in ``mailcore.control.protocol``.

        Raises ControlError, also when the answer is not of this type: client and server are of two versions.
        """
        return typed(operation, result, self.call(operation, arguments, why=why, timeout_s=timeout_s))

    def parts(
        self,
        operation: str,
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> Generator[Any, None, None]:
        """Yields the parts of the answer as they arrive. ``timeout_s`` is for each part. Raises ControlError."""
        if self._several.look():
            yield from self._parts_of_several(operation, arguments or {}, why, timeout_s)
            return
        number = next(self._numbers)
        request = encoded(Request(number, operation, arguments or {}, self._who, why))
        connection = self._connect()
        finished = False
        try:
            connection.settimeout(self._timeout_s if timeout_s is None else timeout_s)
            with contextlib.suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the server's last answer may still be readable
                connection.sendall(request)
            while not finished:
                response = self._read(connection, number)
                finished = response.last or response.error is not None
                yield result_of(response)
        except TimeoutError:
            raise timed_out(operation, arguments) from None
        except (OSError, WireError) as error:
            raise broken(str(self._path), operation, arguments, error) from None
        finally:
            if not finished:  # the rest of the answer must not be read by the next request
                self.close()

    def ask_parts(
        self,
        operation: str,
        result: type[R],
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> Generator[R, None, None]:
        """Yields the parts of the answer as ``parts`` does, each as its type. Raises ControlError, as ``ask``."""
        with contextlib.closing(self.parts(operation, arguments, why=why, timeout_s=timeout_s)) as parts:
            for part in parts:
                yield typed(operation, result, part)

    def _parts_of_several(
        self, operation: str, arguments: dict[str, Any], why: str, timeout_s: float | None
    ) -> Generator[Any, None, None]:
        """Yields the parts of one answer of several shards. Raises ControlError."""
        opened: dict[int, Generator[Any, None, None]] = {}
        taking = self._several.taking(operation, arguments)
        try:
            for step in taking:
                if step.is_emit:
                    yield step.part
                    continue
                try:
                    if step.is_open:
                        if step.shard in opened:
                            opened.pop(step.shard).close()
                        client = self._several.client(step.shard, self._shard_client)
                        opened[step.shard] = client.parts(step.operation, step.arguments, why=why, timeout_s=timeout_s)
                    else:
                        taking.gave = next(opened[step.shard], None)
                except ControlError as error:
                    taking.failed = self._several.failed(step.shard, error)
        finally:
            for each in opened.values():
                each.close()

    def _shard_client(self, path: str) -> ControlClient:
        return ControlClient(path, who=self._who, timeout_s=self._timeout_s)

    def close(self) -> None:
        """Closes the connection; the next call connects again."""
        for client in self._several.forget():
            client.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(self._timeout_s)
            try:
                connection.connect(self._path)
            except OSError as error:
                connection.close()
                raise no_connection(self._path, error) from None
            self._socket = connection
            self._decoder = FrameDecoder()
            self._frames = iter(())
        return self._socket

    def _read(self, connection: socket.socket, number: int) -> Response:
        while True:
            for frame in self._frames:
                if isinstance(frame, Response) and frame.number in (number, 0):  # 0: before anything was asked
                    return frame
            data = connection.recv(READ_BYTES)
            if not data:
                raise ControlError(f"{self._path}: the control process ended the connection; ask again")
            self._frames = self._decoder.feed(data)
