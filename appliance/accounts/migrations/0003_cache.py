"""The table of the cache that all portal processes share."""

from __future__ import annotations

from django.apps.registry import Apps
from django.core.management import call_command
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def make_table(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    call_command("createcachetable", database=schema_editor.connection.alias, verbosity=0)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_roles")]
    operations = [migrations.RunPython(make_table, migrations.RunPython.noop)]
