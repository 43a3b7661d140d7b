"""Writes events: from sealed segments to columns, exactly once."""
