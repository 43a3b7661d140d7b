"""Made by makemigrations."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LastPicture",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("at", models.FloatField()),
                ("picture", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="Sample",
            fields=[
                (
                    "minute",
                    models.BigIntegerField(
                        help_text="wall clock, in minutes since 1970", primary_key=True, serialize=False
                    ),
                ),
                ("at", models.FloatField()),
                ("started_at", models.FloatField(help_text="when the manager began to count")),
                ("accepted", models.BigIntegerField()),
                ("delivered", models.BigIntegerField()),
                ("deferred", models.BigIntegerField()),
                ("bounced", models.BigIntegerField()),
                ("expired", models.BigIntegerField()),
                ("deleted", models.BigIntegerField()),
                ("undeleted", models.BigIntegerField()),
                ("messages", models.BigIntegerField(help_text="queued")),
                ("recipients", models.BigIntegerField(help_text="queued")),
            ],
            options={
                "ordering": ("minute",),
            },
        ),
    ]
