"""Runs of reports, and what the portal set about them."""

from __future__ import annotations

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0001_schedules"),
    ]

    operations = [
        migrations.CreateModel(
            name="Preferences",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("zone", models.CharField(blank=True, max_length=64)),
                ("recipients", models.JSONField(null=True)),
                ("numbers", models.CharField(blank=True, max_length=5)),
            ],
            options={
                "verbose_name_plural": "preferences",
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(db_index=True)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("asked", "waiting"),
                            ("running", "running"),
                            ("done", "made"),
                            ("red", "does not balance"),
                            ("failed", "failed"),
                            ("stopped", "stopped"),
                        ],
                        db_index=True,
                        default="asked",
                        max_length=10,
                    ),
                ),
                ("who", models.CharField(max_length=150)),
                ("attempt", models.PositiveSmallIntegerField(default=1)),
                ("asked_at", models.DateTimeField(auto_now_add=True)),
                ("due_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("begun_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("stage", models.CharField(blank=True, max_length=200)),
                ("share", models.FloatField(default=0.0)),
                ("words", models.CharField(blank=True, max_length=2000)),
                ("log", models.TextField(blank=True)),
                ("stop_wanted", models.BooleanField(default=False)),
                ("mail", models.BooleanField(default=False)),
                ("mailed_at", models.DateTimeField(null=True)),
                ("mail_words", models.CharField(blank=True, max_length=1000)),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
    ]
