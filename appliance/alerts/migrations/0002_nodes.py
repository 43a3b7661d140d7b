"""Alerts, notices, checks and the watch have the node that they are of; one watch leads for the mail of all nodes."""

from django.db import migrations, models

import appliance.common.node


def node() -> models.Field:
    return models.CharField(
        blank=True, db_default="", default=appliance.common.node.own_node, editable=False, max_length=64
    )


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Lead",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("node", models.CharField(max_length=64)),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.AddField(model_name="alert", name="node", field=node()),
        migrations.AddField(model_name="notice", name="node", field=node()),
        migrations.AddField(model_name="rulecheck", name="node", field=node()),
        migrations.AddField(model_name="watch", name="node", field=node()),
        migrations.AddField(
            model_name="silence",
            name="node",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=64),
        ),
        migrations.RemoveConstraint(model_name="alert", name="one_alert_per_cause"),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)), fields=("node", "cause"), name="one_alert_per_cause"
            ),
        ),
        # The column keeps its name, for a portal of an earlier release that is installed again.
        migrations.AlterField(
            model_name="rulecheck",
            name="rule",
            field=models.CharField(db_column="rule", max_length=105, primary_key=True, serialize=False),
        ),
        migrations.RenameField(model_name="rulecheck", old_name="rule", new_name="key"),
        migrations.AlterField(
            model_name="watch",
            name="id",
            field=models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
        ),
        migrations.AddConstraint(
            model_name="watch", constraint=models.UniqueConstraint(fields=("node",), name="one_watch_a_node")
        ),
    ]
