"""Tells whether the portal's database is ready for a process that does not make it."""

from __future__ import annotations

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

__all__ = ["all_migrations_applied"]


def all_migrations_applied() -> bool:
    """Returns whether all migrations of the database are applied."""
    try:
        executor = MigrationExecutor(connection)
        return not executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return False
