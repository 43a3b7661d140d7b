"""Sends events to one webhook: asks the core from the webhook's cursor on, posts a batch, and moves the cursor.

Laws
- The cursor moves after an answer of 2xx only; so a batch is sent at least once, and none behind it before it is taken.
- What is being sent is saved before its first request. After a kill the same events are read again and sent under the same id,
  with a higher attempt.
- An operator who sets the cursor meanwhile wins.

Keeps law: webhooks-miss-nothing (docs/laws.md).
"""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from appliance.common.posting import Answer, post
from appliance.common.templatetags.waypost import visible
from appliance.webhooks.batch import Request, headers_of, request_of
from appliance.webhooks.models import TEXT_MAX, Failure, Webhook
from mailcore.control.client import ControlError, Refused
from mailcore.control.protocol.events import NOW, OLDEST, Event, EventBatch
from mailcore.faults import Code

__all__ = ["BACKOFF_S", "FAILURES_KEPT", "Core", "Sender", "send"]

BACKOFF_S = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600)  # after the first, second … attempt; then the last
EVENTS_MAX = 200  # of a request: about 120 kB
WAIT_S = 1.0  # for new events; then the webhook is looked at again
CORE_AWAY_S = 1.0
FAILURES_KEPT = 100
SAVE_S = 30.0  # between two saves of a cursor behind which nothing was wanted
TOTAL_SHARE = 3  # of the time for a read: for the whole request
_log = logging.getLogger("waypost.webhooks")
Post = Callable[[str, bytes, Mapping[str, str]], Answer]


class Core(Protocol):
    """Answers questions about events."""

    def events(self, arguments: dict[str, Any]) -> EventBatch:
        """Returns the answer to ``events``. Raises ControlError."""


def send(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Posts within the time that the settings allow. Raises OSError, http.client.HTTPException, ValueError."""
    read_s = settings.PORTAL.webhook_timeout_s
    return post(url, body, headers, read_s=read_s, total_s=TOTAL_SHARE * read_s)


class _Read(NamedTuple):
    """A batch that was read: for which cursor of the webhook, and after how many moves of it."""

    cursor: str
    moves: int
    events: list[Event]
    start: str
    end: str


class Sender:
    """Sends to one webhook; not for several threads. ``number`` is its key."""

    def __init__(
        self,
        number: int,
        core: Core,
        post: Post = send,
        wall: Callable[[], datetime] = timezone.now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = number
        self._core = core
        self._post = post
        self._wall = wall
        self._monotonic = monotonic
        self._read: _Read | None = None
        self._saved_at = float("-inf")

    def step(self) -> float | None:
        """Does one thing: sends a batch, or looks for one; returns the seconds to wait before the next. None: there is
        nothing to do until an operator changes something. Raises DatabaseError."""
        hook = Webhook.objects.filter(pk=self._number).first()
        if hook is None or not hook.enabled or hook.lost:
            return None
        wait_s = (hook.next_try_at - self._wall()).total_seconds()
        if 0 < wait_s <= BACKOFF_S[-1]:  # a time further ahead is of a clock that was set back
            return min(wait_s, WAIT_S)
        try:
            found = self._next(hook)
        except Refused as error:
            return self._refused(hook, error)
        except ControlError as error:
            _log.info("webhook %s: %s", hook.name, error)
            return CORE_AWAY_S
        return 0.0 if found is None else self._send(hook, found)

    # -- reading

    def _next(self, hook: Webhook) -> _Read | None:
        """Returns the next events; None if there are none yet. Raises ControlError."""
        if self._read is not None and (self._read.cursor, self._read.moves) == (hook.cursor, hook.moves):
            return self._read
        self._read = None
        if hook.sending:
            events, start, end = self._again(hook)
        else:
            batch = self._ask(hook, hook.cursor, EVENTS_MAX, WAIT_S)
            self._note_lost(hook, batch)
            if not batch.events:
                self._passed(hook, batch)
                return None
            events, start, end = batch.events, batch.start, batch.cursor
        self._read = _Read(hook.cursor, hook.moves, events, start, end)
        return self._read

    def _again(self, hook: Webhook) -> tuple[list[Event], str, str]:
        """Returns the events that were being sent when the process before this one ended. Raises ControlError."""
        events: list[Event] = []
        after = hook.sending_from
        while len(events) < hook.sending_count:
            batch = self._ask(hook, after, hook.sending_count - len(events), 0.0)
            self._note_lost(hook, batch)
            events += batch.events
            after = batch.cursor
            if not batch.events and not batch.more:
                break  # the conditions were changed, or events are lost: it is another batch
        if not events:
            raise Refused("there is nothing to send again", code=Code.CONFLICT)
        return events, hook.sending_from, after

    def _ask(self, hook: Webhook, after: str, limit: int, wait_s: float) -> EventBatch:
        arguments = hook.conditions() | {"after": after, "limit": limit, "wait_s": wait_s, "past_lost": hook.past_lost}
        return self._core.events(arguments)

    def _passed(self, hook: Webhook, batch: EventBatch) -> None:
        """Saves the cursor behind events that are not wanted, now and then: a kill reads them again."""
        now = self._monotonic()
        first = hook.cursor in (NOW, OLDEST) and hook.cursor != batch.cursor  # "now" must not be a later now
        if first or batch.lost or (hook.cursor != batch.cursor and now - self._saved_at >= SAVE_S):
            self._saved_at = now
            self._update(hook, cursor=batch.cursor, past_lost=False)

    def _note_lost(self, hook: Webhook, batch: EventBatch) -> None:
        for words in batch.lost:
            self._failed_row(hook, Answer(0, f"left out: {words}"), 0.0)

    def _refused(self, hook: Webhook, error: Refused) -> float | None:
        """Stands still until an operator decides, if events are gone; reads another batch, if this one cannot be read again."""
        if error.code is Code.CONFLICT and hook.sending:
            self._update(hook, sending="", sending_from="", sending_count=0, attempt=0)
            return 0.0
        if error.argument != "after":
            _log.warning("webhook %s: %s", hook.name, error)
            return CORE_AWAY_S
        words = visible(str(error))[:TEXT_MAX]
        self._failed_row(hook, Answer(0, words), 0.0)
        self._update(hook, lost=words, words=words, failing_since=hook.failing_since or self._wall())
        _log.warning("webhook %s stands still: %s", hook.name, words)
        return None

    # -- sending

    def _send(self, hook: Webhook, read: _Read) -> float:
        request = request_of(hook.pk, read.events)
        attempt = hook.attempt + 1 if request.delivery == hook.sending else 1
        first = datetime.fromtimestamp(min(event.at for event in read.events), UTC)
        if not self._update(
            hook, sending=request.delivery, sending_from=read.start, sending_count=len(read.events), attempt=attempt,
            next_event_at=first,
        ):  # fmt: skip
            return 0.0
        began = self._monotonic()
        answer = self._posted(hook, request, attempt)
        took_s = self._monotonic() - began
        if not answer.good:
            return self._failed(hook, request, attempt, answer, took_s)
        self._read = None
        self._update(
            hook, cursor=read.end, past_lost=False, sending="", sending_from="", sending_count=0, attempt=0, next_event_at=None,
            failing_since=None, words=answer.words[:TEXT_MAX], sent_at=self._wall(),
            sent_events=F("sent_events") + len(read.events), sent_requests=F("sent_requests") + 1,
        )  # fmt: skip
        return 0.0

    def _posted(self, hook: Webhook, request: Request, attempt: int) -> Answer:
        headers = headers_of(request, hook.name, hook.secret, attempt, self._wall().timestamp())
        try:
            return self._post(hook.url, request.body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Answer(0, visible(str(error) or type(error).__name__))

    def _failed(self, hook: Webhook, request: Request, attempt: int, answer: Answer, took_s: float) -> float:
        longest = settings.PORTAL.webhook_retry_s_max
        wait_s = min(BACKOFF_S[min(attempt, len(BACKOFF_S)) - 1], longest)
        _log.warning("webhook %s: %s; trying again in %d s", hook.name, answer.words, wait_s)
        self._failed_row(hook, answer, took_s, request.delivery, attempt)
        now = self._wall()
        self._update(
            hook, failed_requests=F("failed_requests") + 1, failing_since=hook.failing_since or now,
            words=answer.words[:TEXT_MAX], next_try_at=now + timedelta(seconds=wait_s),
        )  # fmt: skip
        return min(wait_s, WAIT_S)

    def _failed_row(self, hook: Webhook, answer: Answer, took_s: float, delivery: str = "", attempt: int = 0) -> None:
        made = Failure.objects.create(
            webhook=hook, at=self._wall(), delivery=delivery, attempt=attempt, status=answer.status, duration_s=took_s,
            words=answer.words[:TEXT_MAX],
        )  # fmt: skip
        old = hook.failures.order_by("-pk").values_list("pk", flat=True)[FAILURES_KEPT : FAILURES_KEPT + 1].first()
        if old is not None:
            hook.failures.filter(pk__lte=old, pk__lt=made.pk).delete()

    def _update(self, hook: Webhook, **values: Any) -> bool:
        """Saves values, unless an operator or another process has set the cursor meanwhile, or the webhook is removed."""
        return bool(Webhook.objects.filter(pk=hook.pk, moves=hook.moves, cursor=hook.cursor).update(**values))
