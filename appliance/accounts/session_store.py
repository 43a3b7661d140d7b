"""The sessions of the portal, in its database: each row names its user, so that the sessions of a user can be listed and ended.

Law: a session is in force as long as its row exists. Pages show what is in the row, so a list and the sessions in force do not
differ; and a request that was under way when its session was ended does not bring it back (``force_update`` of Django's store).
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

__all__ = ["SIGN_IN", "Session", "SessionStore"]

SIGN_IN = "waypost_sign_in"  # key of a session: what appliance.accounts.sessions notes when its user signs in


class Session(AbstractBaseSession):
    """One session. ``user`` is None before a sign-in; ``number`` names it on pages, which show no key."""

    # Without a constraint of the database: while a user is deleted, a session of this user may still be written.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, db_constraint=False, related_name="+"
    )
    number = models.UUIDField(null=True, db_index=True)

    class Meta:
        """Names rows in the words of Django's administration."""

        verbose_name = "session"

    @classmethod
    def get_session_store_class(cls) -> type[SessionStore]:
        """Returns the class that reads and writes these rows."""
        return SessionStore


class SessionStore(DatabaseStore):
    """Writes the user and the number of a session beside its data."""

    @classmethod
    def get_model_class(cls) -> type[Session]:
        """Returns the model of the rows."""
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        """Returns a row with this data."""
        row = super().create_model_instance(data)
        assert isinstance(row, Session)
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        row.number = uuid.UUID(data[SIGN_IN]["number"]) if SIGN_IN in data else None
        return row
