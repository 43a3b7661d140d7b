"""Recipients lost to damage are a term of the balance."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("live", "0003_counts_continue")]

    operations = [
        migrations.AddField(
            model_name="sample",
            name="lost",
            field=models.BigIntegerField(default=0, help_text="to damage"),
        ),
    ]
