"""Why the core could not export the latest events: a column of its own instead of the first line of the log."""

from __future__ import annotations

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

BEFORE = "the core could not export the latest events: "  # how the first line of such a log began


def move(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Moves the reason out of the logs of earlier runs."""
    for run in apps.get_model("reports", "Run").objects.filter(log__startswith=BEFORE):
        first, _, rest = run.log.partition("\n")
        run.not_exported, run.log = first.removeprefix(BEFORE)[:1000], rest
        run.save(update_fields=("not_exported", "log"))


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0003_by_hand"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="not_exported",
            field=models.CharField(blank=True, default="", max_length=1000),
            preserve_default=False,
        ),
        migrations.RunPython(move, migrations.RunPython.noop),
    ]
