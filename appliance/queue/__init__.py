"""The queue: browsing, one message, ages, and changes to messages."""
