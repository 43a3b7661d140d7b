"""Which process makes a change."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queue", "0001_initial")]

    operations = [
        migrations.AddField("change", "worker", models.CharField(blank=True, default="", max_length=120)),
    ]
