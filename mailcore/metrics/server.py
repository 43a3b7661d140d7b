"""The page /metrics over HTTP, if [metrics] listen is set. It runs in the control process, and asks its socket as any client.

Bounded: one answer is made at a time and serves all requests of its second; a client has seconds to ask and to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mailcore.config.settings import Settings
from mailcore.control.client import ControlError
from mailcore.maillog import MailLog
from mailcore.metrics.asking import Asking
from mailcore.metrics.exposition import CONTENT_TYPE, OPEN_CONTENT_TYPE
from mailcore.supervisor.listen import listen

__all__ = ["Page", "run"]

HEAD_BYTES_MAX = 8192
CLIENT_S_MAX = 10.0
CLIENTS_MAX = 20
KEPT_S = 1.0
_ACCEPTS_OPEN = re.compile(rb"\r\naccept:[^\r\n]*application/openmetrics-text", re.IGNORECASE)
RETRY_S = 5.0  # the address may be another process's for a moment


class Page:
    """Answers GET /metrics."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._one_at_a_time = asyncio.Lock()
        self._kept: dict[bool, tuple[float, bytes]] = {}  # by whether it is OpenMetrics: when it was made, and the text
        self._clients = 0

    async def client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request, and closes the connection."""
        self._clients += 1
        try:
            if self._clients <= CLIENTS_MAX:
                async with asyncio.timeout(CLIENT_S_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._clients -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: bytes) -> bytes:
        request = head.partition(b"\r\n")[0]
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"GET /metrics\n", with_body=True)
        if path != b"/metrics":
            return _response("404 Not Found", b"The metrics are at /metrics\n", with_body=method == b"GET")
        is_open = _ACCEPTS_OPEN.search(head) is not None
        try:
            body = await self._text(is_open)
        except ControlError as error:
            return _response("503 Service Unavailable", f"{error}\n".encode(), with_body=method == b"GET")
        kind = OPEN_CONTENT_TYPE if is_open else CONTENT_TYPE
        return _response("200 OK", body, with_body=method == b"GET", kind=kind)

    async def _text(self, is_open: bool) -> bytes:
        async with self._one_at_a_time:
            made_at, text = self._kept.get(is_open, (float("-inf"), b""))
            if time.monotonic() - made_at >= KEPT_S:
                ask = partial(self._asking.text, is_open=is_open)
                text = (await asyncio.get_running_loop().run_in_executor(self._thread, ask)).encode()
                self._kept[is_open] = time.monotonic(), text
            return text


def _response(status: str, body: bytes, *, with_body: bool, kind: str = CONTENT_TYPE) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")


async def run(settings: Settings) -> None:
    """Serves the page until it is cancelled. ``metrics.listen`` is set."""
    complained = False
    while True:
        try:
            listener = listen(settings.metrics.listen, shared=False)
            break
        except OSError as error:
            if not complained:
                log = MailLog(settings.log_directory)
                log.failed("metrics", f"[metrics] listen: {settings.metrics.listen}: {error.strerror or error}")
                log.close()
            complained = True
            await asyncio.sleep(RETRY_S)
    page = Page(Asking(settings))
    server = await asyncio.start_server(page.client, sock=listener, limit=HEAD_BYTES_MAX)
    async with server:
        await server.serve_forever()
