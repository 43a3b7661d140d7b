"""Runs made at a terminal are known, too."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0002_runs"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="by_hand",
            field=models.BooleanField(default=False),
        ),
    ]
