"""Counts each request of the portal, its time, and the streams that are open.

Laws: labels are bounded. A page has the name of its address in the tables, never the address itself; the pages of Django's
administration are one, and requests for no page are one.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

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
        if isinstance(response, StreamingHttpResponse) and isinstance(response.streaming_content, AsyncIterator):
            response.streaming_content = _Counted(response.streaming_content)
        return response


class _Counted:
    """Passes on the parts of a response, which counts as a live page from the first part to its end.

    Django calls ``close`` when the client has left. A generator would end, and be counted down, only when memory is cleaned up.
    """

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts
        self._is_open = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self._is_open:
            self._is_open = True
            STREAMS.inc()
        try:
            return await anext(self._parts)
        except BaseException:  # the end is an exception, too
            self.close()
            raise

    def close(self) -> None:
        """Counts the page down, once."""
        if self._is_open:
            self._is_open = False
            STREAMS.dec()
