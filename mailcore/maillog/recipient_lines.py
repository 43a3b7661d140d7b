"""The lines of the mail log about how the valid recipients are known."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["RecipientLines"]


class RecipientLines(Lines):
    """A part of ``MailLog``."""

    def recipients_read(self, recipients: int) -> None:
        """Logs that the files of valid recipients changed, and are in use."""
        self._line("smtpd", f"relay_recipient_maps: {counted(recipients, 'entry')} in use")
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
        then = "continuing without it: the greylist puts nothing off, and next hops are asked each time"
        self._warning("smtpd", f"store of recipients: {free(why)}; {then}")
        self._object("recipient_store_failed", why=why)

    def recipient_store_damaged(self, path: str, aside: str, why: str) -> None:
        """Logs that a damaged store was set aside, and a new one is in use."""
        then = "a new one is in use: all clients are new to the greylist, and next hops are asked for recipients again"
        self._warning(
            "smtpd", f"store of recipients: {word(path)}: {free(why)}; set aside as {word(aside)}, and {then}"
        )
        self._object("recipient_store_damaged", path=path, aside=aside, why=why)

    def dns_list_failed(self, domain: str, why: str) -> None:
        """Logs that a list in the DNS counts as if the client were not on it."""
        self._warning("dnsbl", f"{word(domain)} {free(why)}; its clients count as not listed")
        self._object("dns_list_failed", list=domain, why=why)

    def dns_listed(self, client_address: str, names: str, score: int, sender: str, recipient: str) -> None:
        """Logs a client that would be refused if ``action`` were reject."""
        self._warning(
            "dnsbl",
            f"[{word(client_address)}] has a score of {score} by {free(names)}; from=<{word(sender)}> to=<{word(recipient)}>; "
            "not refused, because action = warn",
        )
        self._object(
            "dns_listed", client_address=client_address, lists=names, score=score, sender=sender, recipient=recipient
        )

    def greylist_full(self) -> None:
        """Logs that mail is accepted without greylisting, because all entries are younger than the delay."""
        self._warning("greylist", "the greylist is full of new entries; mail is accepted without it for a minute")
        self._object("greylist_full")
