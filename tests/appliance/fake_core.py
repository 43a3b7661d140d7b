"""A core that answers what a test gives it, in real frames, behind the real socket of the portal's settings.

    with FakeCore({"routes": {...}, "resolve": "no such operation", "ages": Parts([{...}, {...}])}) as core:
        client.get("/routes/")
        assert core.asked("routes") == [{}]

An answer is a value, Parts, a Refusal, Silence (no answer ever comes), or a function of the arguments that gives one of these.
A field that a value lacks gets one of its type.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from django.conf import settings

from mailcore.faults import Code, Fault
from mailcore.frames import FrameDecoder, Request, Response, encode
from tests.answers import answer_of

__all__ = ["FakeCore", "Parts", "Refusal", "Silence"]


class Parts(list[Any]):
    """A long answer: one response each."""


class Refusal(str):
    """What the core says instead of an answer, with its code and the argument that is wrong."""

    code: Code
    argument: str

    def __new__(cls, message: str, code: Code = Code.CONFLICT, argument: str = "") -> Refusal:
        made = super().__new__(cls, message)
        made.code, made.argument = code, argument
        return made


class Silence:
    """Nothing is ever answered."""


class FakeCore:
    def __init__(self, answers: Mapping[str, Any | Callable[[dict[str, Any]], Any]], path: Path | None = None) -> None:
        """``path``: the socket; None: that of the portal's settings."""
        self.answers = dict(answers)
        self.requests: list[Request] = []
        self._path = path or Path(settings.CONTROL_SOCKET)
        self._server: socket.socket | None = None
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def asked(self, operation: str) -> list[dict[str, Any]]:
        """The arguments it was asked with, each time."""
        return [request.arguments for request in self.requests if request.operation == operation]

    def __enter__(self) -> FakeCore:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(os.fspath(self._path))
        self._server.listen()
        self._go(self._accept, self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        for each in (self._server, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for each in (self._server, *self._open):
            each.close()
        self._path.unlink(missing_ok=True)

    def _go(self, target: Callable[[socket.socket], None], connection: socket.socket) -> None:
        thread = threading.Thread(target=target, args=(connection,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                self._open.append(connection)
                self._go(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                for frame in decoder.feed(data):
                    assert isinstance(frame, Request)
                    self.requests.append(frame)
                    for response in self._responses(frame):
                        connection.sendall(encode(response))

    def _responses(self, request: Request) -> list[Response]:
        answer = self.answers.get(request.operation, Refusal(f"there is no operation {request.operation!r}"))
        if callable(answer) and not isinstance(answer, type):
            answer = answer(request.arguments)
        if answer is Silence or isinstance(answer, Silence):
            return []
        if isinstance(answer, Refusal):
            return [Response(request.number, None, Fault(answer.code, str(answer), answer.argument))]
        parts = answer if isinstance(answer, Parts) else [answer]
        return [
            Response(request.number, answer_of(request.operation, part), last=at == len(parts))
            for at, part in enumerate(parts, 1)
        ]
