"""Hands in a message: as it is (message/rfc822), or as its parts (JSON). Answered when it is in the queue, synced.

Laws
- The answer has the queue id of a message that is durable; an error of 503 says that nothing was queued.
- With variables each recipient has a message. The answer names the messages that are queued, and the recipients without one.
- The memory of one request is bounded by [portal] api_body_bytes_max, and of all requests by a number of places for large ones.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.http import HttpRequest
from ninja import Query
from pydantic import Field, ValidationError

from appliance.accounts.roles import Role
from appliance.api.authentication import token_of
from appliance.api.composing import ADDRESSES_MAX, Mailbox, MessageBody, Sender, composed
from appliance.api.errors import CONTENT_TYPE, ApiError, fault_of
from appliance.api.operation import MESSAGE, MORE_SCHEMAS, body_of, operation
from appliance.api.scopes import Scope
from appliance.api.variables import check_variables, filled
from appliance.audit.record import audited
from appliance.common.door import door
from mailcore.control.protocol.operation import WALL_CLOCK_MAX
from mailcore.counted import counted
from mailcore.faults import Code, FaultError

__all__ = ["send"]

LARGE_BYTES = 1 << 20  # a body above it needs a place
PLACES = 4  # in one portal process: a JSON body is in memory four times, as text, decoded, composed and in frames
PLACE_WAIT_S = 10.0
EnvelopeSender = Annotated[Sender, Field(description="of the envelope, for message/rfc822; empty: of bounces")]
RECIPIENTS: Any = Query(  # type: ignore[type-arg]  # ninja's is for annotations
    (), max_length=ADDRESSES_MAX, description="of the envelope, for message/rfc822; may be given several times"
)
NotBefore = Annotated[
    float, Field(gt=0, le=WALL_CLOCK_MAX, description="for message/rfc822: not delivered before; seconds since 1970")
]
_places = threading.BoundedSemaphore(PLACES)


class Unsent(msgspec.Struct, kw_only=True):
    """A recipient whose message is not in the queue; with the code outcome_unknown, it may be."""

    recipient: str
    code: Code
    message: str


class Sent(msgspec.Struct, kw_only=True):
    """A message that is in the queue; with variables, one for each recipient."""

    queue_ids: list[str]  # with variables, in the order of the recipients
    recipients: int  # different ones
    size_bytes: int  # as it was handed in or composed; with variables, of all messages
    unsent: list[Unsent]  # with variables: those behind the first that could not be queued


@contextmanager
def bounded(request: HttpRequest) -> Iterator[bytes]:
    """Reads the body of a request. Raises ApiError if it is too large, or if there is no place for it."""
    most = settings.PORTAL.api_body_bytes_max
    length = request.headers.get("Content-Length", "")
    announced = int(length) if length.isascii() and length.isdigit() and len(length) < 19 else most + 1
    if length and announced > most:
        raise _too_big(most)
    if announced <= LARGE_BYTES:
        yield _read(request, most)
        return
    if not _places.acquire(timeout=PLACE_WAIT_S):
        raise ApiError(f"{PLACES} large messages are being handed in already; try again", code=Code.BUSY)
    try:
        yield _read(request, most)
    finally:
        _places.release()


def _read(request: HttpRequest, most: int) -> bytes:
    body = request.read(most + 1)
    if len(body) > most:
        raise _too_big(most)
    return body


def _too_big(most: int) -> ApiError:
    return ApiError(
        f"The body of the request is too large; allowed: {most} bytes (api_body_bytes_max)",
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    )


_SCHEMA = MessageBody.model_json_schema(ref_template="#/components/schemas/{model}")
MORE_SCHEMAS.update(_SCHEMA.pop("$defs"))
MORE_SCHEMAS["MessageBody"] = _SCHEMA
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            MESSAGE: {"schema": {"type": "string", "format": "binary"}},
            CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/MessageBody"}},
        },
    }
}


@operation(
    "POST",
    "/messages",
    tag="Sending",
    scopes={Scope.SEND},
    least=Role.OPERATOR,
    answer=Sent,
    status=202,
    body=bounded,
    extra=_BODY,
)
def send(
    request: HttpRequest,
    sender: EnvelopeSender | None = None,
    recipient: list[Mailbox] = RECIPIENTS,
    not_before: NotBefore | None = None,
) -> Sent:
    """Hands in a message, and answers when it is in the queue and synced.

    The body is the message (message/rfc822), with sender and recipients in the address, or JSON with all of these. Send an
    Idempotency-Key, and repeat the request with it when no answer came: the message is queued once. With variables each
    recipient gets a message; unsent names those whose message could not be queued when others were.
    """
    if request.content_type == MESSAGE:
        if sender is None:
            raise ApiError("sender: needed for message/rfc822", argument="sender")
        if not recipient:
            raise ApiError("recipient: needed for message/rfc822", argument="recipient")
        if not (data := body_of(request)):
            raise ApiError("The body is empty.")
        return _queued(request, sender, recipient, data, not_before)
    if request.content_type != CONTENT_TYPE:
        raise ApiError(
            f"Content-Type: {MESSAGE} and {CONTENT_TYPE} are allowed",
            argument="Content-Type",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        )
    if request.GET:
        name = next(iter(request.GET))
        raise ApiError(f"{name}: give it in the body", argument=name)
    try:
        body = MessageBody.model_validate_json(body_of(request))
    except ValidationError as error:
        errors = [{**each, "loc": ("body", "body", *each["loc"])} for each in error.errors(include_url=False)]
        raise ApiError(fault_of(errors).message, argument=fault_of(errors).argument) from error
    if body.variables is not None:
        return _queued_apart(request, body)
    return _queued(request, body.sender, body.recipients, composed(body), body.not_before)


def _queued_apart(request: HttpRequest, body: MessageBody) -> Sent:
    """Queues a message for each recipient. An error before the first is raised; behind it, the answer names the others."""
    check_variables(body)
    recipients = list(dict.fromkeys(body.recipients))
    why = f"HTTP API, token {token_of(request).name}"
    sent = Sent(queue_ids=[], recipients=0, size_bytes=0, unsent=[])
    before = {"recipients": len(recipients), "first": recipients[0], "apart": True}
    first = composed(filled(body, recipients[0]))  # before the audit: it may be an error
    with audited(request, "message.send", body.sender or "<>", before=before, why=why) as entry:
        for at, recipient in enumerate(recipients):
            try:
                data = composed(filled(body, recipient)) if at else first
                queue_id = door(request).inject(body.sender, [recipient], data, why=why, not_before=body.not_before)
            except FaultError as error:
                if not at:
                    raise
                others = f"not tried: {error}"
                sent.unsent = [
                    Unsent(recipient=recipient, code=error.code, message=str(error)),
                    *(Unsent(recipient=each, code=Code.UNAVAILABLE, message=others) for each in recipients[at + 1 :]),
                ]
                break
            sent.queue_ids.append(queue_id)
            sent.recipients += 1
            sent.size_bytes += len(data)
        entry.after = {"queue_ids": sent.queue_ids}
        entry.words = counted(len(sent.queue_ids), "message")
        if sent.unsent:
            entry.words += f" of {len(recipients)}: {sent.unsent[0].message}"
    return sent


def _queued(
    request: HttpRequest, sender: str, recipients: Sequence[str], data: bytes, not_before: float | None
) -> Sent:
    addresses = list(dict.fromkeys(recipients))
    why = f"HTTP API, token {token_of(request).name}"
    before = {"recipients": len(addresses), "size_bytes": len(data), "first": addresses[0]}
    with audited(request, "message.send", sender or "<>", before=before, why=why) as entry:
        queue_id = door(request).inject(sender, addresses, data, why=why, not_before=not_before)
        entry.after = {"queue_ids": [queue_id]}
        entry.words = queue_id
    return Sent(queue_ids=[queue_id], recipients=len(addresses), size_bytes=len(data), unsent=[])
