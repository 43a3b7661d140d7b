"""The decorator that makes a function an operation of the API, and the API itself.

    @operation("GET", "/queue/messages", tag="Queue", scopes={Scope.READ}, answer=MessagesPage)
    def messages(request: HttpRequest, cursor: str = "") -> MessagesPage:
        "Lists the messages of the queue, page by page."

Laws
- Ninja checks the parameters and finds the function; the answer is a Struct, which msgspec writes and describes.
- A parameter that the operation does not have, or that is given twice, is an error: a filter with a typing error would select
  more than its author meant.
- Each operation names its scopes and its role; the table of tests/appliance/api/access.py has both again.
- Each operation that is a POST takes an Idempotency-Key.

Keeps law: api-operation-has-a-role (docs/laws.md).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from ninja import NinjaAPI
from ninja.parser import Parser
from ninja.signature import ViewSignature
from ninja.types import DictStrAny

from appliance.accounts.roles import Role
from appliance.api.authentication import Bearer
from appliance.api.errors import CONTENT_TYPE, HANDLERS, ApiError, json_response
from appliance.api.idempotency import HEADER, KEPT_CONTENT, once
from appliance.api.models import KEY_MAX
from appliance.api.scopes import Scope
from mailcore.faults import Fault

__all__ = [
    "MESSAGE",
    "MORE_SCHEMAS",
    "OPERATIONS",
    "PREFIX",
    "SCHEMAS",
    "TYPES",
    "Registered",
    "api",
    "body_of",
    "operation",
    "whole",
]

PREFIX = "/api/v1"
VERSION = "1"
MESSAGE = "message/rfc822"
_BODY = "_waypost_body"
BINARY = {"type": "string", "format": "binary"}
SCHEMAS = "#/components/schemas/{name}"
F = TypeVar("F", bound=Callable[..., Any])
Body = Callable[[HttpRequest], AbstractContextManager[bytes]]


class StrictParser(Parser):
    """Reads JSON without Python's additions to it: no NaN, no halves of surrogate pairs."""

    def parse_body(self, request: HttpRequest) -> DictStrAny:
        """Returns the body of a request. Raises DecodeError."""
        decoded: DictStrAny = msgspec.json.decode(request.body)
        return decoded


api = NinjaAPI(
    title="Waypost",
    version=VERSION,
    description="Looks and changes of the portal, and sending, for programs. docs/api.md says how to begin.",
    openapi_url=None,
    docs_url=None,
    parser=StrictParser(),
    urls_namespace="api",
)
for _error, _handler in HANDLERS:
    api.add_exception_handler(_error, _handler)


@dataclass(frozen=True)
class Registered:
    """One operation, for the pages and the tests that go through all of them."""

    name: str
    method: str
    path: str
    tag: str
    scopes: tuple[Scope, ...]  # one of them is needed; none: any token will do
    least: Role
    answer: Any
    summary: str


OPERATIONS: list[Registered] = []
TYPES: list[type] = []  # of bodies that are Structs
MORE_SCHEMAS: dict[str, Any] = {}  # of bodies that are described by ``extra``


def body_of(request: HttpRequest) -> bytes:
    """Returns the body of a POST."""
    read = getattr(request, _BODY)
    assert isinstance(read, bytes)
    return read


@contextmanager
def whole(request: HttpRequest) -> Iterator[bytes]:
    """Reads a body of usual size."""
    yield request.body


def operation(
    method: str,
    path: str,
    *,
    tag: str,
    scopes: Collection[Scope],
    answer: Any,
    least: Role = Role.VIEWER,
    status: int = HTTPStatus.OK,
    body: Body = whole,
    kind: str = MESSAGE,
    types: Collection[type] = (),
    extra: dict[str, Any] | None = None,
    told_once: Collection[str] = (),
) -> Callable[[F], F]:
    """Registers a function as an operation. ``answer``: the type of what it returns; bytes: a response with a message.

    ``body``: reads the body of a request that is not JSON alone; the function then asks ``body_of`` for it. ``extra``: what
    OpenAPI says beyond the function's parameters, such as that body; ``types``: to which it refers. ``kind``: the type of
    an answer that is bytes. ``told_once``: fields of the answer with a secret that was made here; they are None when a repeated
    request gets the first answer again.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)

        @functools.wraps(function)
        def run(request: HttpRequest, **values: Any) -> HttpResponseBase:
            _check_query(request, known, lists)
            if method == "GET":
                found = function(request, **values)
                return found if isinstance(found, HttpResponseBase) else json_response(found, status)

            def work() -> HttpResponseBase:
                try:
                    found = function(request, **values)
                    if isinstance(found, HttpResponseBase):
                        return found
                    return _without(found, told_once, json_response(found, status))
                except Exception as error:
                    return api.on_exception(request, error)

            with body(request) as read:
                setattr(request, _BODY, read)
                return once(request, read, work)

        run.__signature__ = signature  # type: ignore[attr-defined]  # ninja would look the names up in this module
        models = [each for each in ViewSignature(path, run).models if each.__ninja_param_source__ == "query"]
        known = frozenset(name for model in models for name in getattr(model, "__ninja_flatten_map__", {}))
        lists = frozenset(name for model in models for name in getattr(model, "__ninja_collection_fields__", ()))
        summary, _, more = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        registered = Registered(
            function.__name__, method, path, tag, tuple(sorted(scopes)), least, answer, " ".join(summary.split())
        )
        OPERATIONS.append(registered)
        TYPES.extend(types)
        api.api_operation(
            [method],
            path,
            auth=Bearer(scopes, least),
            response={int(status): None},
            operation_id=function.__name__,
            summary=registered.summary,
            description=_description(registered, more),
            tags=[tag],
            openapi_extra=_described(registered, int(status), kind, extra is not None) | (extra or {}),
        )(run)
        return function

    return decorate


def _without(found: Any, told_once: Collection[str], response: HttpResponse) -> HttpResponse:
    """Returns the response, which is kept for its key without the fields that are for the first answer alone."""
    if told_once:
        response["Cache-Control"] = "no-store"
        told = msgspec.structs.replace(found, **dict.fromkeys(told_once))
        setattr(response, KEPT_CONTENT, json_response(told).content)
    return response


def _check_query(request: HttpRequest, known: frozenset[str], lists: frozenset[str]) -> None:
    for name in request.GET:
        if name not in known:
            shown = name[:50]
            allowed = ", ".join(sorted(known)) or "none"
            raise ApiError(f"{shown}: there is no such parameter; allowed: {allowed}", argument=shown)
        if len(request.GET.getlist(name)) > 1 and name not in lists:
            raise ApiError(f"{name}: given twice", argument=name)


def _description(registered: Registered, more: str) -> str:
    scopes = " or ".join(f"`{scope}`" for scope in registered.scopes)
    needs = f"Needs the scope {scopes}" if scopes else "Needs a valid token"
    role = f", and the role {registered.least.name.lower()}" if registered.least > Role.VIEWER else ""
    return f"{more}\n\n{needs}{role}.".strip()


def _described(registered: Registered, status: int, kind: str, has_other_bodies: bool) -> dict[str, Any]:
    """Returns the responses of an operation, and the header of its key."""
    fault = msgspec.json.schema_components([Fault], ref_template=SCHEMAS)[0][0]
    success = _response(HTTPStatus(status), BINARY, kind)
    if registered.answer is not bytes:
        answer = msgspec.json.schema_components([registered.answer], ref_template=SCHEMAS)[0][0]
        success = _response(HTTPStatus(status), answer)
    responses: dict[int, Any] = {status: success}
    errors = [401, 403, 404, 405, 409, 422, 429, 500, 503, 504]
    if registered.method == "POST":
        errors.append(413)
    if has_other_bodies:
        errors.append(415)
    for each in sorted(errors):
        responses[each] = _response(HTTPStatus(each), fault)
        if kind != MESSAGE:  # a fault of the core comes as its answers do
            responses[each]["content"][kind] = {"schema": BINARY}
    described: dict[str, Any] = {"responses": responses}
    if registered.method == "POST":
        schema = {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": "^[!-~]+$"}
        words = "A repeated request with the same key and body gets the answer of the first."
        described["parameters"] = [
            {"in": "header", "name": HEADER, "required": False, "schema": schema, "description": words}
        ]
    return described


def _response(status: HTTPStatus, schema: dict[str, Any], kind: str = CONTENT_TYPE) -> dict[str, Any]:
    return {"description": status.phrase, "content": {kind: {"schema": schema}}}
