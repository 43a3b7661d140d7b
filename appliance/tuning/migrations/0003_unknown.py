"""What a prediction does not know is kept with it."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuning", "0002_unread_files")]

    operations = [
        migrations.AddField(
            model_name="prediction",
            name="unknown",
            field=models.JSONField(default=list, null=True),
        ),
    ]
