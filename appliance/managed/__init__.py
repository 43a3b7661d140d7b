"""The settings that are managed in the browser: what is set and where, changes, and earlier states."""
