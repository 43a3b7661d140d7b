"""Asks a Waypost on another host: the control client of ``waypost --remote``, over the portal's HTTP API.

Laws
- A question is what it is on the control socket, and so is its answer: the frames of the core come through unchanged.
- A change has a key. If the connection breaks before its answer, it is sent again with this key, so it is done once
  (law: a-key-works-once); without an answer the command says with which key it can be repeated.
- No redirection is followed: the token goes to the address that was given.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import time
import uuid
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from mailcore.control.client import (
    READ_BYTES,
    TIMEOUT_S,
    ControlClient,
    ControlError,
    NotRunning,
    Refused,
    TimedOut,
    result_of,
)
from mailcore.control.passage import FRAMES, INJECT, KEY_HEADER, PATH
from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.operation import Access
from mailcore.control.protocol.table import check
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import FrameDecoder, Response, WireError
from mailcore.terminal.output import complain
from mailcore.terminal.remote_target import Target

__all__ = ["RemoteClient"]

CONNECT_S = 10.0
PORTAL_S = 15.0  # that the portal may take beside the core
ATTEMPTS = 3  # for one change
PAUSE_S = 1.0  # before a change is sent again
WAITS_MAX = 3  # for the limit of requests
WAIT_S_MAX = 61.0  # as the limit counts minutes
ERROR_BYTES_MAX = 64 << 10


class RemoteClient(ControlClient):
    """Has the methods of ``ControlClient``."""

    def __init__(self, target: Target, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__("", timeout_s=timeout_s)
        self._target = target
        self._key = target.request_key or uuid.uuid4().hex
        self._changes = 0
        self._http: http.client.HTTPConnection | None = None
        self._injection: tuple[dict[str, Any], str, bytearray] | None = None

    def parts(
        self,
        operation: str,
        arguments: dict[str, Any] | None = None,
        *,
        why: str = "",
        timeout_s: float | None = None,
    ) -> Generator[Any, None, None]:
        """Yields the parts of the answer as they arrive. Raises ControlError."""
        given = arguments or {}
        try:
            known, _ = check(operation, given)
        except FaultError as error:  # as the core would answer
            raise Refused.of(error.fault) from None
        wait_s = (self._timeout_s if timeout_s is None else timeout_s) + PORTAL_S
        match operation:
            case "inject_begin":
                self._injection = (given, why, bytearray())
                yield msgspec.to_builtins(Injected(queue_id=""))
            case "inject_data":
                self._begun()[2].extend(given["data"])
                yield {}
            case "inject_end":
                begin, reason, data = self._begun()
                self._injection = None
                yield from self._change(INJECT, _body(begin, reason) + b"\n" + bytes(data), wait_s)
            case _:
                only_asks = (
                    known.access is Access.READ or operation == "data" or given.get("dry_run") or given.get("check")
                )
                send = self._question if only_asks else self._change
                yield from send(operation, _body(given, why), wait_s)

    def close(self) -> None:
        """Closes the connection; the next call connects again."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _begun(self) -> tuple[dict[str, Any], str, bytearray]:
        if self._injection is None:
            raise Refused("there is no message to add to; begin with inject_begin", code=Code.CONFLICT)
        return self._injection

    # -- one request

    def _question(self, operation: str, body: bytes, wait_s: float) -> Generator[Any, None, None]:
        """Asks what changes nothing, so that it may be asked again if the connection, kept since the last one, was closed."""
        kept = self._http is not None
        begun = False
        try:
            for part in self._answer(operation, body, wait_s, ""):
                begun = True
                yield part
        except _Broken as error:
            if begun or not kept:
                raise _as_question(error) from None
            try:
                yield from self._answer(operation, body, wait_s, "")
            except _Broken as again:
                raise _as_question(again) from None

    def _change(self, operation: str, body: bytes, wait_s: float) -> Generator[Any, None, None]:
        """Sends a change, and again with its key if no answer came. Says how to repeat it if none comes at all."""
        self._changes += 1
        key = f"{self._key}-{self._changes}"
        for attempt in range(1, ATTEMPTS + 1):
            begun = False
            try:
                for part in self._answer(operation, body, wait_s, key):
                    begun = True
                    yield part
            except NotRunning:
                if attempt == 1:
                    raise
                self._say_key()  # an earlier attempt may have reached it
                raise TimedOut(f"no answer to {operation}; whether anything was changed is not known") from None
            except _UnderWay as error:
                if attempt == ATTEMPTS:
                    self._say_key()
                    raise Refused.of(error.fault) from None
                time.sleep(PAUSE_S)
            except _Broken as error:
                if begun or attempt == ATTEMPTS:
                    self._say_key()
                    raise TimedOut(
                        f"no answer to {operation} ({error.text}); whether anything was changed is not known"
                    ) from None
                time.sleep(PAUSE_S)
            except (KeyboardInterrupt, GeneratorExit):
                self._say_key()
                raise
            else:
                return

    def _say_key(self) -> None:
        complain(f"the change may have been made; with --request-key {self._key} the same command makes it once only")

    def _answer(self, operation: str, body: bytes, wait_s: float, key: str) -> Iterator[Any]:
        """Yields the parts of one answer. Raises _Broken if it may have arrived and has no answer, otherwise ControlError."""
        for _ in range(WAITS_MAX):
            response = self._send(operation, body, wait_s, key)
            if response.status != http.client.TOO_MANY_REQUESTS:
                break
            again = response.headers.get("Retry-After", "1")
            fault = _fault(response)
            self.close()
            if not again.isascii() or not again.isdecimal() or int(again) > WAIT_S_MAX:
                raise Refused.of(fault)
            time.sleep(int(again))
        if response.headers.get_content_type() != FRAMES:
            error = self._error(response, key)
            self.close()
            raise error
        finished = False
        try:
            for frame in self._frames_of(response):
                finished = frame.last or frame.error is not None
                if finished:
                    response.read()  # so that the connection can be used again
                yield result_of(frame)
                if finished:
                    return
            raise _Broken("the answer ended too early")
        except (TimeoutError, OSError, WireError, http.client.HTTPException) as error:
            raise _Broken(_text(error)) from None
        finally:
            if not finished:
                self.close()

    def _frames_of(self, response: http.client.HTTPResponse) -> Iterator[Response]:
        decoder = FrameDecoder()
        while data := response.read1(READ_BYTES):
            for frame in decoder.feed(data):
                if not isinstance(frame, Response):
                    raise WireError(f"{type(frame).__name__} is not an answer")
                yield frame

    def _send(self, operation: str, body: bytes, wait_s: float, key: str) -> http.client.HTTPResponse:
        headers = {
            "Authorization": f"Bearer {self._target.token}",
            "Content-Type": "application/octet-stream" if operation == INJECT else "application/json",
            "Accept": f"{FRAMES}, application/json",
            **({KEY_HEADER: key} if key else {}),
        }
        connection = self._connected()
        try:
            assert connection.sock is not None
            connection.sock.settimeout(wait_s)
            connection.request("POST", f"{self._target.prefix}{PATH}{operation}", body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _Broken(_text(error)) from None

    def _connected(self) -> http.client.HTTPConnection:
        """Returns the connection, with its certificate verified. Raises NotRunning: nothing was sent."""
        if self._http is not None and self._http.sock is not None:
            return self._http
        target = self._target
        try:
            if target.is_https:
                self._http = http.client.HTTPSConnection(
                    target.host, target.port, timeout=CONNECT_S, context=_tls(target)
                )
            else:
                self._http = http.client.HTTPConnection(target.host, target.port, timeout=CONNECT_S)
            self._http.connect()
            if target.fingerprint:
                _check_fingerprint(self._http.sock, target)
        except ssl.SSLCertVerificationError as error:
            self.close()
            how = "give the certificate of its authority with --ca-file, or its own SHA-256 with --fingerprint"
            why = f"{target.shown}: the certificate is not valid for us: {error.verify_message}; {how}"
            raise NotRunning(why, code=Code.FORBIDDEN) from None
        except OSError as error:
            self.close()
            raise NotRunning(f"{target.shown}: no portal answers: {_text(error)}") from None
        except ControlError:
            self.close()
            raise
        return self._http

    def _error(self, response: http.client.HTTPResponse, key: str) -> ControlError | _UnderWay:
        """Returns the error of an answer that the core did not give."""
        fault = _fault(response)
        shown = self._target.shown
        match response.status:
            case 401:
                text = f"{shown}: the token is not valid: unknown, revoked, expired, or its user is disabled"
                return Refused(text, code=Code.FORBIDDEN)
            case 403:
                return Refused(f"{shown}: {fault.message}", code=Code.FORBIDDEN)
            case 503 if fault.code is Code.BUSY:
                return _UnderWay(fault) if key else Refused.of(fault)
            case 502 | 503:
                return NotRunning(f"{shown}: {fault.message}")
            case 504:
                return TimedOut(f"{shown}: {fault.message}")
            case status if 300 <= status < 400:
                return NotRunning(f"{shown}: the portal is at {response.headers.get('Location', 'another address')}")
        return Refused.of(fault)


class _Broken(Exception):
    """Says that a request was sent, or begun, and has no answer."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _UnderWay(Exception):
    """Says that an earlier request with this key is still being worked on, or that the portal has no room for one more."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _as_question(error: _Broken) -> ControlError:
    return ControlError(f"the connection broke: {error.text}", code=Code.UNAVAILABLE)


def _body(given: dict[str, Any], why: str) -> bytes:
    """Returns the JSON of a request. Raises Refused for text that is not UTF-8, as the control client does."""
    try:
        return msgspec.json.encode({"arguments": given, "why": why})
    except UnicodeEncodeError as error:
        text = error.object.encode("ascii", "backslashreplace").decode()
        raise Refused(f"'{text}' is not UTF-8; nothing was done", code=Code.INVALID) from None


def _fault(response: http.client.HTTPResponse) -> Fault:
    """Returns the fault that the portal wrote; of a proxy's page, its status."""
    data = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        data = response.read(ERROR_BYTES_MAX)
    try:
        return msgspec.json.decode(data, type=Fault)
    except msgspec.MsgspecError:
        code = Code.NOT_FOUND if response.status == http.client.NOT_FOUND else Code.INTERNAL
        return Fault(code, f"HTTP {response.status} {response.reason}, not from a Waypost with this API")


def _tls(target: Target) -> ssl.SSLContext:
    """Returns the context. Raises OSError if the file of authorities cannot be read."""
    if target.fingerprint:  # it alone decides, before the token is sent
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=target.ca_file or None)
    except OSError as error:
        raise OSError(f"--ca-file {target.ca_file}: {error.strerror or error}") from None


def _check_fingerprint(connection: Any, target: Target) -> None:
    """Raises NotRunning if the certificate is another one."""
    if not target.is_https:
        return
    found = hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()
    if not hmac.compare_digest(found, target.fingerprint):
        text = f"{target.shown}: the certificate has another fingerprint: {found}; nothing was sent"
        raise NotRunning(text, code=Code.FORBIDDEN)


def _text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "no such host"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
