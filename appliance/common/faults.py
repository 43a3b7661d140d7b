"""What a person is told when the portal's own database fails: also where no view is to blame, and nobody was asked who it is.

Law: these pages need no database: they are made without the reader's name and role.

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
    """What was to be done could not be entered in the audit first, and so was not done."""


def title_of(error: OperationalError, method: str | None) -> str:
    """One sentence for a person, without its end."""
    title = CANNOT_WRITE if _cannot_write(error) else "The portal cannot use its database; mail delivery continues"
    if isinstance(error, NotEntered):
        return f"{title}. Nothing was changed"
    return f"{title}. Check whether the change was made before you repeat it" if method == "POST" else title


def _cannot_write(error: BaseException | None) -> bool:
    """Whether the database can be read and not written, by the codes of the driver's error behind Django's."""
    while error is not None:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _SQLITE_NO_WRITING:  # without the extended code
            return True
        if getattr(error, "sqlstate", None) in _POSTGRESQL_NO_WRITING:
            return True
        error = error.__cause__
    return False


def too_many_requests(request: HttpRequest) -> HttpResponse:
    """For allauth, which takes a database that cannot be written for one in which too many are waiting."""
    if _writes():
        return HttpResponse(loader.get_template("429.html").render({}, request), status=429)
    return _page(request, f"{CANNOT_WRITE}. Sign-in is not possible until this is repaired", "Is its disk full?")


def server_error(request: HttpRequest) -> HttpResponse:
    """What no view raised: a session that cannot be read, say."""
    error = sys.exc_info()[1]
    if isinstance(error, OperationalError):
        return _page(request, title_of(error, request.method), str(error))
    return defaults.server_error(request)


def _writes() -> bool:
    """The cache lies in the database, and tells nobody that it could not write."""
    written = secrets.token_hex(8)
    try:
        cache.set(_PROBE, written, _PROBE_S)
        return bool(cache.get(_PROBE) == written)
    except DatabaseError:
        return False


def _page(request: HttpRequest, title: str, words: str) -> HttpResponse:
    template = loader.get_template("common/error_piece.html" if request.headers.get("HX-Request") else "503.html")
    return HttpResponse(template.render({"title": title, "words": words}), status=503)
