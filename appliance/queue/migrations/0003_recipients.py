"""How many recipients a change changed, and how many of them were being delivered."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queue", "0002_worker")]

    operations = [
        migrations.AddField("change", "changed_recipients", models.PositiveBigIntegerField(default=0)),
        migrations.AddField("change", "in_flight", models.PositiveBigIntegerField(default=0)),
    ]
