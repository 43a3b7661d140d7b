"""Errors of the database behind the portal, as its driver raises them."""

from __future__ import annotations

import sqlite3

__all__ = ["full_disk"]


def full_disk() -> sqlite3.OperationalError:
    """SQLite's error when its disk is full."""
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    error.sqlite_errorname = "SQLITE_FULL"
    return error
