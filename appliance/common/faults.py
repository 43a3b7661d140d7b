"""The pages for a failure of the portal's database and for a bad request, also outside a view and before the user is known.

Law: these pages need no database; they are rendered without the reader's name and role.

Keeps law: database-down-has-a-page (docs/laws.md).
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import sys

from django.conf import settings
from django.core.cache import cache
from django.core.exceptions import DisallowedHost
from django.db import DatabaseError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.views import defaults

__all__ = ["NotEntered", "OfClient", "bad_request", "server_error", "title_of", "too_many_requests"]

LOGGED_CHARACTERS = 100  # of a host name; DNS allows 253, and a client may send more
CANNOT_WRITE = "The portal cannot write to its database; mail delivery continues"
_PROBE, _PROBE_S = "portal:written", 10
_SQLITE_NO_WRITING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY})
_POSTGRESQL_NO_WRITING = frozenset({"53100", "25006"})  # disk_full, read_only_sql_transaction


class NotEntered(OperationalError):
    """Says that a change could not be entered in the audit log first, and so was not made."""


class OfClient(logging.Filter):
    """Removes the traceback from a record about a request that the client made wrong: the error is not ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns True: the record is logged, in one short line."""
        record.exc_info = record.exc_text = None
        request = getattr(record, "request", None)
        if record.name.endswith(DisallowedHost.__name__) and request is not None:
            host = ascii(request.META.get("HTTP_HOST", ""))[:LOGGED_CHARACTERS]
            record.msg, record.args = (
                "refused a request for host %s; the portal answers to [portal] public_url",
                (host,),
            )
        return True


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


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Renders the page for a request that no page accepts. For a wrong Host it says which address is right."""
    if not isinstance(exception, DisallowedHost):
        return defaults.bad_request(request, exception)
    address = settings.PORTAL.public_url or "http://127.0.0.1:PORT; set [portal] public_url to use a name"
    words = {"title": "The portal does not answer to this name", "words": f"Its address is {address}."}
    return HttpResponse(loader.get_template("400.html").render(words), status=400)


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
