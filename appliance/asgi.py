"""What uvicorn serves: Django, and for as long as the server runs the one listener to the core that all live pages share."""

from __future__ import annotations

import contextlib
import os

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, LifespanScope, Scope
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
_django = get_asgi_application()

from appliance.live.listening import listening  # noqa: E402  # models need the applications to be loaded


async def application(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(scope, receive, send)
    else:
        await _django(scope, receive, send)  # type: ignore[arg-type]  # the same in other words


async def _lifespan(scope: LifespanScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    async with contextlib.AsyncExitStack() as stack:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await stack.enter_async_context(listening())
                await send({"type": "lifespan.startup.complete"})
            else:
                await stack.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
