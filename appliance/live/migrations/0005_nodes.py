"""Samples and the last snapshot have the node whose portal asked its core."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import appliance.common.node

COLUMNS = "minute, at, started_at, accepted, delivered, deferred, bounced, expired, deleted, undeleted, lost, messages, recipients"


def node() -> models.Field:
    return models.CharField(
        blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
    )


def copy(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Copies in the database: there may be millions."""
    schema_editor.execute(
        f"INSERT INTO live_nodesample (node, {COLUMNS}) SELECT '', {COLUMNS} FROM live_sample"  # noqa: S608  # constants
    )


class Migration(migrations.Migration):
    dependencies = [("live", "0004_lost")]

    operations = [
        migrations.AddField(model_name="lastsnapshot", name="node", field=node()),
        migrations.AlterField(
            model_name="lastsnapshot",
            name="id",
            field=models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
        ),
        migrations.AddConstraint(
            model_name="lastsnapshot",
            constraint=models.UniqueConstraint(fields=("node",), name="one_snapshot_a_node"),
        ),
        # Another table, because the minute was the key of this one.
        migrations.CreateModel(
            name="NodeSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node", node()),
                ("minute", models.BigIntegerField(help_text="wall clock, in minutes since 1970")),
                ("at", models.FloatField()),
                (
                    "started_at",
                    models.FloatField(help_text="when the counts began; they continue over restarts of the manager"),
                ),
                ("accepted", models.BigIntegerField()),
                ("delivered", models.BigIntegerField()),
                ("deferred", models.BigIntegerField()),
                ("bounced", models.BigIntegerField()),
                ("expired", models.BigIntegerField()),
                ("deleted", models.BigIntegerField()),
                ("undeleted", models.BigIntegerField()),
                ("lost", models.BigIntegerField(default=0, help_text="to damage")),
                ("messages", models.BigIntegerField(help_text="queued")),
                ("recipients", models.BigIntegerField(help_text="queued")),
            ],
            options={
                "ordering": ("minute",),
                "constraints": [models.UniqueConstraint(fields=("node", "minute"), name="one_sample_a_minute")],
            },
        ),
        migrations.RunPython(copy, migrations.RunPython.noop),
        migrations.DeleteModel(name="Sample"),
        migrations.RenameModel(old_name="NodeSample", new_name="Sample"),
    ]
