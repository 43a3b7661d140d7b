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
        bounded: Any = self.object_list[:COUNTED]
        return int(bounded.count())


class EntryAdmin(AuditedAdmin):
    title = "Audit"
    explanation = "Who did what, when and why. Nothing here can be changed or deleted."
    list_display = ("clock", "by", "action", "about", "outcome")
    fields = ("clock", "by", "address", "action", "about", "outcome", "words", "why", "before", "after")
    paginator = BoundedPaginator

    @admin.display(description="At")
    def clock(self, entry: Entry) -> str:
        return clock(entry.at)

    @admin.display(description="Who")
    def by(self, entry: Entry) -> str:
        return shown(entry.who)

    @admin.display(description="Subject")
    def about(self, entry: Entry) -> str:
        return shown(entry.subject)

    def subject(self, obj: Any) -> str:
        return str(obj.subject)


admin.site.register(Entry, EntryAdmin)
