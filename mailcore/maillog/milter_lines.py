"""The lines of the mail log about milters."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["MilterLines"]

RECIPIENTS_MAX = 20  # in a line; mail.jsonl has all
LOCAL = "localhost[127.0.0.1]"  # the client that milters see of mail that does not come over SMTP


class MilterLines(Lines):
    """A part of ``MailLog``."""

    def milter_failed(
        self, milter: str, stage: str, what: str, action: str, client_address: str, queue_id: str = ""
    ) -> None:
        """Logs that a milter cannot be reached, is late or breaks the protocol; ``action`` is its default_action."""
        message = f"{queue_id}: " if queue_id else ""
        self._warning(
            "smtpd",
            f"{message}milter {word(milter)} {free(what)}; {word(stage)} from [{word(client_address)}]; "
            f"default_action={word(action)}",
        )
        self._object(
            "milter_failed",
            queue_id=queue_id,
            milter=milter,
            stage=stage,
            what=what,
            action=action,
            client_address=client_address,
        )

    def milter_acted(
        self,
        milter: str,
        stage: str,
        action: str,
        why: str,
        client_address: str,
        queue_id: str = "",
        sender: str = "",
        recipients: Sequence[str] = (),
    ) -> None:
        """Logs that a milter discards or holds a message, which has the ID that the client got with its 250."""
        client = f"unknown[{word(client_address)}]"
        by = f"milter {word(milter)}" if milter else "milters"
        about = f": {free(why)}" if why else ""
        self._line(
            "smtpd",
            f"{queue_id or 'NOQUEUE'}: milter-{word(action)}: {word(stage)} from {client}: {by}{about}; "
            f"from=<{word(sender)}> to={_some(recipients)}",
        )
        self._object(
            "milter_acted",
            queue_id=queue_id,
            milter=milter,
            stage=stage,
            action=action,
            why=why,
            client_address=client_address,
            sender=sender,
            recipients=list(recipients),
        )

    def local_milter_failed(self, milter: str, stage: str, what: str, action: str, queue_id: str) -> None:
        """Logs that a milter failed with mail that does not come over SMTP."""
        text = (
            f"{queue_id}: milter {word(milter)} {free(what)}; {word(stage)} from {LOCAL}; default_action={word(action)}"
        )
        self._warning("cleanup", text)
        self._object(
            "milter_failed",
            queue_id=queue_id,
            milter=milter,
            stage=stage,
            what=what,
            action=action,
            client_address="127.0.0.1",
        )

    def local_milter_acted(
        self, milter: str, stage: str, action: str, why: str, queue_id: str, sender: str, recipients: Sequence[str]
    ) -> None:
        """Logs what a milter decides about mail that does not come over SMTP. ``action`` tempfail: the message waits."""
        by = f"milter {word(milter)}" if milter else "milters"
        about = f": {free(why)}" if why else ""
        to = _some(recipients)
        self._line(
            "cleanup",
            f"{queue_id}: milter-{word(action)}: {word(stage)} from {LOCAL}: {by}{about}; from=<{word(sender)}> to={to}",
        )
        self._object(
            "milter_acted",
            queue_id=queue_id,
            milter=milter,
            stage=stage,
            action=action,
            why=why,
            client_address="127.0.0.1",
            sender=sender,
            recipients=list(recipients),
        )


def _some(recipients: Sequence[str]) -> str:
    to = ",".join(f"<{word(each)}>" for each in recipients[:RECIPIENTS_MAX])
    return to + (f" and {len(recipients) - RECIPIENTS_MAX} more" if len(recipients) > RECIPIENTS_MAX else "")
