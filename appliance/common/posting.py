"""Posts signed JSON to a web address: for the webhooks of alerts and of events.

Laws
- An attempt ends within its time, also with a server that sends a byte now and then.
- A redirection is not followed: a signed request goes where its setting says.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from appliance.common.templatetags.waypost import visible

__all__ = ["SIGNATURE", "TIMESTAMP", "Answer", "deadline", "post", "signature", "signed"]

TIMESTAMP, SIGNATURE = "X-Waypost-Timestamp", "X-Waypost-Signature"
ANSWER_CHARACTERS = 300


class Answer(NamedTuple):
    """The answer of a web server: its status, and words that are harmless to show."""

    status: int
    words: str

    @property
    def good(self) -> bool:
        """Returns whether the server has taken the request."""
        return 200 <= self.status < 300


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Returns the signature of a request: HMAC-SHA256 over timestamp, a full stop, and the body."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def signed(secret: bytes, at: float, body: bytes) -> dict[str, str]:
    """Returns the headers that sign a body. ``at``: wall clock, in seconds since 1970."""
    timestamp = str(int(at))
    return {TIMESTAMP: timestamp, SIGNATURE: signature(secret, timestamp, body)}


def post(url: str, body: bytes, headers: Mapping[str, str], *, read_s: float, total_s: float) -> Answer:
    """Posts JSON; returns the answer, also one that refuses. ``read_s``: for connecting and for each read, ``total_s``: for
    all. Raises OSError, http.client.HTTPException, ValueError."""
    parts = urlsplit(url)
    kind = {"Content-Type": "application/json", "User-Agent": "Waypost"}
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=read_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=read_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    with deadline(lambda: connection.sock, total_s), contextlib.closing(connection):
        connection.request("POST", path, body, {**kind, **headers})
        answer = connection.getresponse()
        text = answer.read(ANSWER_CHARACTERS).decode("utf-8", "replace")
    words = visible(f"{answer.status} {answer.reason} {text}".strip())[:ANSWER_CHARACTERS]
    return Answer(answer.status, words)


@contextlib.contextmanager
def deadline(current: Callable[[], socket.socket | None], total_s: float) -> Iterator[None]:
    """Breaks the connection after ``total_s``: a time-out of a socket holds for each read only."""

    def cut() -> None:
        connection = current()
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(total_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
