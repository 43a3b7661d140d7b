"""Made by makemigrations."""

from django.db import migrations, models

import appliance.common.node


class Migration(migrations.Migration):
    dependencies = [
        ("audit", "0003_entry_token"),
    ]

    operations = [
        migrations.AddField(
            model_name="entry",
            name="node",
            field=models.CharField(
                blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
            ),
        ),
    ]
