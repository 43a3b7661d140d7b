"""Reads events back for whoever asks about mail that has left the log."""
