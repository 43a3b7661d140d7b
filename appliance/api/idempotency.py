"""Does a request with an Idempotency-Key once: a repeated one gets the answer of the first.

Laws
- The key is stored before the work begins, by an insert that the database lets one request win. So two requests at once with
  one key are one.
- The key belongs to its token, and to method, address and body: with another request it is a conflict.
- An answer that says that nothing was done is not kept: the request may be repeated with its key, and is then done.
- A request that was interrupted is never done a second time. Its key answers that the outcome is not known.

Keeps law: a-key-works-once (docs/laws.md).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus

from django.conf import settings
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from appliance.api.authentication import token_of
from appliance.api.errors import CONTENT_TYPE, ApiError
from appliance.api.models import KEY_MAX, KeptAnswer
from appliance.common.faults import NotEntered
from appliance.queue.models import SILENT_S
from appliance.queue.owner_process import is_gone, own
from mailcore.faults import Code

__all__ = ["HEADER", "REPEATED", "once"]

HEADER = "Idempotency-Key"
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


def once(request: HttpRequest, body: bytes, work: Callable[[], HttpResponse]) -> HttpResponse:
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
    try:
        _keep(row, response)
    except DatabaseError as error:  # the work is done: the client gets its answer, and the row says that it was begun
        _log.error("%s: the answer is not kept for its %s: %s", request.path, HEADER, error)
    return response


def _keep(row: KeptAnswer, response: HttpResponse) -> None:
    if response.status_code in _NOTHING_DONE:
        row.delete()
        return
    row.status, row.body = response.status_code, response.content.decode()
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
    response = HttpResponse(row.body, status=row.status, content_type=CONTENT_TYPE)
    response[REPEATED] = "true"
    return response


def _kept() -> timedelta:
    return timedelta(seconds=settings.PORTAL.api_idempotency_s)


def _digest_of(request: HttpRequest, body: bytes) -> str:
    """Returns the digest of what makes two requests the same; each part is behind its length."""
    digest = hashlib.sha256()
    for part in (request.method or "", request.get_full_path(), request.content_type or ""):
        given = part.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%b" % (len(given), given))
    digest.update(body)
    return digest.hexdigest()
