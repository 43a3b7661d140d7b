"""Schedules in the administration: their time, and whether they run. What they do is code, and made by none here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django_celery_beat.models import PeriodicTask

from appliance.accounts.audited_admin import AuditedAdmin
from appliance.common.templatetags.waypost import when
from appliance.reports.schedules import ScheduleForm, described, shown_tasks

__all__ = ["ScheduleAdmin"]


class ScheduleAdmin(AuditedAdmin):
    action = "schedule"
    title = "Schedules"
    explanation = "When the nightly report and the retention start."
    may_change = True
    form = ScheduleForm
    list_display = ("name", "when", "enabled", "last")
    fields = ("name", "at", "zone", "enabled", "last", "why")
    readonly_fields = ("name", "last")

    def get_queryset(self, request: HttpRequest) -> Any:
        return shown_tasks()

    @admin.display(description="At")
    def when(self, task: Any) -> str:
        words = described(task)
        return f"{words['at']} {words['zone']}"

    @admin.display(description="Last run")
    def last(self, task: Any) -> str:
        return when(task.last_run_at)

    def subject(self, obj: Any) -> str:
        return str(obj.name)

    def described(self, obj: Any) -> dict[str, Any]:
        return described(obj)


admin.site.register(PeriodicTask, ScheduleAdmin)
