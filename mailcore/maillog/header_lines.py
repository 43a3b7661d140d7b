"""The lines of the mail log about header checks."""

from __future__ import annotations

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, inside, word

__all__ = ["HeaderLines"]


class HeaderLines(Lines):
    """A part of ``MailLog``."""

    def header_checked(
        self, queue_id: str, action: str, field: str, text: str, *, client: str, sender: str, recipient: str
    ) -> None:
        """Logs what a header check does with a message, as Postfix does. ``client``: name[address], or "local"."""
        about = f"from {word(client)}; from=<{inside(sender)}> to=<{inside(recipient)}>"
        self._line("cleanup", f"{queue_id}: {word(action)}: header {free(field)} {about}: {free(text)}")
        self._object(
            "header_checked",
            queue_id=queue_id,
            action=action,
            field=field,
            text=text,
            client=client,
            sender=sender,
            recipient=recipient,
        )
