"""Schedules are in the time zone of the reports; before, each had its own, UTC at first.

A time that was never changed is that time of day in the zone of the reports. One that an administrator set keeps its moment.
"""

from __future__ import annotations

import zoneinfo
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils import timezone

AS_MADE = {"nightly report": ("1", "30"), "retention": ("3", "30")}  # by 0001_schedules, in UTC


def follow(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Moves both schedules to the zone in force."""
    crons = apps.get_model("django_celery_beat", "CrontabSchedule")
    given = apps.get_model("reports", "Preferences").objects.filter(pk=1).first()
    zone = given.zone if given is not None and given.zone in zoneinfo.available_timezones() else settings.REPORTS.zone
    for task in apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=AS_MADE):
        was = task.crontab
        if was is None or str(was.timezone) == zone:
            continue
        hour, minute = was.hour, was.minute
        if (hour, minute) != AS_MADE[task.name] or str(was.timezone) != "UTC":
            hour, minute = _there(hour, minute, str(was.timezone), zone)
        rest = {name: getattr(was, name) for name in ("day_of_month", "month_of_year", "day_of_week")}
        task.crontab = crons.objects.create(hour=hour, minute=minute, timezone=zoneinfo.ZoneInfo(zone), **rest)
        task.save()
        if not task.__class__.objects.filter(crontab=was).exists():
            was.delete()


def _there(hour: Any, minute: Any, zone: str, other: str) -> tuple[str, str]:
    """Returns today's time of day in another zone; what is not one time of day stays."""
    if not (str(hour).isdigit() and str(minute).isdigit()):
        return hour, minute
    today = timezone.now().astimezone(zoneinfo.ZoneInfo(zone))
    at: datetime = today.replace(hour=int(hour), minute=int(minute)).astimezone(zoneinfo.ZoneInfo(other))
    return str(at.hour), str(at.minute)


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0004_not_exported"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(follow, migrations.RunPython.noop)]
