"""The audit in the administration: to look at. Its own page finds more."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.utils.functional import cached_property

from appliance.accounts.audited_admin import AuditedAdmin
from appliance.audit.models import Entry
from appliance.common.templatetags.waypost import clock, shown

__all__ = ["EntryAdmin"]

COUNTED = 10_000


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counting millions takes seconds."""

    @cached_property
    def count(self) -> int:
        """Returns the number of entries, at most ``COUNTED``."""
        bounded: Any = self.object_list[:COUNTED]
        return int(bounded.count())


class EntryAdmin(AuditedAdmin):
    """The audit among the administration pages; read-only."""

    title = "Audit"
    explanation = "All changes, with user, time and reason. Entries cannot be changed or deleted."
    list_display = ("clock", "by", "action", "about", "outcome")
    fields = ("clock", "by", "address", "action", "about", "outcome", "words", "why", "before", "after")
    paginator = BoundedPaginator

    @admin.display(description="At")
    def clock(self, entry: Entry) -> str:
        """Returns the time of the entry."""
        return clock(entry.at)

    @admin.display(description="User")
    def by(self, entry: Entry) -> str:
        """Returns the name of the user."""
        return shown(entry.who)

    @admin.display(description="Subject")
    def about(self, entry: Entry) -> str:
        """Returns the subject, with control characters made visible."""
        return shown(entry.subject)

    def subject(self, obj: Any) -> str:
        """Returns the subject of the entry."""
        return str(obj.subject)


admin.site.register(Entry, EntryAdmin)
