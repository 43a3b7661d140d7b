"""Conversations with mail software that is not ours, in both directions."""
