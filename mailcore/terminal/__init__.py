"""Shared by all commands: argument parsing, output, and times."""
