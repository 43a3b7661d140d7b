"""Counts each request of the portal, its time, and the streams that are open.

Laws: labels are bounded. A page has the name of its address in the tables, never the address itself; the pages of Django's
administration are one, and requests for no page are one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from appliance.metrics.families import REQUEST_SECONDS, REQUESTS, STREAMS

__all__ = ["MetricsMiddleware", "page_of"]

ADMINISTRATION = "admin"
NO_PAGE = "none"
GetResponse = Callable[[HttpRequest], HttpResponseBase]


def page_of(request: HttpRequest) -> str:
    """Returns the name of the page that a request was for."""
    match = request.resolver_match
    if match is None:
        return NO_PAGE
    return ADMINISTRATION if ADMINISTRATION in match.namespaces else match.view_name or NO_PAGE


class MetricsMiddleware:
    """Counts requests; it is the outermost, so that the time is that of all others, too."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        begun = time.perf_counter()
        response = self._get_response(request)
        page = page_of(request)
        REQUESTS.labels(page, f"{response.status_code // 100}xx").inc()
        REQUEST_SECONDS.labels(page).observe(time.perf_counter() - begun)
        if isinstance(response, StreamingHttpResponse) and response.is_async:
            response.streaming_content = _counted(response.streaming_content)
        return response


async def _counted(events: Any) -> AsyncIterator[bytes]:
    STREAMS.inc()
    try:
        async for event in events:
            yield event
    finally:
        STREAMS.dec()
