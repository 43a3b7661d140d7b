"""Writes the audit log around each change, so that refused and interrupted changes are recorded, too.

with audited(request, "queue.delete", subject=queue_id, before=..., why=why) as entry:
    answer = door(request).ask_change("delete", ChangeResult, {...}, why=why)
    entry.words = f"{answer['changed']} messages"

Keeps law: audit-before-change (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.http import HttpRequest

from appliance.audit.models import Entry, Outcome
from appliance.common.faults import NotEntered
from mailcore.control.client import ControlError, Refused

__all__ = ["TOKEN_OF_REQUEST", "audited", "client_address", "ending", "record"]

TOKEN_OF_REQUEST = "waypost_token"  # noqa: S105  # attribute of a request of the HTTP API: the token's name for the audit log


def record(
    request: HttpRequest | None,
    action: str,
    subject: str = "",
    *,
    who: str = "",
    before: Any = None,
    after: Any = None,
    why: str = "",
    outcome: Outcome = Outcome.DONE,
    words: str = "",
) -> Entry:
    """Stores an entry at once. ``who`` is required without a request or a signed-in user."""
    entry = _entry(request, action, subject, who, before, after, why)
    entry.outcome, entry.words = outcome, words[:1000]
    entry.save()
    return entry


@contextmanager
def audited(
    request: HttpRequest, action: str, subject: str = "", *, before: Any = None, after: Any = None, why: str = ""
) -> Iterator[Entry]:
    """Audits the block, which makes a change: how it ends is the entry's outcome. The block may set ``words`` and
    ``after``.

    Entered before the block begins: a portal that is killed in the middle leaves an entry whose end is not known. Raises
    NotEntered, and then the block is not begun.
    """
    entry = _entry(request, action, subject, "", before, after, why)
    try:
        entry.begin()
    except OperationalError as error:
        raise NotEntered(*error.args) from error
    try:
        yield entry
    except Refused as error:
        entry.outcome, entry.words = Outcome.REFUSED, str(error)[:1000]
        raise
    except ControlError as error:
        entry.outcome, entry.words = Outcome.UNKNOWN, str(error)[:1000]
        raise
    except (ValidationError, ValueError) as error:
        entry.outcome, entry.words = Outcome.REFUSED, str(error)[:1000]
        raise
    except BaseException as error:
        entry.outcome, entry.words = Outcome.UNKNOWN, repr(error)[:1000]
        raise
    finally:
        entry.end()


@asynccontextmanager
async def ending(entered: ExitStack) -> AsyncIterator[None]:
    """Ends what was entered in a thread, such as ``audited``, when an answer in pieces has ended, or its reader."""
    try:
        yield
    except BaseException as error:
        await sync_to_async(entered.__exit__)(type(error), error, error.__traceback__)
        raise
    await sync_to_async(entered.__exit__)(None, None, None)


def client_address(request: HttpRequest) -> str | None:
    """Returns the client's IP address, None if it is not known."""
    return request.META.get("REMOTE_ADDR") or None


def _entry(
    request: HttpRequest | None, action: str, subject: str, who: str, before: Any, after: Any, why: str
) -> Entry:
    user = getattr(request, "user", None)  # None during a sign-in
    user = user if isinstance(user, User) else None
    return Entry(
        user=user,
        who=(who or (user.get_username() if user is not None else "anonymous"))[:150],
        address=client_address(request) if request is not None else None,
        token=str(getattr(request, TOKEN_OF_REQUEST, ""))[:100],
        action=action,
        subject=subject[:400],
        before=before,
        after=after,
        why=why[:1000],
    )
