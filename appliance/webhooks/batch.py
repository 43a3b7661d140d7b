"""Makes a request of events: its body, its id, and its headers. Pure.

Law: the same events for the same webhook give the same body and the same id, so a receiver knows what it has taken before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from appliance.common.posting import signed
from mailcore.control.protocol.events import Event

__all__ = ["ATTEMPT", "DELIVERY", "WEBHOOK", "Request", "headers_of", "request_of", "test_request"]

DELIVERY, ATTEMPT, WEBHOOK = "X-Waypost-Delivery", "X-Waypost-Attempt", "X-Waypost-Webhook"
ID_CHARACTERS = 32


class Request(NamedTuple):
    """A body, and the id of its delivery."""

    body: bytes
    delivery: str


def request_of(number: int, events: Sequence[Event]) -> Request:
    """Returns the request that takes events to a webhook, which ``number`` names."""
    body = msgspec.json.encode({"version": 1, "events": list(events)})
    return Request(body, hashlib.sha256(b"%d %b" % (number, body)).hexdigest()[:ID_CHARACTERS])


def test_request(number: int, at: float) -> Request:
    """Returns a request that says it is a test; ``at``: wall clock, in seconds since 1970."""
    body = msgspec.json.encode({"version": 1, "test": True, "at": at, "events": []})
    return Request(body, hashlib.sha256(b"%d test %b" % (number, body)).hexdigest()[:ID_CHARACTERS])


def headers_of(request: Request, name: str, secret: str, attempt: int, at: float) -> dict[str, str]:
    """Returns the headers of a request: who sends, which delivery, which attempt of it, and the signature."""
    named = name.encode("ascii", "backslashreplace").decode()
    own = {WEBHOOK: named, DELIVERY: request.delivery, ATTEMPT: str(attempt)}
    return own | signed(secret.encode(), at, request.body)
