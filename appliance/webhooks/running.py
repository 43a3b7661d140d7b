"""Runs the senders of all webhooks, each in a thread of its own, and the tests that operators ask for.

Laws
- A receiver that does not answer delays no other receiver, and no test.
- The events of a shard are sent by the node that owns it, from the place in its own log; of nodes that share a database each
  makes its row of a webhook that another node made.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from django.db import DatabaseError, connections
from django.utils import timezone

from appliance.common.door import door_of
from appliance.common.node import own_shard
from appliance.common.templatetags.waypost import visible
from appliance.webhooks.batch import headers_of, test_request
from appliance.webhooks.models import TEXT_MAX, LogEnd, Webhook
from appliance.webhooks.sender import Sender, send
from mailcore.control.client import ControlError
from mailcore.control.protocol.events import NOW, EventBatch

__all__ = ["Runner"]

END_S = 30.0  # between two notes of the end of the log
END_ANSWER_S = 5.0
LOOK_S = 0.5  # at which webhooks there are, and which tests
WHO = "webhooks"
ANSWER_S = 30.0  # of the core; it waits a second for events
FAULT_S = 5.0  # after a fault of ours, or of the database
_log = logging.getLogger("waypost.webhooks")


class Runner:
    """Runs a thread for each webhook that is to be sent to."""

    def __init__(self) -> None:
        self._threads: dict[int, threading.Thread] = {}
        self._ended_at = float("-inf")  # when the end of the log was noted, monotonic

    def run(self) -> None:
        """Looks for webhooks until the process ends."""
        while True:
            try:
                self.look()
            except DatabaseError as error:
                _log.warning("webhooks: the database cannot be used: %s", error)
                connections.close_all()
            except Exception:  # a fault here must not end all webhooks
                _log.exception("webhooks: a look failed")
            time.sleep(LOOK_S)

    def look(self) -> None:
        """Starts the threads that are missing. Raises DatabaseError."""
        if own_shard():
            self._note_end()
            _join()
        self._threads = {number: thread for number, thread in self._threads.items() if thread.is_alive()}
        for number in Webhook.objects.filter(enabled=True, lost="").values_list("pk", flat=True):
            if number not in self._threads:
                thread = threading.Thread(target=_send_all, args=(number,), daemon=True, name=f"webhook {number}")
                self._threads[number] = thread
                thread.start()
        for number in Webhook.objects.filter(test_asked_at__isnull=False).values_list("pk", flat=True):
            if Webhook.objects.filter(pk=number, test_asked_at__isnull=False).update(test_asked_at=None):
                threading.Thread(target=_test, args=(number,), daemon=True, name=f"test {number}").start()

    def _note_end(self) -> None:
        """Notes the end of the log now and then, for webhooks that are made at other nodes. Raises DatabaseError."""
        if time.monotonic() - self._ended_at < END_S:
            return
        self._ended_at = time.monotonic()
        try:
            (batch,) = door_of(WHO).ask_parts("events", EventBatch, {"after": NOW, "limit": 1}, timeout_s=END_ANSWER_S)
        except ControlError as error:
            _log.info("the end of the log: %s", error)
            return
        LogEnd.objects.update_or_create(shard=own_shard(), defaults={"cursor": batch.cursor, "at": timezone.now()})


def _join() -> None:
    """Makes the rows of this shard for webhooks that have none: they were made while nothing was known of it, and begin with
    what happens from now on. Raises DatabaseError."""
    known = set(Webhook.objects.values_list("name", flat=True))
    others = {hook.name: hook for hook in Webhook.everywhere.exclude(name__in=known).order_by("-pk")}
    Webhook.everywhere.bulk_create(
        [hook.for_shard(own_shard(), NOW) for hook in others.values()], ignore_conflicts=True
    )


class _Core:
    """Asks the core. A connection for each question costs 0.1 ms, and a webhook that waits for its receiver holds none."""

    def events(self, arguments: dict[str, Any]) -> EventBatch:
        """Returns the answer to ``events``. Raises ControlError."""
        (batch,) = door_of(WHO).ask_parts("events", EventBatch, arguments, timeout_s=ANSWER_S)
        return batch


def _send_all(number: int) -> None:
    """Sends to one webhook until it is paused, removed, or stands still."""
    sender = Sender(number, _Core())
    while True:
        try:
            wait_s = sender.step()
        except Exception as error:  # the database, or a fault of ours
            _log.warning("webhook %d: %s: %s", number, type(error).__name__, error)
            wait_s = FAULT_S
        if wait_s != 0.0:
            connections.close_all()  # this thread's, which may rest for long
        if wait_s is None:
            return
        time.sleep(wait_s)


def _test(number: int) -> None:
    """Posts a test, and notes the answer."""
    try:
        hook = Webhook.objects.get(pk=number)
        now = timezone.now()
        request = test_request(number, now.timestamp())
        try:
            answer = send(hook.url, request.body, headers_of(request, hook.name, hook.secret, 1, now.timestamp()))
            words, good = answer.words, answer.good
        except Exception as error:
            words, good = visible(str(error) or type(error).__name__), False
        Webhook.objects.filter(pk=number).update(test_at=timezone.now(), test_words=words[:TEXT_MAX], test_good=good)
    except (DatabaseError, Webhook.DoesNotExist) as error:
        _log.warning("webhook %d: its test failed: %s", number, error)
    finally:
        connections.close_all()
