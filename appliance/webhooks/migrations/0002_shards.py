"""Made by makemigrations."""

from django.db import migrations, models

import appliance.common.node


class Migration(migrations.Migration):
    dependencies = [
        ("webhooks", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogEnd",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("shard", models.CharField(max_length=64, unique=True)),
                ("cursor", models.TextField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.AlterModelOptions(
            name="webhook",
            options={"ordering": ("name", "shard")},
        ),
        migrations.AddField(
            model_name="webhook",
            name="shard",
            field=models.CharField(
                blank=True, db_default="", default=appliance.common.node.own_shard, editable=False, max_length=64
            ),
        ),
        migrations.AlterField(
            model_name="webhook",
            name="name",
            field=models.CharField(max_length=60),
        ),
        migrations.AddConstraint(
            model_name="webhook",
            constraint=models.UniqueConstraint(fields=("name", "shard"), name="one_place_a_shard"),
        ),
    ]
