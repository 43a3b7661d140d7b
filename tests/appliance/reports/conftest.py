"""Fixtures of this room."""

from __future__ import annotations

from tests.appliance.reports.made import reports_directory

__all__ = ["reports_directory"]
