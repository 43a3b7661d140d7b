"""A receiver of webhooks, with a behaviour: it takes, is slow, answers 500, redirects, dies before it answers, or is away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

__all__ = ["Receiver", "Taken", "receiving"]


class Taken(NamedTuple):
    delivery: str
    attempt: int
    status: int
    events: list[dict[str, Any]]
    headers: dict[str, str]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class Receiver:
    """``behaviour``: good, slow (late by ``slow_s``), broken (500), moved (302), dying (takes all and does not answer)."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.behaviour = "good"
        self.slow_s = 0.0
        self.got: list[Taken] = []
        self._server: _Server | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/hook"

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.behaviour == "slow":
                    time.sleep(receiver.slow_s)
                status = {"broken": 500, "moved": 302}.get(receiver.behaviour, 204)
                # What is taken counts also if the answer does not arrive: then it comes again.
                receiver.got.append(
                    Taken(
                        self.headers["X-Waypost-Delivery"], int(self.headers["X-Waypost-Attempt"]), status,
                        json.loads(body)["events"], dict(self.headers), body,
                    )
                )  # fmt: skip
                if receiver.behaviour == "dying":
                    self.close_connection = True
                    return
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", receiver.url)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server((self.host, self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """It is away: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def taken(self) -> list[Taken]:
        """Requests that were answered with 2xx."""
        return [each for each in list(self.got) if each.status < 300]


@contextmanager
def receiving(host: str = "127.0.0.1") -> Iterator[Receiver]:
    receiver = Receiver(host)
    try:
        yield receiver
    finally:
        receiver.stop()
