"""Backups: configuration, database, keys, and optionally reports and the queue, in one file; and back from it."""
