"""Which lines of ``mail.jsonl`` match, and the level of each event.

A sender is named only when a message is accepted, so the queue IDs of such messages are remembered, and all their later lines
match, too.

Must not know: where the lines come from.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from mailcore.lookup.filter import sender_matcher
from mailcore.lookup.pattern import address_matcher, text_matcher

__all__ = ["ERRORS", "EVENTS", "INFOS", "LEVELS", "STATUSES", "WARNINGS", "Selection", "level_of"]

REMEMBERED_MAX = 100_000  # queue IDs of a sender: 20 MB
LEVELS = ("info", "warning", "error")
ERRORS = frozenset({"failed", "start_refused"})
# Events that the log writes as warnings; tests/cli/test_tail.py compares them with mailcore/maillog.
WARNINGS = frozenset(
    {
        "accepting_paused", "certificate_refused", "child_ended", "collector_failed", "data_damaged",
        "disk_full", "dns_list_failed", "dns_listed", "greylist_full", "lane_lags", "login_failed", "maildrop_damaged",
        "maps_refused", "milter_failed", "positions_damaged", "probes_exceeded", "proxy_refused", "rate_exceeded",
        "recipient_store_damaged", "recipient_store_failed",
        "recipients_refused", "record_set_aside", "refusals_not_recorded", "reload_refused", "rewriting_failed",
        "routes_refused", "session_failed", "settings_not_taken", "shard_waits",
        "spans_rejected", "stopped_accepting", "sync_failed", "tls_counts_left_out", "tls_failed", "tls_report_failed",
        "tls_report_given_up", "tls_reports_stopped", "traces_failed", "traces_lost", "tuned_ignored",
        "users_refused",
    }
)  # fmt: skip
INFOS = frozenset(
    {
        "accepted", "accepting_again", "active", "administered", "adopted", "bounced", "certificate_read",
        "collector_answers",
        "delay_warned", "delivery", "expired", "header_checked", "lines_lost", "maps_read",
        "milter_acted", "not_passed_on", "recipient_verified", "recipients_read", "recovered", "refused", "reload_began",
        "reload_ended", "removed",
        "routes_read", "settings_taken", "shard_owned", "started",
        "stress", "stress_ended", "success_reported", "swept", "tls_report_sent",
        "tuned", "tuned_ended", "users_read", "window_changed",
    }
)  # fmt: skip
STATUSES = ("sent", "deferred", "bounced", "expired")  # of deliveries
EVENTS = ERRORS | WARNINGS | INFOS


def level_of(event: str) -> str:
    """Returns the level of an event: info, warning or error."""
    return "error" if event in ERRORS else "warning" if event in WARNINGS else "info"


class Selection:
    """Decides which lines match; all given conditions must."""

    def __init__(
        self, *, queue_id: str = "", sender: str = "", recipient: str = "", destination: str = "", client: str = "",
        status: str = "", event: str = "", level: str = "info",
    ) -> None:  # fmt: skip
        """Raises PatternError."""
        self._queue_id = queue_id.upper()
        self._sender = sender_matcher(sender) if sender else None
        self._recipient = address_matcher(recipient) if recipient else None
        self._destination = text_matcher(destination) if destination else None
        self._client = text_matcher(client) if client else None
        self._status = status
        self._event = event
        self._level = LEVELS.index(level)
        self._of_sender: OrderedDict[str, None] = OrderedDict()
        self.words = tuple(each for each in (self._queue_id, status, event) if each)  # that a line must have to match
        texts = (sender, recipient, destination, client)
        self.is_everything = not (self.words or any(texts) or self._level)

    def matches(self, line: dict[str, Any]) -> bool:
        """Returns True if the line matches."""
        queue_id = str(line.get("queue_id") or "")
        if self._sender is not None and not self._is_of_sender(line, queue_id):
            return False
        if self._queue_id and self._queue_id not in (queue_id, line.get("bounce_id")):
            return False
        if self._event and line.get("event") != self._event:
            return False
        if self._status and line.get("status") != self._status:
            return False
        if self._client is not None and not self._names_client(line):
            return False
        if LEVELS.index(level_of(str(line.get("event")))) < self._level:
            return False
        recipient = str(line.get("recipient") or "")
        if self._recipient is not None and not (recipient and self._recipient(recipient)):
            return False
        return self._destination is None or self._names_destination(line, recipient)

    def _is_of_sender(self, line: dict[str, Any], queue_id: str) -> bool:
        assert self._sender is not None
        sender = line.get("sender")
        if isinstance(sender, str) and self._sender(sender):
            if queue_id:
                self._of_sender[queue_id] = None
                if len(self._of_sender) > REMEMBERED_MAX:
                    self._of_sender.popitem(last=False)
            return True
        if line.get("event") == "removed" and queue_id in self._of_sender:
            del self._of_sender[queue_id]
            return True
        return queue_id in self._of_sender

    def _names_client(self, line: dict[str, Any]) -> bool:
        assert self._client is not None
        names = (str(line.get(name) or "") for name in ("client_address", "client_name"))
        return any(name and self._client(name) for name in names)

    def _names_destination(self, line: dict[str, Any], recipient: str) -> bool:
        assert self._destination is not None
        relay = str(line.get("relay") or "")
        host, _, rest = relay.partition("[")
        address, _, port = rest.partition("]")
        hops = [host, recipient.rpartition("@")[2]]
        names = [str(line.get("destination") or ""), relay, *hops]
        if transport := str(line.get("transport") or ""):  # as destinations are named elsewhere: transport:next hop
            hops += [f"[{address}]{port}", f"[{host}]{port}", f"{host}{port}", f"[{address}]"] if address else []
            names += [f"{transport}:{hop}" for hop in hops if hop]
        return any(name and self._destination(name) for name in names)
