"""The feed of events: from the log's segments as long as they exist, and from event files before that."""
