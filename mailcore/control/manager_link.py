"""Holds control's one connection to the manager: requests out, answers in. Connects again when the connection breaks.

Laws: while the manager is away a request fails at once and says so; a request that was under way when the connection broke
fails as *unknown*, because its record may have been written. Nothing is sent twice. Bounded: at most REQUESTS_MAX requests
wait for an answer.

Keeps law: never-sent-twice (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Any, TypeVar

import msgspec

from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import FrameDecoder, Hello, Request, Response, WireError, encode

__all__ = ["ManagerAway", "ManagerLink", "ManagerRefused", "NotUnderstood", "OutcomeUnknown"]

R = TypeVar("R", bound=msgspec.Struct)

REQUESTS_MAX = 1_000
RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0  # a restarted manager is seen within a second
ANSWER_S_MAX = 60.0  # a disk may take long to sync; beyond it something is broken
READ_BYTES = 256 << 10


class ManagerAway(FaultError):
    """The manager was not asked: it is not running, or has too many requests to answer. Nothing was done."""

    default = Code.UNAVAILABLE


class OutcomeUnknown(FaultError):
    """The manager was asked and did not answer. A change may have been made."""

    default = Code.OUTCOME_UNKNOWN


class ManagerRefused(FaultError):
    """The manager answered with a fault."""

    @classmethod
    def of(cls, fault: Fault) -> ManagerRefused:
        """Returns the exception for the manager's fault."""
        return cls(fault.message, code=fault.code, argument=fault.argument)


class NotUnderstood(FaultError):
    """The manager answered with something that is not of the operation's type."""

    default = Code.INTERNAL


class ManagerLink:
    """Call ``run`` as a task once; ``call``, ``ask`` and ``order`` from anywhere in the loop."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self.tried = asyncio.Event()  # the first attempt to connect is over

    @property
    def connected(self) -> bool:
        """Returns whether the manager is connected now."""
        return self._writer is not None

    async def run(self) -> None:
        """Connects, reads answers, connects again; ends only by being cancelled."""
        delay = RECONNECT_S_MIN
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                self.tried.set()
                await asyncio.sleep(delay)
                delay = min(delay * 2, RECONNECT_S_MAX)
                continue
            delay = RECONNECT_S_MIN
            writer.write(encode(Hello("control", 0, os.getpid())))
            self._writer = writer
            self.tried.set()
            try:
                await self._read(reader)
            finally:
                self._writer = None
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                self._break_off()
            await asyncio.sleep(delay)

    async def call(self, operation: str, arguments: dict[str, Any], who: str = "", why: str = "") -> Any:
        """Returns the result. Raises ManagerAway, ManagerRefused, OutcomeUnknown."""
        if self._writer is None:
            raise ManagerAway("the manager is not running; mail is still accepted while the disk has room")
        if len(self._waiting) >= REQUESTS_MAX:
            raise ManagerAway(f"the manager has {REQUESTS_MAX} requests to answer already; try again", code=Code.BUSY)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(encode(Request(number, operation, arguments, who, why)))
            async with asyncio.timeout(ANSWER_S_MAX):
                return await future
        except TimeoutError:
            raise OutcomeUnknown(
                f"the manager has not answered {operation} for {ANSWER_S_MAX:g} s; whether it was done is not known"
            ) from None
        finally:
            self._waiting.pop(number, None)

    async def ask(
        self, operation: str, result: type[R], arguments: dict[str, Any] | None = None, who: str = "", why: str = ""
    ) -> R:
        """Returns the result as its type. Raises what ``call`` raises, and NotUnderstood for an answer of another shape."""
        answer = await self.call(operation, arguments or {}, who, why)
        try:
            return msgspec.convert(answer, result)
        except msgspec.ValidationError as error:
            message = (
                f"the manager's answer to {operation} is not understood; manager and control may be of two versions"
            )
            raise NotUnderstood(f"{message}: {error}") from None

    async def order(self, operation: str, result: type[R], arguments: dict[str, Any], who: str, why: str) -> R:
        """Returns the result of a change as its type. Raises what ``call`` raises.

        An answer of another shape is an OutcomeUnknown, too: the change may have been made.
        """
        try:
            return await self.ask(operation, result, arguments, who, why)
        except NotUnderstood as error:
            raise OutcomeUnknown(f"{error}; whether it was done is not known") from None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        decoder = FrameDecoder()
        while True:
            try:
                data = await reader.read(READ_BYTES)
                if not data:
                    return
                for frame in decoder.feed(data):
                    if isinstance(frame, Response):
                        self._answer(frame)
            except (OSError, WireError):
                return

    def _answer(self, response: Response) -> None:
        future = self._waiting.get(response.number)
        if future is None or future.done() or not response.last:
            return
        if response.error is not None:
            future.set_exception(ManagerRefused.of(response.error))
        else:
            future.set_result(response.result)

    def _break_off(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    OutcomeUnknown("the manager ended while it was asked; whether it was done is not known: look again")
                )
