"""Holds control's one connection to the manager: requests out, answers in. Connects again when the connection breaks.

Laws: while the manager is away a request fails at once and says so; a request that was under way when the connection broke
fails as *unknown*, because its record may have been written. Nothing is sent twice. Bounded: at most REQUESTS_MAX requests
wait for an answer. A manager that is connected and silent (stopped, or stuck) costs one question QUESTION_S_MAX; until it
answers again, requests fail at once.

Keeps law: never-sent-twice (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Any, TypeVar

import msgspec

from mailcore.control.intake import Intake
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import FrameDecoder, Hello, Request, Response, WireError, encode

__all__ = ["ManagerAway", "ManagerLink", "ManagerRefused", "NotUnderstood", "OutcomeUnknown"]

R = TypeVar("R", bound=msgspec.Struct)

REQUESTS_MAX = 1_000
RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0  # a restarted manager is seen within a second
ANSWER_S_MAX = 60.0  # of a change: a disk may take long to sync; beyond it something is broken
QUESTION_S_MAX = 1.5  # of what only reads, which is answered in milliseconds; a person hears within two seconds
PROBE_S = 30.0  # between two probes of a silent manager: each waits in its socket until it runs again
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

    def __init__(self, path: str, intake: Intake) -> None:
        self._path = path
        self._intake = intake
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._silent: asyncio.Task[None] | None = None  # asks until the manager answers again
        self.tried = asyncio.Event()  # the first attempt to connect is over

    @property
    def absence(self) -> str:
        """Returns why the manager can't be asked now, as the beginning of a sentence; "" while it answers."""
        if self._writer is None:
            return "the manager is not running"
        return "" if self._silent is None else "the manager runs but does not answer"

    async def away(self, more: str = "") -> ManagerAway:
        """Returns the exception for a manager that can't be asked; ``more``: a clause on what can't be done."""
        clauses = [self.absence, *([more] if more else []), await self._intake.state()]
        return ManagerAway("; ".join(clauses))

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
                self._answers_again()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                self._break_off()
            await asyncio.sleep(delay)

    async def call(self, operation: str, arguments: dict[str, Any], who: str = "", why: str = "") -> Any:
        """Returns the result of a change. Raises ManagerAway, ManagerRefused, OutcomeUnknown."""
        try:
            return await self._call(operation, arguments, ANSWER_S_MAX, who, why)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the manager has not answered {operation} for {ANSWER_S_MAX:g} s; whether it was done is not known"
            ) from None

    async def _call(
        self, operation: str, arguments: dict[str, Any], within_s: float, who: str = "", why: str = ""
    ) -> Any:
        """Returns the result. Raises ManagerAway, ManagerRefused, OutcomeUnknown, TimeoutError."""
        if self._writer is None or self._silent is not None:
            raise await self.away()
        if len(self._waiting) >= REQUESTS_MAX:
            raise ManagerAway(f"the manager has {REQUESTS_MAX} requests to answer already; try again", code=Code.BUSY)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(encode(Request(number, operation, arguments, who, why)))
            async with asyncio.timeout(within_s):
                return await future
        finally:
            self._waiting.pop(number, None)

    async def ask(
        self, operation: str, result: type[R], arguments: dict[str, Any] | None = None, who: str = "", why: str = ""
    ) -> R:
        """Returns the answer to a question as its type. Raises ManagerAway, also if the manager ends meanwhile, ManagerRefused,
        and NotUnderstood for an answer of another shape."""
        try:
            answer = await self._call(operation, arguments or {}, QUESTION_S_MAX, who, why)
        except OutcomeUnknown:  # a question changes nothing
            raise ManagerAway("the manager ended while it was asked; ask again") from None
        except TimeoutError:
            self._say_it_is_silent()
            raise await self.away() from None
        return self._understood(operation, result, answer)

    def _understood(self, operation: str, result: type[R], answer: object) -> R:
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
        answer = await self.call(operation, arguments, who, why)
        try:
            return self._understood(operation, result, answer)
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

    def _say_it_is_silent(self) -> None:
        if self._silent is None and self._writer is not None:
            self._silent = asyncio.get_running_loop().create_task(self._probe(self._writer))

    async def _probe(self, writer: asyncio.StreamWriter) -> None:
        """Asks what is cheap to answer; an answer to anything ends this task."""
        while True:
            writer.write(encode(Request(next(self._numbers), "cut", {})))
            await asyncio.sleep(PROBE_S)

    def _answers_again(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def _answer(self, response: Response) -> None:
        self._answers_again()
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
