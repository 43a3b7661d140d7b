"""Compresses pages and JSON of the portal. Static files are compressed when they are collected; streams and downloads go as
they are.

The compressed size of a page that repeats parts of its request could betray a secret of the page (BREACH). It cannot here: the
session's cookie is ``SameSite=Lax``, so another site cannot have pages fetched with it again and again; each page masks the
CSRF token in another way; and Django adds up to 100 random bytes to each answer.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

__all__ = ["CompressionMiddleware"]

TYPES = ("text/html", "application/json")


class CompressionMiddleware(GZipMiddleware):
    """Compresses answers of TYPES for browsers that take gzip."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Returns the answer, compressed if it is a page or JSON. A compressed stream would keep its events back."""
        if response.streaming or not response.get("Content-Type", "").startswith(TYPES):
            return response
        return super().process_response(request, response)  # type: ignore[no-any-return, arg-type, unused-ignore]
