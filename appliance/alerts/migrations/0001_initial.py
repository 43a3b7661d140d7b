"""Made by makemigrations."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="RuleCheck",
            fields=[
                (
                    "rule",
                    models.CharField(max_length=40, primary_key=True, serialize=False),
                ),
                ("checked_at", models.DateTimeField(null=True)),
                ("tried_at", models.DateTimeField()),
                ("causes", models.PositiveIntegerField(default=0)),
                ("unknown", models.CharField(blank=True, max_length=2000)),
            ],
        ),
        migrations.CreateModel(
            name="Silence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("rule", models.CharField(max_length=40)),
                ("cause", models.CharField(blank=True, max_length=200)),
                ("until", models.DateTimeField()),
                ("made_at", models.DateTimeField()),
                ("made_by", models.CharField(max_length=150)),
                ("why", models.CharField(max_length=1000)),
                (
                    "ended_at",
                    models.DateTimeField(help_text="when an operator ended it", null=True),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Watch",
            fields=[
                (
                    "id",
                    models.SmallIntegerField(default=1, primary_key=True, serialize=False),
                ),
                ("pid", models.IntegerField()),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "watch",
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                ("cause", models.CharField(max_length=200)),
                ("rule", models.CharField(max_length=40)),
                ("severity", models.CharField(max_length=10)),
                ("summary", models.CharField(max_length=2000)),
                ("detail", models.CharField(blank=True, max_length=2000)),
                ("link", models.CharField(max_length=1000)),
                ("began_at", models.DateTimeField(help_text="first seen")),
                (
                    "opened_at",
                    models.DateTimeField(db_index=True, help_text="empty: not long enough yet", null=True),
                ),
                ("seen_at", models.DateTimeField(help_text="last seen")),
                ("ended_at", models.DateTimeField(db_index=True, null=True)),
                ("ended_because", models.CharField(blank=True, max_length=200)),
                (
                    "unknown",
                    models.CharField(
                        blank=True,
                        help_text="why nothing is known about it now",
                        max_length=2000,
                    ),
                ),
                ("true_s", models.FloatField(default=0.0)),
                ("gone_s", models.FloatField(default=0.0)),
                (
                    "noticed_at",
                    models.DateTimeField(
                        help_text="when its notices were made; empty: none were",
                        null=True,
                    ),
                ),
                ("acknowledged_at", models.DateTimeField(null=True)),
                ("acknowledged_by", models.CharField(blank=True, max_length=150)),
                ("acknowledged_why", models.CharField(blank=True, max_length=1000)),
            ],
            options={
                "ordering": ("-id",),
                "indexes": [models.Index(fields=["cause", "-id"], name="alert_cause")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("cause",),
                        name="one_alert_per_cause",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("opened", "opened"),
                            ("ended", "ended"),
                            ("test", "test"),
                        ],
                        max_length=10,
                    ),
                ),
                ("channel", models.CharField(max_length=10)),
                ("target", models.CharField(blank=True, max_length=400)),
                ("made_at", models.DateTimeField()),
                ("made_by", models.CharField(blank=True, max_length=150)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(db_index=True, null=True)),
                (
                    "dropped_at",
                    models.DateTimeField(help_text="its target is not configured any more", null=True),
                ),
                ("words", models.CharField(blank=True, max_length=2000)),
                (
                    "alert",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="notices",
                        to="alerts.alert",
                    ),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
    ]
