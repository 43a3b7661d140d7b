"""The command palette: any page, destination, message or setting, found by typing."""
