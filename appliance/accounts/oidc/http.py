"""Requests to the provider: HTTPS (HTTP on this host), no redirects, bounded in time and size.

Law: nothing is sent to an address that ``is_safe_url`` refuses, also if the provider's own configuration names it.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from mailcore.config.oidc import is_safe_url

__all__ = ["BYTES_MAX", "Unavailable", "ask"]

BYTES_MAX = 1 << 20  # a configuration or a set of keys has some kilobytes
_PIECE_BYTES = 65_536


class Unavailable(Exception):
    """Says why the provider gave no usable answer."""


def ask(
    url: str, timeout_s: float, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Returns the JSON object at an address. ``form``: fields of a POST; None: a GET. Raises Unavailable."""
    if not is_safe_url(url):
        raise Unavailable(f"{url[:200]!r} is not an address of HTTPS")
    parts = urlsplit(url)
    body = urlencode(form) if form is not None else None
    sent = {"Accept": "application/json", **(headers or {})}
    if body is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    connection = _connection(parts.scheme, parts.netloc, timeout_s)
    try:
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("GET" if body is None else "POST", path, body, sent)
        answer = connection.getresponse()
        text = _read(answer, time.monotonic() + timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"{parts.netloc}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise Unavailable(f"{parts.netloc} answered with status {answer.status}{_error_in(text)}")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unavailable(f"{parts.netloc} answered with something else than JSON") from error
    if not isinstance(found, dict):
        raise Unavailable(f"{parts.netloc} answered with something else than a JSON object")
    return found


def _connection(scheme: str, place: str, timeout_s: float) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(place, timeout=timeout_s, context=ssl.create_default_context())
    return http.client.HTTPConnection(place, timeout=timeout_s)


def _read(answer: http.client.HTTPResponse, end: float) -> bytes:
    """Returns the body. Raises OSError when it takes too long or is too large."""
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(_PIECE_BYTES):
        size += len(piece)
        if size > BYTES_MAX:
            raise OSError(f"the answer has more than {BYTES_MAX} bytes")
        if time.monotonic() > end:
            raise TimeoutError("the answer takes too long")
        pieces.append(piece)
    return b"".join(pieces)


def _error_in(text: bytes) -> str:
    """Returns the error code of an answer of OAuth 2.0 (RFC 6749 5.2), for the log; "" if there is none."""
    try:
        code = json.loads(text)["error"]
    except (ValueError, TypeError, KeyError):
        return ""
    return f" ({str(code)[:60]!r})"
