"""Destinations: windows, feedback, suspending, overrides for a time."""
