"""Made by makemigrations."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import appliance.webhooks.models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Webhook",
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
                ("name", models.CharField(max_length=60, unique=True)),
                ("url", models.CharField(max_length=1000)),
                (
                    "salt",
                    models.CharField(
                        default=appliance.webhooks.models.new_salt,
                        help_text="the secret is made of it and of the portal's key",
                        max_length=64,
                    ),
                ),
                ("kinds", models.JSONField(default=list)),
                ("tag", models.CharField(blank=True, max_length=128)),
                ("sender_domain", models.CharField(blank=True, max_length=253)),
                ("recipient_domain", models.CharField(blank=True, max_length=253)),
                ("login", models.CharField(blank=True, max_length=256)),
                ("enabled", models.BooleanField(default=True)),
                ("made_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("made_by", models.CharField(blank=True, max_length=150)),
                ("cursor", models.TextField(default="now")),
                ("moves", models.PositiveIntegerField(default=0)),
                (
                    "past_lost",
                    models.BooleanField(
                        default=False,
                        help_text="an operator said to continue behind events that are gone",
                    ),
                ),
                (
                    "lost",
                    models.CharField(
                        blank=True,
                        help_text="why it stands still: events are gone",
                        max_length=1000,
                    ),
                ),
                ("sending", models.CharField(blank=True, max_length=64)),
                ("sending_from", models.TextField(blank=True)),
                ("sending_count", models.PositiveIntegerField(default=0)),
                ("attempt", models.PositiveIntegerField(default=0)),
                (
                    "next_event_at",
                    models.DateTimeField(help_text="of the first event that is being sent", null=True),
                ),
                (
                    "next_try_at",
                    models.DateTimeField(default=django.utils.timezone.now),
                ),
                ("failing_since", models.DateTimeField(null=True)),
                (
                    "words",
                    models.CharField(blank=True, help_text="the last answer", max_length=1000),
                ),
                ("sent_events", models.BigIntegerField(default=0)),
                ("sent_requests", models.BigIntegerField(default=0)),
                ("failed_requests", models.BigIntegerField(default=0)),
                ("sent_at", models.DateTimeField(null=True)),
                ("test_asked_at", models.DateTimeField(null=True)),
                ("test_asked_by", models.CharField(blank=True, max_length=150)),
                ("test_at", models.DateTimeField(null=True)),
                ("test_words", models.CharField(blank=True, max_length=1000)),
                ("test_good", models.BooleanField(default=False)),
            ],
            options={
                "ordering": ("name",),
            },
        ),
        migrations.CreateModel(
            name="Failure",
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
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
                ("delivery", models.CharField(blank=True, max_length=64)),
                ("attempt", models.PositiveIntegerField(default=0)),
                ("status", models.PositiveIntegerField(default=0)),
                ("duration_s", models.FloatField(default=0.0)),
                ("words", models.CharField(max_length=1000)),
                (
                    "webhook",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="failures",
                        to="webhooks.webhook",
                    ),
                ),
            ],
            options={
                "ordering": ("-pk",),
            },
        ),
    ]
