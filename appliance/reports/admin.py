"""The administration page of schedules: their time and whether they are enabled. Tasks are code and cannot be added here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django_celery_beat.models import PeriodicTask

from appliance.accounts.audited_admin import AuditedAdmin
from appliance.common.templatetags.waypost import when
from appliance.reports.schedules import ScheduleForm, described, last_starts, shown_tasks

__all__ = ["ScheduleAdmin"]


class ScheduleAdmin(AuditedAdmin):
    """The administration page of the schedules."""

    action = "schedule"
    title = "Schedules"
    explanation = "Start times of the nightly report and of the retention."
    may_change = True
    form = ScheduleForm
    list_display = ("name", "when", "enabled", "last")
    fields = ("name", "at", "enabled", "last", "why")
    readonly_fields = ("name", "last")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Returns the tasks whose schedule can be changed."""
        return shown_tasks()

    @admin.display(description="At")
    def when(self, task: Any) -> str:
        """Returns the time of day and the time zone."""
        words = described(task)
        return f"{words['at']} {words['zone']}"

    @admin.display(description="Last run")
    def last(self, task: Any) -> str:
        """Returns the time of the last start."""
        return when(last_starts([task])[task.name])

    def subject(self, obj: Any) -> str:
        """Returns the name of the task in the audit."""
        return str(obj.name)

    def described(self, obj: Any) -> dict[str, Any]:
        """Returns the schedule, as the audit records it before and after a change."""
        return described(obj)


admin.site.register(PeriodicTask, ScheduleAdmin)
