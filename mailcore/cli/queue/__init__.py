"""The command `waypost queue`."""
