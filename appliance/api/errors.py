"""Errors of the API: one shape, and one table from the codes of faults to the statuses of HTTP.

Law: a status of 503 says that nothing was done, so the request may be repeated; 504 says that it may have been done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from ninja.errors import AuthenticationError, HttpError, ValidationError

from appliance.common.faults import NotEntered, title_of
from mailcore.control.client import ControlError, NotRunning
from mailcore.faults import Code, Fault, FaultError

__all__ = ["HANDLERS", "STATUSES", "ApiError", "error_response", "fault_of", "json_response"]

STATUSES = {
    Code.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.CONFLICT: HTTPStatus.CONFLICT,
    Code.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.OUTCOME_UNKNOWN: HTTPStatus.GATEWAY_TIMEOUT,
    Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Code.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
BUSY_S = 1  # after a limit of ours, when to ask again
CONTENT_TYPE = "application/json"
_log = logging.getLogger("waypost.portal")


class ApiError(FaultError):
    """An error of the API itself. ``status`` stands for itself where HTTP has one that says more than the code's."""

    default = Code.INVALID

    def __init__(
        self,
        message: str,
        *,
        code: Code | None = None,
        argument: str = "",
        status: HTTPStatus | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message, code=code, argument=argument)
        self.status = status
        self.retry_after_s = retry_after_s


def json_response(value: Any, status: int = 200) -> HttpResponse:
    """Returns a response with the value, a Struct or what consists of them, as JSON."""
    return HttpResponse(msgspec.json.encode(value), status=status, content_type=CONTENT_TYPE)


def error_response(fault: Fault, status: int | None = None, retry_after_s: int = 0) -> HttpResponse:
    """Returns the response for a fault: its code, message and argument."""
    response = json_response(fault, status or STATUSES[fault.code])
    if retry_after_s or fault.code is Code.BUSY:
        response["Retry-After"] = str(retry_after_s or BUSY_S)
    if response.status_code == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    return response


def fault_of(errors: Sequence[Any]) -> Fault:
    """Returns the fault for errors of pydantic: the first one, with its place as ``changes[2].value``."""
    first = errors[0]
    source, *place = first["loc"]
    if source == "body":
        place = place[1:]  # the name of the function's argument
    argument = ""
    for step in place:
        argument += f"[{step}]" if isinstance(step, int) else f".{step}" if argument else str(step)
    argument = argument[:200]
    ours = first["type"] == "value_error"  # pydantic begins the message of our own ValueError with its own words
    message = str(first["ctx"]["error"]) if ours else first["msg"]
    return Fault(Code.INVALID, f"{argument}: {message}" if argument else message, argument)


def _of_error(request: HttpRequest, error: FaultError) -> HttpResponse:
    if isinstance(error, ApiError):
        return error_response(error.fault, error.status, error.retry_after_s)
    if isinstance(error, NotRunning):  # also if the portal itself may not use the socket: no fault of the client
        return error_response(Fault(Code.UNAVAILABLE, str(error)))
    return error_response(error.fault)


def _of_database(request: HttpRequest, error: OperationalError) -> HttpResponse:
    _log.error("%s: %s", request.path, error)
    nothing_done = isinstance(error, NotEntered) or request.method in ("GET", "HEAD")
    code = Code.UNAVAILABLE if nothing_done else Code.OUTCOME_UNKNOWN
    return error_response(Fault(code, f"{title_of(error, request.method)}."))


def _of_validation(request: HttpRequest, error: ValidationError) -> HttpResponse:
    return error_response(fault_of(error.errors))


def _of_http(request: HttpRequest, error: HttpError) -> HttpResponse:
    return error_response(Fault(Code.INVALID, "The body of the request is not JSON."))


def _not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    return error_response(Fault(Code.NOT_FOUND, str(error) or "There is nothing at this address."))


def _forbidden(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return error_response(Fault(Code.FORBIDDEN, str(error) or "permission denied"))


def _too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    fault = Fault(Code.INVALID, "The body of the request is too large.")
    return error_response(fault, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)


def _not_read(request: HttpRequest, error: UnreadablePostError) -> HttpResponse:
    return error_response(Fault(Code.INVALID, "The body of the request ended too early; nothing was done."))


def _without_token(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    fault = Fault(Code.FORBIDDEN, "Send a valid token: Authorization: Bearer TOKEN.")
    return error_response(fault, HTTPStatus.UNAUTHORIZED)


def _of_bug(request: HttpRequest, error: Exception) -> HttpResponse:
    _log.error("%s %s", request.method, request.path, exc_info=error)
    return error_response(Fault(Code.INTERNAL, "The portal failed; its log has the error."))


HANDLERS: tuple[tuple[type[Exception], Any], ...] = (
    (ControlError, _of_error),
    (FaultError, _of_error),
    (OperationalError, _of_database),
    (ValidationError, _of_validation),
    (HttpError, _of_http),
    (Http404, _not_found),
    (PermissionDenied, _forbidden),
    (RequestDataTooBig, _too_big),
    (UnreadablePostError, _not_read),
    (AuthenticationError, _without_token),
    (Exception, _of_bug),
)
