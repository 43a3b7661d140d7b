"""The queue: browsing, one message, ages, and what may be done to messages."""
