"""Events for reports: what the log says, exported once, in columns."""
