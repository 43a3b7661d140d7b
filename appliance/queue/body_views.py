"""Reading bodies, as plain text or as a file: users need the permission, and each view is entered in the audit log first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import may_read_bodies, viewer
from appliance.audit.models import Outcome
from appliance.audit.record import audited, record
from appliance.common.door import async_door, door
from appliance.queue.body import CHUNK_BYTES, Beginning, parsed, read_data, readable
from mailcore.control.client import ControlError
from mailcore.control.protocol.messages import DataPiece
from mailcore.faults import Code

__all__ = ["body", "eml", "raw"]

RAW_BYTES = 256 << 10
ACTION = "message.read_body"


@viewer
@require_safe
@never_cache
def body(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Renders the text of a message's parts."""
    data, cut, damage = _read(request, queue_id, "as text")
    shown = {"queue_id": queue_id, "body": parsed(data, cut), "raw": None, "damage": damage}
    return render(request, "queue/body.html", shown)


@viewer
@require_safe
@never_cache
def raw(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Renders the data as they were received; bytes that are not UTF-8 are shown as Latin-1."""
    data, cut, damage = _read(request, queue_id, "raw", RAW_BYTES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    shown = {"queue_id": queue_id, "raw": readable(text), "cut": cut, "size": len(data), "damage": damage}
    return render(request, "queue/body.html", shown)


@viewer
@require_safe
@never_cache
def eml(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Streams the data as a file. The first piece is read before the answer begins, so that an error is still a page.

    A file of damaged data looks as if it were whole, so the answer is an error, or breaks off where the damage begins.
    """
    data, more, damage = _read(request, queue_id, "as a file", CHUNK_BYTES)
    if damage:
        raise _damaged(damage)
    who = request.user.get_username()

    async def pieces() -> AsyncIterator[bytes]:
        yield data
        at, left = len(data), more
        async with async_door(who) as core:
            while left:
                asked = {"queue_id": queue_id, "offset": at, "length": CHUNK_BYTES}
                piece = await core.ask("data", DataPiece, asked)
                if piece.damage:
                    raise _damaged(piece.damage)
                yield piece.data
                at += len(piece.data)
                left = piece.more and bool(piece.data)

    response = StreamingHttpResponse(pieces(), content_type="message/rfc822")
    response["Content-Disposition"] = f'attachment; filename="{queue_id}.eml"'
    return cast(HttpResponse, response)  # the decorators' word for any response


def _damaged(damage: str) -> ControlError:
    text = f"This message is damaged: {damage}. The command waypost queue data prints it as it is stored."
    return ControlError(text, code=Code.CONFLICT)


def _read(request: HttpRequest, queue_id: str, how: str, most: int | None = None) -> Beginning:
    """Returns the beginning of the data, after an entry in the audit. Raises PermissionDenied, ControlError."""
    if not may_read_bodies(request.user):
        record(request, ACTION, queue_id, outcome=Outcome.REFUSED, words="may not read bodies")
        raise PermissionDenied("this needs the permission to read bodies")
    with audited(request, ACTION, queue_id) as entry:
        entry.words = how
        return read_data(door(request), queue_id, most) if most else read_data(door(request), queue_id)
