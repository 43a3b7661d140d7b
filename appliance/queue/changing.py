"""Makes changes: to selected messages at once; to all matching messages in a thread that continues when the browser is closed.

Laws: every change has a reason, an entry in the audit log, and a row in ``Change``. Matching messages are counted first, and
newer messages are left unchanged (the core's ``cut``). The reason in the journal contains the change's tag; an undo restores
exactly the recipients with this tag, also of messages whose other recipients were deleted by another change. The result of a
change is recorded even if the core fails. If the portal ends during a change, the core stops between two steps, and the row
shows as abandoned.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.http import HttpRequest
from django.utils import timezone

from appliance.audit.record import audited, record
from appliance.common.current_settings import current_settings
from appliance.common.door import as_outcome, door_of
from appliance.common.node import named, own_node
from appliance.common.templatetags.waypost import span
from appliance.queue.models import Change, Phase
from appliance.queue.owner_process import own
from mailcore.control.client import ControlError, NotRunning, Refused
from mailcore.control.protocol.changes import ChangeResult, MatchingProgress
from mailcore.faults import Code, Fault

__all__ = [
    "OF_RECIPIENTS",
    "OPERATIONS",
    "CountedElsewhere",
    "TooMany",
    "change_chosen",
    "count",
    "doc_of",
    "go",
    "in_background",
    "past_of",
    "reasons_of",
    "start_counted",
    "undo",
]

# operation -> what it does, for its dialog
OPERATIONS = {
    "delete": "The recipients are removed from the queue. This can be undone for {undo}.",
    "undelete": "The recipients return to the queue: who was held is held again, all others are due at once.",
    "hold": "The recipients are not delivered to until an operator releases them.",
    "release": "The hold ends; the recipients are due at once, or when their delay ends.",
    "retry": "The recipients are due at once, without waiting for their next attempt.",
    "reroute": "The recipients go to another next hop. A held recipient stays held; a deferred one is due at once.",
    "bounce": "The recipients are returned to the senders now. This cannot be undone.",
}
OF_RECIPIENTS = frozenset({"recipient", "destination", "reason"})  # conditions of a filter that select recipients
_PAST = {
    "delete": "deleted", "undelete": "undeleted", "hold": "held", "release": "released", "retry": "due at once",
    "reroute": "rerouted", "bounce": "bounced",
}  # fmt: skip
AT_ONCE_MAX = 4  # counts and changes of matching messages, under way in one portal process
_RESULT = (
    "changed",
    "changed_recipients",
    "in_flight",
    "too_late",
    "undecided",
    "failed",
    "failures",
    "errors",
    "dead",
)
_PROGRESS = ("matched", "matched_recipients", *_RESULT, "heard_at")
# Code of an error -> what the message is, after "3 messages"
_NOT_CHANGED = {
    Code.CONFLICT: "in a state that does not allow the change",
    Code.NOT_FOUND: "no longer in the queue",
    Code.UNAVAILABLE: "not reached because the manager was away: unchanged",
    Code.OUTCOME_UNKNOWN: "with an unknown outcome: the manager ended while it was asked",
    Code.BUSY: "being moved: unchanged",
    Code.INTERNAL: "with records that cannot be read: unchanged",
}
WAIT_S = 2.0  # for deliveries in progress to end, so that the result says how they ended
SAVED_S = 0.5  # between two accesses to the row: write the progress, read whether an operator wants to stop

_slots = threading.BoundedSemaphore(AT_ONCE_MAX)


class TooMany(ValueError):
    """Says that too many changes are under way; its message is for the user."""


class CountedElsewhere(ValueError):
    """Says that another node has counted the messages: what it counted up to is a place in its lists. Its message is for the
    user."""


def past_of(operation: str) -> str:
    """Returns the past participle of an operation: delete, deleted."""
    return _PAST.get(operation, operation)


def doc_of(operation: str) -> str:
    """Returns what an operation does, as a sentence."""
    return OPERATIONS.get(operation, "").format(undo=span(current_settings().queue.undo_time_s))


def reasons_of(change: Change) -> list[tuple[int, str]]:
    """Returns how many messages were not changed, with the reason as words after "3 messages"; the most first."""
    failures = sorted(change.failures.items(), key=lambda pair: -pair[1])
    return [(count, _NOT_CHANGED.get(code, "not changed")) for code, count in failures]


def change_chosen(request: HttpRequest, change: Change) -> None:
    """Changes the messages in ``change.messages``: one request, answered after it is synced. Raises ControlError."""
    messages: list[list[Any]] = change.messages or []
    queue_ids = [each[0] for each in messages]
    change.phase, change.worker = Phase.RUNNING, own()
    change.matched = len(messages)
    change.save()
    arguments: dict[str, Any] = {
        "queue_ids": [each[0] for each in messages if len(each) == 1],
        "messages": [each for each in messages if len(each) == 3],
        "wait_s": WAIT_S,
    }
    if change.route:
        arguments["route"] = change.route
    subject = ", ".join(queue_ids)
    with _ending(change), audited(request, f"queue.{change.operation}", subject, why=change.why) as entry:
        entry.before = {"change": change.tag, "queue_ids": queue_ids}
        result = door_of(change.who).ask_change(change.operation, ChangeResult, arguments, why=change.told_why)
        change.changed, change.failed, change.errors = result.changed, len(result.errors), _texts(result.errors)
        change.failures = Counter(error.code for error in result.errors.values())
        change.changed_recipients, change.dead = result.recipients, result.dead
        _note_deliveries(change, result)
        entry.after = _after(change)
        if change.route:
            entry.after["route"] = change.route
        entry.words = _sum(change)


def in_background(target: Callable[[HttpRequest, Change], None], request: HttpRequest, change: Change) -> None:
    """Runs ``count`` or ``go`` in a thread, on a copy of the row. Raises TooMany.

    The caller shows the row: in one that changed meanwhile, a page found the phase of the form and no form.
    """
    if not _slots.acquire(blocking=False):
        raise TooMany(f"{AT_ONCE_MAX} changes are under way already; wait for one of them, or stop it.")

    def run(change: Change) -> None:
        try:
            with contextlib.suppress(ControlError):  # the row has its message
                target(request, change)
        finally:
            _slots.release()
            connections.close_all()

    try:
        request.user.is_authenticated  # noqa: B018  # fetched here: the thread has a database connection of its own
        change.phase = Phase.COUNTING if target is count else Phase.RUNNING
        change.heard_at, change.worker = timezone.now(), own()
        change.save()
        threading.Thread(target=run, args=(copy(change),), name=f"change {change.tag}", daemon=True).start()
    except BaseException:  # such as a full disk: nothing was begun
        _slots.release()
        raise


def count(request: HttpRequest, change: Change) -> None:
    """Counts the matching messages, and records the cut: a change leaves newer messages unchanged. Raises ControlError."""
    with _ending(change):
        stopped = _follow(change, {"dry_run": True})
        change.phase = Phase.STOPPED if stopped else Phase.COUNTED
        if not stopped and not change.cut:
            raise Refused("the core's answer to the count has no cut; nothing was changed, count again")


def go(request: HttpRequest, change: Change) -> None:
    """Changes the counted messages or, without a count, all matching messages. Raises ControlError."""
    action = f"queue.{change.operation}"
    before = {"change": change.tag, "filter": change.filter, "matched": change.matched, "cut": change.cut}
    if change.scheduled:
        before["scheduled"] = True
    # If the portal ends during the change, the audit log has this entry only.
    record(request, f"{action}.begun", change.words, before=before, why=change.why)
    with _ending(change), audited(request, action, change.words, before=before, why=change.why) as entry:
        try:
            if _follow(change, {"cut": change.cut} if change.cut else {}, why=change.told_why):
                change.phase = Phase.STOPPED
        finally:
            entry.after = _after(change)
            if change.route:
                entry.after["route"] = change.route
        entry.words = _sum(change)


def start_counted(request: HttpRequest, change: Change, why: str) -> bool:
    """Starts a counted change in the background, once; returns False if another request has started it.

    Raises TooMany, and then it is still counted; CountedElsewhere.
    """
    if change.node != own_node():
        raise CountedElsewhere(
            f"Node {named(change.node) or 'without a name'} counted these messages. Count them again here, or start it there."
        )
    if not Change.objects.filter(pk=change.pk, phase=Phase.COUNTED).update(phase=Phase.RUNNING):
        return False
    assert isinstance(request.user, User)
    change.why, change.who = why, request.user.get_username()
    try:
        in_background(go, request, change)
    except TooMany:
        Change.objects.filter(pk=change.pk, phase=Phase.RUNNING).update(phase=Phase.COUNTED)
        raise
    return True


def undo(request: HttpRequest, deletion: Change, why: str) -> Change:
    """Undeletes the recipients that ``deletion`` deleted: those with its tag. Raises TooMany."""
    change = Change(
        who=deletion.who if not request.user.is_authenticated else request.user.get_username(),
        operation="undelete",
        filter={"reason": deletion.mark},
        words=f"recipients deleted by change {deletion.tag}",
        why=why,
        matched=deletion.changed,
        matched_recipients=deletion.changed_recipients,
        undoes=deletion,
    )
    in_background(go, request, change)
    return change


def _follow(change: Change, extra: dict[str, Any], why: str = "") -> bool:
    """Follows the progress of change_matching to its end; returns whether an operator stopped it."""
    arguments = {"change": change.operation, "filter": change.filter, "wait_s": WAIT_S, **extra}
    if change.route:
        arguments["route"] = change.route
    if change.scheduled:
        arguments["scheduled"] = True
    counting = extra.get("dry_run", False)
    timeout_s = settings.PORTAL.change_timeout_s
    parts = door_of(change.who).ask_parts("change_matching", MatchingProgress, arguments, why=why, timeout_s=timeout_s)
    saved = 0.0
    with contextlib.closing(parts), _as_not_known():  # closing it ends the operation
        for progress in parts:
            if counting or not change.matched:
                change.matched, change.matched_recipients = progress.matched, progress.matched_recipients
            change.cut = progress.cut or change.cut
            change.changed, change.failed, change.errors = progress.changed, progress.failed, _texts(progress.errors)
            change.failures, change.changed_recipients = progress.failures, progress.changed_recipients
            change.dead = progress.dead
            _note_deliveries(change, progress)
            if time.monotonic() - saved >= SAVED_S:
                saved = time.monotonic()
                change.heard_at = timezone.now()
                change.save(update_fields=_PROGRESS)
                if not progress.done and Change.objects.filter(pk=change.pk, stop_wanted=True).exists():
                    return True
    return False


@contextlib.contextmanager
def _as_not_known() -> Iterator[None]:
    """Reports a step during which the manager ended as an unknown outcome, not as a refusal; as Door.change does."""
    try:
        yield
    except Refused as error:
        raise as_outcome(error) from error


@contextlib.contextmanager
def _ending(change: Change) -> Iterator[None]:
    """Records how a change ended. A ControlError is raised again."""
    try:
        yield
        if change.phase == Phase.RUNNING:
            change.phase = Phase.DONE
    except (NotRunning, Refused) as error:
        change.phase, change.error = Phase.REFUSED, str(error)[:1000]
        raise
    except BaseException as error:
        counting = change.phase == Phase.COUNTING
        change.phase, change.error = Phase.REFUSED if counting else Phase.UNKNOWN, str(error)[:1000] or repr(error)
        raise
    finally:
        change.stop_wanted = False
        change.heard_at = timezone.now()
        change.ended_at = None if change.phase == Phase.COUNTED else change.heard_at
        change.save()


def _note_deliveries(change: Change, result: ChangeResult | MatchingProgress) -> None:
    change.in_flight, change.too_late, change.undecided = result.in_flight, result.too_late, result.undecided


def _texts(errors: Mapping[str, Fault]) -> dict[str, str]:
    """Returns what the row keeps, for people."""
    return {queue_id: fault.message for queue_id, fault in errors.items()}


def _after(change: Change) -> dict[str, Any]:
    """Returns the result as the audit log keeps it."""
    return {name: getattr(change, name) for name in _RESULT}


def _sum(change: Change) -> str:
    recipients = change.changed_recipients
    of_them = (
        f" ({recipients} recipient{'' if recipients == 1 else 's'})" if recipients not in (0, change.changed) else ""
    )
    words = f"{change.changed}{of_them} {past_of(change.operation)}"
    if change.failed:
        words += f", {change.failed} failed"
    if change.phase == Phase.STOPPED:
        words += "; stopped before the end"
    return words
