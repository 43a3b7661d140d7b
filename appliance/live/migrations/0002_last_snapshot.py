"""Gives the last snapshot its name; the row is kept."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    """Renames the model and its field."""

    dependencies = [("live", "0001_initial")]

    operations = [
        migrations.RenameModel("LastPicture", "LastSnapshot"),
        migrations.RenameField("lastsnapshot", "picture", "snapshot"),
    ]
