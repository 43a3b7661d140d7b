"""The pages for a failure of the portal's database, also outside a view and before the user is known.

Law: these pages need no database; they are rendered without the reader's name and role.

Keeps law: database-down-has-a-page (docs/laws.md).
"""

from __future__ import annotations

import secrets
import sqlite3
import sys

from django.core.cache import cache
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.views import defaults

__all__ = ["NotEntered", "server_error", "title_of", "too_many_requests"]

CANNOT_WRITE = "The portal cannot write to its database; mail delivery continues"
_PROBE, _PROBE_S = "portal:written", 10
_SQLITE_NO_WRITING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})
_POSTGRESQL_NO_WRITING = frozenset({"53100", "25006"})  # disk_full, read_only_sql_transaction


class NotEntered(OperationalError):
    """Says that a change could not be entered in the audit log first, and so was not made."""


def title_of(error: OperationalError, method: str | None) -> str:
    """Returns one sentence for the user, without its full stop."""
    title = CANNOT_WRITE if _cannot_write(error) else "The portal cannot use its database; mail delivery continues"
    if isinstance(error, NotEntered):
        return f"{title}. Nothing was changed"
    return f"{title}. Check whether the change was made before you repeat it" if method == "POST" else title


def _cannot_write(error: BaseException | None) -> bool:
    """Returns whether the database can be read but not written, by the error codes of its driver."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_NO_WRITING:  # without the extended code
            return True
        if getattr(error, "sqlstate", None) in _POSTGRESQL_NO_WRITING:
            return True
        error = error.__cause__
    return False


def too_many_requests(request: HttpRequest) -> HttpResponse:
    """Renders the page for too many requests. Allauth also asks for it if it cannot write to the database."""
    if _writes():
        return HttpResponse(loader.get_template("429.html").render({}, request), status=429)
    return _page(request, f"{CANNOT_WRITE}. Sign-in is not possible until this is repaired", "Is its disk full?")


def server_error(request: HttpRequest) -> HttpResponse:
    """Renders the page for an error outside all views, such as a session that cannot be read."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError):
        return _page(request, title_of(error, request.method), str(error))
    return defaults.server_error(request)


def _writes() -> bool:
    """Returns whether the database can be written. The cache is in the database, but does not raise when it cannot write."""
    written = secrets.token_hex(8)
    try:
        cache.set(_PROBE, written, _PROBE_S)
        return bool(cache.get(_PROBE) == written)
    except DatabaseError:
        return False


def _page(request: HttpRequest, title: str, words: str) -> HttpResponse:
    template = loader.get_template("common/error_piece.html" if request.headers.get("HX-Request") else "503.html")
    return HttpResponse(template.render({"title": title, "words": words}), status=503)
