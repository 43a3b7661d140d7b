"""Bounces: the reports to senders about mail that could not be delivered."""

from mailcore.bounce.dsn import bounce, bounce_queue_id, bounce_sender

__all__ = ["bounce", "bounce_queue_id", "bounce_sender"]
