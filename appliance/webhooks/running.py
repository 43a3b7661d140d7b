"""Runs the senders of all webhooks, each in a thread of its own, and the tests that operators ask for.

Law: a receiver that does not answer delays no other receiver, and no test.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from django.db import DatabaseError, connections
from django.utils import timezone

from appliance.common.door import door_of
from appliance.common.templatetags.waypost import visible
from appliance.webhooks.batch import headers_of, test_request
from appliance.webhooks.models import TEXT_MAX, Webhook
from appliance.webhooks.sender import Sender, send
from mailcore.control.protocol.events import EventBatch

__all__ = ["Runner"]

LOOK_S = 0.5  # at which webhooks there are, and which tests
WHO = "webhooks"
ANSWER_S = 30.0  # of the core; it waits a second for events
FAULT_S = 5.0  # after a fault of ours, or of the database
_log = logging.getLogger("waypost.webhooks")


class Runner:
    """Runs a thread for each webhook that is to be sent to."""

    def __init__(self) -> None:
        self._threads: dict[int, threading.Thread] = {}

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
        self._threads = {number: thread for number, thread in self._threads.items() if thread.is_alive()}
        for number in Webhook.objects.filter(enabled=True, lost="").values_list("pk", flat=True):
            if number not in self._threads:
                thread = threading.Thread(target=_send_all, args=(number,), daemon=True, name=f"webhook {number}")
                self._threads[number] = thread
                thread.start()
        for number in Webhook.objects.filter(test_asked_at__isnull=False).values_list("pk", flat=True):
            if Webhook.objects.filter(pk=number, test_asked_at__isnull=False).update(test_asked_at=None):
                threading.Thread(target=_test, args=(number,), daemon=True, name=f"test {number}").start()


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
