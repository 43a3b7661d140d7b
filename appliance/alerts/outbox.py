"""The outbox: notices that wait, sent to each target in one message, and tried again until they are sent.

Laws
- A notice leaves only by being sent, or because its target is not configured any more. A kill between sending and noting sends
  it twice; no other kill does.
- An open alert that was sent to no target is sent to those that are configured then: a wrong address that is corrected loses
  no alert.
- A target that does not answer delays no other notice for longer than one attempt, and no check of the rules: the watch runs
  ``send_due`` in a thread of its own.

Keeps law: notice-until-sent (docs/laws.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone

from appliance.alerts import book
from appliance.alerts.book import Target
from appliance.alerts.models import TEXT_MAX, Kind, Notice
from appliance.alerts.sending import NotSent, send
from mailcore.config.alerts import Alerts

__all__ = ["BACKOFF_S", "Outbox"]

BACKOFF_S = (
    15,
    30,
    60,
    120,
    300,
    600,
    900,
)  # after the first, second … attempt that failed; then the last again and again
MESSAGE_MAX = 50  # notices in one message
NOT_CONFIGURED = "not sent: it is not configured any more"
_log = logging.getLogger("waypost.alerts")
Sender = Callable[[Target, Sequence[Notice], Alerts, datetime], str]


class Outbox:
    """Sends notices that wait. Not for several threads at once."""

    def __init__(self, settings: Alerts, targets: Sequence[Target], sender: Sender = send) -> None:
        self._given = settings, tuple(targets)
        self._send = sender
        self._sent: dict[int, str] = {}  # sent, and not noted yet because the database failed

    def use(self, settings: Alerts, targets: Sequence[Target]) -> None:
        """Sends by these settings from now on; what is being sent goes by those before."""
        self._given = settings, tuple(targets)

    def send_due(self, now: datetime) -> int:
        """Sends what is due; returns how many were sent. Raises DatabaseError, and then notes the rest the next time."""
        settings, targets = self._given
        self._note_sent()
        groups: dict[Target, list[Notice]] = {}
        waiting = Notice.objects.filter(
            node__in=book.own_nodes(), sent_at__isnull=True, dropped_at__isnull=True
        ).select_related("alert")
        for notice in waiting.order_by("id"):
            groups.setdefault(Target(notice.channel, notice.target), []).append(notice)
        count = 0
        for target, notices in groups.items():
            if target not in targets:
                numbers = [notice.pk for notice in notices]
                Notice.objects.filter(pk__in=numbers).update(dropped_at=now, words=NOT_CONFIGURED)
                opened = (notice.alert_id for notice in notices if notice.kind == Kind.OPENED)
                book.forget_unsent({number for number in opened if number is not None})
            elif any(_is_due(notice, now) for notice in notices):
                count += self._try(target, notices[:MESSAGE_MAX], settings, now)
        return count

    def _try(self, target: Target, notices: list[Notice], settings: Alerts, now: datetime) -> int:
        try:
            words = self._send(target, notices, settings, timezone.now())
        except NotSent as error:
            attempts = max(notice.attempts for notice in notices)
            wait = BACKOFF_S[min(attempts, len(BACKOFF_S) - 1)]
            _log.warning("alerts: %s %s: %s; trying again in %d s", target.channel, target.address, error, wait)
            Notice.objects.filter(pk__in=[notice.pk for notice in notices]).update(
                attempts=F("attempts") + 1, next_try_at=now + timedelta(seconds=wait), words=str(error)[:TEXT_MAX]
            )
            return 0
        self._sent.update((notice.pk, words[:TEXT_MAX]) for notice in notices)
        self._note_sent()
        return len(notices)

    def _note_sent(self) -> None:
        by_words: dict[str, list[int]] = {}
        for number, words in self._sent.items():
            by_words.setdefault(words, []).append(number)
        for words, numbers in by_words.items():
            Notice.objects.filter(pk__in=numbers).update(
                sent_at=timezone.now(), attempts=F("attempts") + 1, words=words
            )
            for number in numbers:
                del self._sent[number]


def _is_due(notice: Notice, now: datetime) -> bool:
    """Returns whether it is tried now. A time further ahead than any wait is of a clock that was set back."""
    return notice.next_try_at <= now or notice.next_try_at > now + timedelta(seconds=BACKOFF_S[-1])
