"""Speaks to the control socket from an asyncio loop; ``client`` has the blocking client, the errors, and what both do alike.

    async with AsyncControlClient(path) as control:
        answer = await control.ask("size", Size)

Keeps law: never-sent-twice (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mailcore.control.client import (
    READ_BYTES,
    TIMEOUT_S,
    ControlError,
    broken,
    encoded,
    no_connection,
    result_of,
    timed_out,
    typed,
)
from mailcore.control.shard_clients import Several
from mailcore.control.silent_shards import PROBE_S, SilentShards
from mailcore.frames import Frame, FrameDecoder, Request, Response, WireError

if TYPE_CHECKING:
    from mailcore.control.several.step import Step

__all__ = ["AsyncControlClient"]

R = TypeVar("R", bound=msgspec.Struct)


class AsyncControlClient:
    """For an asyncio loop. The arguments and methods are those of ``ControlClient``; several tasks may use it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        who: str = "",
        timeout_s: float = TIMEOUT_S,
        here: bool = False,
        skips_silent: bool = False,
    ) -> None:
        """``skips_silent``: a shard of several that has not answered in time is not waited for again before it answers."""
        self._path = os.fspath(path)
        self._who = who
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._frames: Iterator[Frame] = iter(())
        self._decoder = FrameDecoder()
        self._one_at_a_time = asyncio.Lock()
        self._several: Several[AsyncControlClient] = Several(self._path, here=here)
        self._silent = SilentShards(self._probe) if skips_silent else None

    async def call(self, operation: str, arguments: dict[str, Any] | None = None, *, why: str = "") -> Any:
        """Returns the result of an operation; the last part of a long answer. Raises ControlError."""
        result = None
        async with contextlib.aclosing(self.parts(operation, arguments, why=why)) as parts:
            async for part in parts:
                result = part
        return result

    async def ask(
        self, operation: str, result: type[R], arguments: dict[str, Any] | None = None, *, why: str = ""
    ) -> R:
        """Returns the result, of a long answer the last part, as its type. Raises ControlError, as ``ControlClient.ask``."""
        return typed(operation, result, await self.call(operation, arguments, why=why))

    async def parts(
        self, operation: str, arguments: dict[str, Any] | None = None, *, why: str = ""
    ) -> AsyncGenerator[Any, None]:
        """Yields the parts of the answer as they arrive. Raises ControlError."""
        async with self._one_at_a_time:
            if self._several.look():
                several = self._parts_of_several(operation, arguments or {}, why)
                async with contextlib.aclosing(several):
                    async for part in several:
                        yield part
                return
            number = next(self._numbers)
            request = encoded(Request(number, operation, arguments or {}, self._who, why))
            reader, writer = await self._connect()
            finished = False
            try:
                writer.write(request)
                while not finished:
                    async with asyncio.timeout(self._timeout_s):
                        response = await self._read(reader, number)
                    finished = response.last or response.error is not None
                    yield result_of(response)
            except TimeoutError:
                raise timed_out(operation, arguments) from None
            except (OSError, WireError) as error:
                raise broken(str(self._path), operation, arguments, error) from None
            finally:
                if not finished:
                    await self.close()

    async def ask_parts(
        self, operation: str, result: type[R], arguments: dict[str, Any] | None = None, *, why: str = ""
    ) -> AsyncGenerator[R, None]:
        """Yields the parts of the answer as ``parts`` does, each as its type. Raises ControlError, as ``ask``."""
        async with contextlib.aclosing(self.parts(operation, arguments, why=why)) as parts:
            async for part in parts:
                yield typed(operation, result, part)

    async def _parts_of_several(self, operation: str, arguments: dict[str, Any], why: str) -> AsyncGenerator[Any, None]:
        """Yields the parts of one answer of several shards. Raises ControlError."""
        opened: dict[int, AsyncGenerator[Any, None]] = {}
        asked: dict[int, Step] = {}
        taking = self._several.taking(operation, arguments)
        try:
            for step in taking:
                if step.is_emit:
                    yield step.part
                    continue
                try:
                    if step.is_open:
                        if step.shard in opened:
                            await opened.pop(step.shard).aclose()
                        if self._silent is not None:
                            self._silent.look(self._several.path_of(step.shard))
                        asked[step.shard] = step
                        client = self._several.client(step.shard, self._shard_client)
                        opened[step.shard] = client.parts(step.operation, step.arguments, why=why)
                    else:
                        taking.gave = await anext(opened[step.shard], None)
                except ControlError as error:
                    if self._silent is not None and not step.is_open:
                        question = asked[step.shard]
                        path = self._several.path_of(step.shard)
                        self._silent.failed(path, question.operation, question.arguments, error)
                    taking.failed = self._several.failed(step.shard, error)
        finally:
            for each in opened.values():
                await each.aclose()

    def _shard_client(self, path: str) -> AsyncControlClient:
        return AsyncControlClient(path, who=self._who, timeout_s=self._timeout_s)

    async def _probe(self, path: str, operation: str, arguments: dict[str, Any]) -> None:
        async with AsyncControlClient(path, who=self._who, timeout_s=PROBE_S) as client:
            await client.call(operation, arguments)

    async def close(self) -> None:
        """Closes the connection; the next call connects again."""
        if self._silent is not None:
            await self._silent.close()
        for client in self._several.forget():
            await client.close()
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def __aenter__(self) -> AsyncControlClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            try:
                self._streams = await asyncio.open_unix_connection(self._path)
            except OSError as error:
                raise no_connection(self._path, error) from None
            self._decoder = FrameDecoder()
            self._frames = iter(())
        return self._streams

    async def _read(self, reader: asyncio.StreamReader, number: int) -> Response:
        while True:
            for frame in self._frames:
                if isinstance(frame, Response) and frame.number in (number, 0):
                    return frame
            data = await reader.read(READ_BYTES)
            if not data:
                raise ControlError(f"{self._path}: the control process ended the connection; ask again")
            self._frames = self._decoder.feed(data)
