"""Queue ids in URLs and in what people type."""

from __future__ import annotations

import re

__all__ = ["QueueIdConverter", "queue_id_in"]

PATTERN = "[0-9A-Z]{13,20}"  # as the core takes them


class QueueIdConverter:
    """Converts queue ids in URLs."""

    regex = PATTERN

    def to_python(self, value: str) -> str:
        """Returns the queue id of a URL."""
        return value

    def to_url(self, value: str) -> str:
        """Returns a queue id as it is in a URL."""
        return str(value)


def queue_id_in(typed: str) -> str:
    """Returns the queue id if the text is a queue id and nothing else; otherwise ""."""
    text = typed.strip().upper()
    return text if re.fullmatch(PATTERN, text) else ""
