"""Bounces: the reports to senders about mail that failed, that is delayed, or that was passed on."""

from mailcore.bounce.dsn import Bounce, bounce, bounce_queue_id, bounce_sender

__all__ = ["Bounce", "bounce", "bounce_queue_id", "bounce_sender"]
