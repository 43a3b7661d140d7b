"""The ASGI application that uvicorn serves: Django, and one listener to the core that all live pages share."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import warnings
from types import FrameType

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
_django = get_asgi_application()

from appliance.live.hub import Hub  # noqa: E402  # models need the applications to be loaded
from appliance.live.listening import listening  # noqa: E402

# WhiteNoise reads a static file in a thread of Django's, a piece at a time; Django would rather have it asynchronous.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
_PR_SET_PDEATHSIG = 1  # prctl(2)


async def application(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Serves one connection: Django's, or the start and end of the server."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    else:
        await _django(scope, receive, send)  # type: ignore[arg-type]  # the same in other words


async def _lifespan(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    async with contextlib.AsyncExitStack() as stack:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                _end_with_parent()
                _end_streams_first(await stack.enter_async_context(listening()))
                await send({"type": "lifespan.startup.complete"})
            else:
                await stack.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return


def _end_with_parent() -> None:
    """Ends this portal process, one of several, when the process that started it ends, also after its kill -9."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent.pid:
            signal.raise_signal(signal.SIGTERM)


def _end_streams_first(hub: Hub) -> None:
    """Ends open streams on exit, because uvicorn waits for all open connections."""
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)

        def end(received: int, frame: FrameType | None, before: object = before) -> None:
            hub.end()
            if callable(before):
                before(received, frame)

        signal.signal(number, end)
