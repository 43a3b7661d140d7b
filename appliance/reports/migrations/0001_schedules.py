"""The schedules there are. Who has changed their times keeps them."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

TASKS = (
    ("nightly report", "appliance.reports.tasks.nightly_report", "1", "30"),
    ("retention", "appliance.reports.tasks.tidy", "3", "30"),
)


def make_schedules(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    task_model = apps.get_model("django_celery_beat", "PeriodicTask")
    cron_model = apps.get_model("django_celery_beat", "CrontabSchedule")
    interval_model = apps.get_model("django_celery_beat", "IntervalSchedule")
    for name, task, hour, minute in TASKS:
        if not task_model.objects.filter(name=name).exists():
            cron = cron_model.objects.create(hour=hour, minute=minute, timezone="UTC")
            task_model.objects.create(name=name, task=task, crontab=cron)
    minutely, _ = interval_model.objects.get_or_create(every=1, period="minutes")
    task_model.objects.get_or_create(
        name="sign of life",
        defaults={"task": "appliance.reports.tasks.sign_of_life", "interval": minutely, "expire_seconds": 60},
    )


class Migration(migrations.Migration):
    dependencies = [("django_celery_beat", "0019_alter_periodictasks_options")]
    operations = [migrations.RunPython(make_schedules, migrations.RunPython.noop)]
