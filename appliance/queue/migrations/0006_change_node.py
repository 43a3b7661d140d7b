"""Made by makemigrations."""

from django.db import migrations, models

import appliance.common.node


class Migration(migrations.Migration):
    dependencies = [
        ("queue", "0005_retry"),
    ]

    operations = [
        migrations.AddField(
            model_name="change",
            name="node",
            field=models.CharField(
                blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
            ),
        ),
    ]
