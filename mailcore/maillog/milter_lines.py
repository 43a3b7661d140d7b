"""The lines of the mail log about milters."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["MilterLines"]

RECIPIENTS_MAX = 20  # in a line; mail.jsonl has all
LOCAL_ADDRESS = "127.0.0.1"
LOCAL = f"localhost[{LOCAL_ADDRESS}]"  # the client that milters see of mail that does not come over SMTP


class MilterLines(Lines):
    """A part of ``MailLog``."""

    def milter_failed(
        self, milter: str, stage: str, what: str, action: str, client_address: str, queue_id: str = ""
    ) -> None:
        """Logs that a milter cannot be reached, is late or breaks the protocol; ``action`` is its default_action."""
        self._milter_failed("smtpd", f"[{word(client_address)}]", milter, stage, what, action, client_address, queue_id)

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
        self._milter_acted("smtpd", client, milter, stage, action, why, client_address, queue_id, sender, recipients)

    def local_milter_failed(self, milter: str, stage: str, what: str, action: str, queue_id: str) -> None:
        """Logs that a milter failed with mail that does not come over SMTP."""
        self._milter_failed("cleanup", LOCAL, milter, stage, what, action, LOCAL_ADDRESS, queue_id)

    def local_milter_acted(
        self, milter: str, stage: str, action: str, why: str, queue_id: str, sender: str, recipients: Sequence[str]
    ) -> None:
        """Logs what a milter decides about mail that does not come over SMTP. ``action`` tempfail: the message waits."""
        self._milter_acted("cleanup", LOCAL, milter, stage, action, why, LOCAL_ADDRESS, queue_id, sender, recipients)

    def _milter_failed(
        self, program: str, client: str, milter: str, stage: str, what: str, action: str, address: str, queue_id: str
    ) -> None:
        message = f"{queue_id}: " if queue_id else ""
        self._warning(
            program,
            f"{message}milter {word(milter)} {free(what)}; {word(stage)} from {client}; default_action={word(action)}",
        )
        self._object(
            "milter_failed",
            queue_id=queue_id,
            milter=milter,
            stage=stage,
            what=what,
            action=action,
            client_address=address,
        )

    def _milter_acted(
        self, program: str, client: str, milter: str, stage: str, action: str, why: str, address: str, queue_id: str,
        sender: str, recipients: Sequence[str],
    ) -> None:  # fmt: skip
        by = f"milter {word(milter)}" if milter else "milters"
        about = f": {free(why)}" if why else ""
        self._line(
            program,
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
            client_address=address,
            sender=sender,
            recipients=list(recipients),
        )


def _some(recipients: Sequence[str]) -> str:
    to = ",".join(f"<{word(each)}>" for each in recipients[:RECIPIENTS_MAX])
    return to + (f" and {len(recipients) - RECIPIENTS_MAX} more" if len(recipients) > RECIPIENTS_MAX else "")
