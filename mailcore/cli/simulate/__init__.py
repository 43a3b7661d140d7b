"""The command `waypost simulate`."""
