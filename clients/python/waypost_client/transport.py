"""Sends requests: one connection, a time limit, the token, and a key for each POST.

Laws
- The token goes over https only, except to this host itself, and no redirection is followed.
- A POST has a key. When the connection breaks, it is sent again with this key, so it is done once.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from waypost_client.errors import Internal, NotReached, OutcomeUnknown, Unavailable, WaypostError, error_of

__all__ = ["Transport"]

TIMEOUT_S = 60.0
ATTEMPTS = 2  # for one request
RAW, JSON = "message/rfc822", "application/json"
T = TypeVar("T")


class _Page(Protocol):
    @property
    def cursor(self) -> str | int | None: ...


P = TypeVar("P", bound=_Page)


class _Fault(msgspec.Struct):
    code: str
    message: str
    argument: str = ""


class Transport:
    """A connection to a portal. Not for several threads."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        ca_file: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """``ca_file``: certificates of authorities, for a portal whose certificate the system does not know."""
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise ValueError("url: write https://HOST")
        if parts.scheme == "http" and not _is_this_host(parts.hostname):
            raise ValueError("url: http would send the token readable; use https")
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._http: http.client.HTTPConnection
        if parts.scheme == "https":
            verified = context or ssl.create_default_context(cafile=ca_file)
            self._http = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=verified)
        else:
            self._http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next request connects again."""
        self._http.close()

    def pages(self, ask: Callable[..., P], **given: Any) -> Iterator[P]:
        """Yields the pages of a list by its cursor: ``pages(waypost.messages, sender="*@sender.example")``."""
        cursor: str | int | None = given.pop("cursor", None)
        while True:
            page = ask(**given, cursor=cursor)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    @staticmethod
    def quoted(value: object) -> str:
        """Returns a value as a part of a path."""
        return quote(str(value), safe="")

    def ask(
        self,
        method: str,
        path: str,
        result: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
    ) -> T:
        """Returns the answer to a request as its type. Raises WaypostError."""
        address = self._prefix + path
        if given := {name: _text(value) for name, value in (query or {}).items() if value is not None}:
            address += f"?{urlencode(given, doseq=True)}"
        headers = {"Authorization": f"Bearer {self._token}"}
        data: bytes | None = None
        if method == "POST":
            data = body if isinstance(body, bytes) else msgspec.json.encode({} if body is None else body)
            headers["Content-Type"] = RAW if isinstance(body, bytes) else JSON
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        status, retry_after_s, answer = self._sent(method, address, data, headers)
        if not 200 <= status < 300:
            raise _error(status, retry_after_s, answer)
        if result is bytes:
            return answer  # type: ignore[return-value]
        try:
            return msgspec.json.decode(answer, type=result)
        except msgspec.MsgspecError as error:
            raise Internal(f"the answer is not understood: {error}", status=status) from None

    def _sent(
        self, method: str, address: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float, bytes]:
        attempt = 0
        while True:
            attempt += 1
            self._connect()
            try:
                self._http.request(method, address, data, dict(headers))
                with contextlib.closing(self._http.getresponse()) as response:
                    again = response.headers.get("Retry-After", "")
                    return response.status, float(again) if again.isdecimal() else 0.0, response.read()
            except (OSError, http.client.HTTPException) as error:
                self._http.close()
                if attempt == ATTEMPTS:
                    kind = Unavailable if method == "GET" else OutcomeUnknown
                    raise kind(f"no answer: {error or type(error).__name__}") from None

    def _connect(self) -> None:
        if self._http.sock is not None:
            return
        try:
            self._http.connect()
        except OSError as error:
            self._http.close()
            raise NotReached(f"no portal answers: {error}") from None


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return [_text(each) for each in value] if isinstance(value, list | tuple) else value


def _error(status: int, retry_after_s: float, answer: bytes) -> WaypostError:
    try:
        fault = msgspec.json.decode(answer, type=_Fault)
    except msgspec.MsgspecError:
        return error_of("unavailable" if status in (502, 503, 504) else "internal", f"HTTP {status}", status, "", 0.0)
    return error_of(fault.code, fault.message, status, fault.argument, retry_after_s)


def _is_this_host(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
