"""A manager that answers what the test says, on a real Unix socket, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mailcore.control.protocol.changes import CHANGES
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import Frame, FrameDecoder, Hello, Request, Response, encode
from mailcore.manager_answers import Ordered, Progress, Reason, Reasons, Working
from tests.answers import Exactly, answer_of, complete

Answer = Callable[[dict[str, Any]], Any]


def progress(lane: str = "incoming.0", offset: int = 0, **more: Any) -> Progress:
    """How far an active message is: one recipient left and nothing done, unless the test says more."""
    known: dict[str, Any] = {
        "remaining": 1,
        "in_flight": 0,
        "generation": 0,
        "done": [],
        "replies": {},
        "destinations": [],
        "states": {},
    }
    return Progress(lane=lane, offset=offset, **(known | more))


def working(**messages: Progress) -> Working:
    return Working(messages=messages)


def reasons(*sentences: str) -> Reasons:
    return Reasons(reasons=[Reason(state="next", recipients=1, sentence=each) for each in sentences])


class Silence(Exception):
    """Raised by an answer: none is given."""


class FakeManager:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.hello: list[Hello] = []
        self.requests: list[Request] = []
        self.answers: dict[str, Answer] = {
            "cut": lambda _: {"lanes": {}},
            "working": lambda _: Working(messages={}),
            "explain": lambda _: Reasons(reasons=[]),
        }
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """As if it were killed."""
        self.lose_connections()

    def lose_connections(self) -> None:
        """What ``stop`` does, for an answer."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._server = None

    def asked(self, operation: str) -> list[Request]:
        return [request for request in self.requests if request.operation == operation]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                for frame in decoder.feed(data):
                    self._frame(writer, frame)
        self._writers.discard(writer)
        writer.close()

    def _frame(self, writer: asyncio.StreamWriter, frame: Frame) -> None:
        if isinstance(frame, Hello):
            self.hello.append(frame)
            return
        assert isinstance(frame, Request)
        self.requests.append(frame)
        answer = self.answers.get(frame.operation)
        if answer is None:
            fault = Fault(Code.INVALID, f"the manager knows no operation {frame.operation!r}")
            writer.write(encode(Response(frame.number, None, fault)))
            return
        try:
            given = answer(frame.arguments)
            change = frame.operation in CHANGES or frame.operation == "add_recipients"
            change = change and not isinstance(given, Exactly)
            whole = complete(Ordered, given) if change else answer_of(frame.operation, given)
            writer.write(encode(Response(frame.number, whole)))
        except FaultError as error:
            writer.write(encode(Response(frame.number, None, error.fault)))
        except ValueError as error:
            writer.write(encode(Response(frame.number, None, Fault(Code.INVALID, str(error)))))
        except Silence:
            pass
