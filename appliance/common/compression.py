"""Compresses pages, JSON and live streams of the portal. Static files are compressed when they are collected; downloads go as
they are.

The compressed size of a page that repeats parts of its request could betray a secret of the page (BREACH). It cannot here: the
session's cookie is ``SameSite=Lax``, so another site cannot have pages fetched with it again and again; each page masks the
CSRF token in another way; and Django adds up to 100 random bytes to each answer.
"""

from __future__ import annotations

import functools
import gzip
import re
import zlib

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware

__all__ = ["STREAM_BEGIN", "CompressionMiddleware", "compressed_event", "takes_gzip"]

TYPES = ("text/html", "application/json")
EVENTS_KEPT = 64  # compressed ones, of pages that are open; one is 1 to 10 kB
HEADER_BYTES = 10
_IS_ZERO = re.compile(r"q=0(\.0*)?")
STREAM_BEGIN = gzip.compress(b"", mtime=0)[:HEADER_BYTES]  # of a stream of gzip that has no end (RFC 1952)


def takes_gzip(request: HttpRequest) -> bool:
    """Returns whether a browser takes answers of gzip."""
    offers = [each.partition(";") for each in request.headers.get("Accept-Encoding", "").replace(" ", "").split(",")]
    return any(name == "gzip" and not _IS_ZERO.fullmatch(weight) for name, _, weight in offers)


@functools.lru_cache(maxsize=EVENTS_KEPT)
def compressed_event(event: bytes) -> bytes:
    """Returns an event compressed so that it may follow any other after STREAM_BEGIN: it refers to nothing before it.

    So an event is compressed once for all readers of a page, as it is rendered once.
    """
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(event) + compressor.flush(zlib.Z_FULL_FLUSH)


class CompressionMiddleware(GZipMiddleware):
    """Compresses answers of TYPES for browsers that take gzip."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Returns the answer, compressed if it is a page or JSON. Django would keep the events of a stream back."""
        if response.streaming or not response.get("Content-Type", "").startswith(TYPES):
            return response
        return super().process_response(request, response)  # type: ignore[no-any-return, arg-type, unused-ignore]
