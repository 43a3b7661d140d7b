"""The lines of the mail log about how the valid recipients are known."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["RecipientLines"]


class RecipientLines(Lines):
    """A part of ``MailLog``."""

    def recipients_read(self, recipients: int) -> None:
        """Logs that the files of valid recipients changed, and are in use."""
        self._line("smtpd", f"relay_recipient_maps: {recipients} entries are in use")
        self._object("recipients_read", recipients=recipients)

    def recipients_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs the faults of these files. ``in_use``: the list that was read before; otherwise the recipients get 451."""
        then = "the list read before stays in use" if in_use else "recipients of these domains get 451"
        for fault in faults:
            self._warning("smtpd", f"relay_recipient_maps: {free(fault)}; {then}")
        self._object("recipients_refused", why="; ".join(faults), in_use=in_use)

    def recipient_verified(self, recipient: str, destination: str, outcome: str, text: str) -> None:
        """Logs what a next hop said of a recipient. ``outcome``: valid, unknown, or undecided if it cannot be asked."""
        self._line(
            "verify", f"to=<{word(recipient)}>, destination={word(destination)}, status={outcome} ({free(text)})"
        )
        self._object("recipient_verified", recipient=recipient, destination=destination, outcome=outcome, why=text)

    def probes_exceeded(self, client_address: str, why: str) -> None:
        """Logs that a recipient got 450 because there are too many probes."""
        self._warning("verify", f"no probe for a recipient from [{word(client_address)}]: {free(why)}")
        self._object("probes_exceeded", client_address=client_address, why=why)

    def recipient_store_failed(self, why: str) -> None:
        """Logs that the receivers' own store cannot be used; mail does not wait for it."""
        self._warning("smtpd", f"store of recipients: {free(why)}; continuing without it")
        self._object("recipient_store_failed", why=why)
