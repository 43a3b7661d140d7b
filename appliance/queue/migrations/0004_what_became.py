"""What became of each message of a change: deliveries that ended before it, and reasons why messages were not changed."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queue", "0003_recipients")]

    operations = [
        migrations.AddField("change", "too_late", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("change", "undecided", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("change", "failures", models.JSONField(default=dict)),
    ]
