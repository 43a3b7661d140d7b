"""Reads events back, for questions about mail that is no longer in the log."""
