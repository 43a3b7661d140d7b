"""A client of Waypost's HTTP API: typed bodies, answers and errors.

    from waypost_client import Waypost, models

    with Waypost("https://mail.example.org", token=Path("token").read_text().strip()) as waypost:
        for page in waypost.pages(waypost.messages, sender="*@sender.example"):
            for message in page.items:
                print(message.queue_id, message.state)

A POST has a key, yours or a new one, and is repeated with it if the connection breaks: it is done once.
"""

from __future__ import annotations

from msgspec import UNSET

from waypost_client import models
from waypost_client.errors import (
    Busy,
    Conflict,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    NotReached,
    OutcomeUnknown,
    Unavailable,
    WaypostError,
)
from waypost_client.operations import Waypost

__all__ = [
    "UNSET",
    "Busy",
    "Conflict",
    "Forbidden",
    "Internal",
    "Invalid",
    "NotFound",
    "NotReached",
    "OutcomeUnknown",
    "Unavailable",
    "Waypost",
    "WaypostError",
    "models",
]
