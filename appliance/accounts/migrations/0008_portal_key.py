"""Made by makemigrations."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_identities"),
    ]

    operations = [
        migrations.CreateModel(
            name="PortalKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node", models.CharField(blank=True, max_length=64, unique=True)),
                ("digest", models.CharField(max_length=64)),
            ],
        ),
    ]
