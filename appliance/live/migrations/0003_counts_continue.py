"""The counts of a sample continue over restarts of the manager."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("live", "0002_last_snapshot")]

    operations = [
        migrations.AlterField(
            model_name="sample",
            name="started_at",
            field=models.FloatField(help_text="when the counts began; they continue over restarts of the manager"),
        ),
    ]
