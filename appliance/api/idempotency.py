"""Does a request with an Idempotency-Key once: a repeated one gets the answer of the first.

Laws
- The key is stored before the work begins, by an insert that the database lets one request win. So two requests at once with
  one key are one.
- The key belongs to its token, and to method, address and body: with another request it is a conflict.
- An answer that says that nothing was done is not kept: the request may be repeated with its key, and is then done.
- A request that was interrupted is never done a second time. Its key answers that the outcome is not known.
- A password or a secret that was made here is in the first answer alone, and not kept. The digest of a request
  needs the portal's key, so that a password in it cannot be guessed with a copy of the database.

Keeps law: a-key-works-once, law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.crypto import salted_hmac

from appliance.api.authentication import token_of
from appliance.api.errors import CONTENT_TYPE, STATUSES, ApiError
from appliance.api.models import KEY_MAX, KeptAnswer
from appliance.common.faults import NotEntered
from appliance.queue.models import SILENT_S
from appliance.queue.owner_process import is_gone, own
from mailcore.control.passage import FRAMES, KEY_HEADER
from mailcore.faults import Code
from mailcore.frames import FrameDecoder, Response

__all__ = ["HEADER", "KEPT_CONTENT", "REPEATED", "once"]

HEADER = KEY_HEADER
AS_FRAMES = "frames:"  # before frames in base64; no JSON begins so
KEPT_CONTENT = "waypost_kept_content"  # attribute of a response: what is kept instead of its content
SALT = "a request with an idempotency key"
REPEATED = "Idempotency-Replayed"  # a header of an answer that is not the first
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX}}}")
# Of answers after which nothing was done.
_NOTHING_DONE = frozenset(
    (
        HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
)  # fmt: skip
_log = logging.getLogger("waypost.portal")


def once(request: HttpRequest, body: bytes, work: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Returns the response of ``work``, or the first one for the request's key. Without a key it always does the work.

    Raises ApiError, NotEntered: then nothing was done.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return work()
    if not _KEY.fullmatch(key):
        raise ApiError(f"{HEADER}: 1 to {KEY_MAX} visible ASCII characters are allowed", argument=HEADER)
    digest = _digest_of(request, body)
    try:
        KeptAnswer.objects.filter(begun_at__lt=timezone.now() - _kept()).delete()
        row, is_first = KeptAnswer.objects.get_or_create(
            token=token_of(request), key=key, defaults={"digest": digest, "worker": own()}
        )
    except OperationalError as error:
        raise NotEntered(*error.args) from error
    if not is_first:
        return _earlier(row, digest)
    response = work()
    if isinstance(response, StreamingHttpResponse):
        response.streaming_content = _kept_at_its_end(row, response.streaming_content)
        return response
    assert isinstance(response, HttpResponse)
    content = getattr(response, KEPT_CONTENT, response.content)
    _try_to_keep(row, response.status_code, content, is_frames=response["Content-Type"] == FRAMES)
    return response


async def _kept_at_its_end(row: KeptAnswer, pieces: Any) -> AsyncIterator[bytes]:
    """Yields the pieces of a long answer, each a frame, and keeps the last one. If its reader goes, nothing is kept."""
    last = b""
    async for piece in pieces:
        last = piece
        yield piece
    fault = next((each.error for each in FrameDecoder().feed(last) if isinstance(each, Response)), None)
    status = STATUSES[fault.code] if fault is not None else HTTPStatus.OK
    await sync_to_async(_try_to_keep)(row, status, last, is_frames=True)


def _try_to_keep(row: KeptAnswer, status: int, content: bytes, *, is_frames: bool) -> None:
    """Keeps an answer. If the database fails, the work is done all the same, and the row says that it was begun."""
    try:
        _keep(row, status, content, is_frames=is_frames)
    except DatabaseError as error:
        _log.error("the answer is not kept for its %s: %s", HEADER, error)


def _keep(row: KeptAnswer, status: int, content: bytes, *, is_frames: bool) -> None:
    if status in _NOTHING_DONE:
        row.delete()
        return
    row.status = status
    row.body = AS_FRAMES + base64.b64encode(content).decode() if is_frames else content.decode()
    row.save(update_fields=("status", "body"))


def _earlier(row: KeptAnswer, digest: str) -> HttpResponse:
    if row.digest != digest:
        raise ApiError(f"{HEADER}: this key was used for another request", code=Code.CONFLICT, argument=HEADER)
    if not row.status:
        patience = timedelta(seconds=settings.PORTAL.change_timeout_s + SILENT_S)
        if is_gone(row.worker) or timezone.now() - row.begun_at > patience:
            raise ApiError(
                "The first request with this key was interrupted; it may have been done. Check that before you repeat it "
                "with another key.",
                code=Code.OUTCOME_UNKNOWN,
            )
        raise ApiError("The first request with this key is still being worked on.", code=Code.BUSY)
    body, kind = row.body.encode(), CONTENT_TYPE
    if row.body.startswith(AS_FRAMES):
        body, kind = base64.b64decode(row.body.removeprefix(AS_FRAMES)), FRAMES
    response = HttpResponse(body, status=row.status, content_type=kind)
    response[REPEATED] = "true"
    return response


def _kept() -> timedelta:
    return timedelta(seconds=settings.PORTAL.api_idempotency_s)


def _digest_of(request: HttpRequest, body: bytes) -> str:
    """Returns the digest of what makes two requests the same; each part is behind its length."""
    digest = salted_hmac(SALT, b"", algorithm="sha256")
    for part in (request.method or "", request.get_full_path(), request.content_type or ""):
        given = part.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%b" % (len(given), given))
    digest.update(body)
    return digest.hexdigest()
