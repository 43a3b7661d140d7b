"""Made by makemigrations."""

from django.db import migrations, models

import appliance.common.node


class Migration(migrations.Migration):
    dependencies = [
        ("reports", "0005_schedules_follow_the_zone"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="node",
            field=models.CharField(
                blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
            ),
        ),
        migrations.CreateModel(
            name="Started",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "node",
                    models.CharField(
                        blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("at", models.DateTimeField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("node", "name"), name="one_start_a_task")],
            },
        ),
    ]
