"""What a prediction lacks is known."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuning", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="prediction",
            name="unread_files",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
