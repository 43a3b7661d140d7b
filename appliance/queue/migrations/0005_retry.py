"""Of a retry: whether scheduled mail was chosen, too, and which of its destinations are dead."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queue", "0004_what_became")]

    operations = [
        migrations.AddField("change", "scheduled", models.BooleanField(default=False)),
        migrations.AddField("change", "dead", models.JSONField(default=list)),
    ]
