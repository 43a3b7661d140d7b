"""The lines of the mail log about reports on TLS that other domains get (RFC 8460)."""

from __future__ import annotations

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, inside, word

__all__ = ["TlsrptLines"]


class TlsrptLines(Lines):
    """A part of ``MailLog``."""

    def tls_report_sent(self, domain: str, day: str, address: str, report_id: str, queue_id: str) -> None:
        """Logs that a report is in the queue, or if ``queue_id`` is "" that a web server took it."""
        how = f"queued as {word(queue_id)}" if queue_id else "posted"
        self._line("tlsrpt", f"report of {day} for {word(domain)}, to <{inside(address)}>, id {word(report_id)}: {how}")
        fields = {"domain": domain, "day": day, "address": address, "report_id": report_id}
        self._object("tls_report_sent", **fields, **({"queue_id": queue_id} if queue_id else {}))

    def tls_report_failed(self, domain: str, day: str, address: str, why: str, *, given_up: bool) -> None:
        """Logs that a report was not sent. ``address``: "" if the TXT record is not known."""
        to = f", to <{inside(address)}>" if address else ""
        next_step = "given up" if given_up else "not sent yet, will retry"
        self._warning("tlsrpt", f"report of {day} for {word(domain)}{to}: {next_step}: {free(why)}")
        fields = {"domain": domain, "day": day, "address": address, "why": why}
        if given_up:
            self._object("tls_report_given_up", **fields)
        else:
            self._object("tls_report_failed", **fields)

    def tls_counts_left_out(self, why: str) -> None:
        """Logs that reports lack what is in a file of counts, or that one can't be removed."""
        self._warning("tlsrpt", f"counts of sessions: {free(why)}")
        self._object("tls_counts_left_out", why=why)

    def tls_reports_stopped(self, why: str) -> None:
        """Logs what keeps reports from being sent, of a day or all."""
        self._warning("tlsrpt", f"reports are not sent: {free(why)}")
        self._object("tls_reports_stopped", why=why)
