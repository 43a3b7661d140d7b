"""The metrics of the core, made from answers of the control socket. Pure: values in, families out.

Laws
- A counter never goes down. Those of mail are the totals that the queue keeps over restarts; they begin again only with a new
  or restored queue, and ``waypost_counted_since_seconds`` says when.
- A value that could not be asked for is left out. It is never 0: an alarm would end while its reason is still there.
- Labels are bounded: destinations by [metrics] destinations_max, all others by the settings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Disks, Processes
from mailcore.control.unanswered import unanswered
from mailcore.manager_answers import Destinations, Size, State
from mailcore.metrics.exposition import Family
from mailcore.traces.progress import Progress

__all__ = ["OTHER", "Answers", "families"]

OTHER = "other"  # all destinations without a label of their own
CUT_THROUGH_STORED = ("route", "room", "turn", "slow", "late")  # as the counters of the manager are named
OUTCOMES = ("delivered", "deferred", "bounced", "expired", "deleted", "undeleted")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The answers of the control socket; None: there was none."""

    processes: Processes | None = None
    state: State | None = None
    size: Size | None = None
    destinations: Destinations | None = None
    disks: Disks | None = None
    ages: AgesPart | None = None
    export_lag_bytes: int | None = None
    export_lag_bytes_max: int | None = None
    certificates: Mapping[str, float] | None = None  # file -> end of its validity, wall clock
    traces: Progress | None = None  # how far the traces are, and what became of the spans
    traces_lag_bytes: int | None = None


def families(answers: Answers, now: float, destinations_max: int) -> list[Family]:
    """Returns all families that there are values for, and the others without samples."""
    answers = _whole(answers)
    return [
        *_processes(answers),
        *_mail(answers.state),
        *_measured(answers.state),
        *_cut_through(answers.state),
        *_queue(answers, now),
        *_deliveries(answers, destinations_max),
        *_export(answers),
        *_traces(answers),
        *_disks(answers.disks),
        *_certificates(answers.certificates),
    ]


def _whole(answers: Answers) -> Answers:
    """Returns the answers without those that lack a shard: a counter of a part would rise by the rest when it is back."""
    state, size, destinations = answers.state, answers.size, answers.destinations
    if state is None:
        return answers
    if state.unanswered:
        return dataclasses.replace(
            answers, state=None, size=None, destinations=None, ages=None, export_lag_bytes=None, traces_lag_bytes=None
        )
    return dataclasses.replace(
        answers,
        size=None if unanswered(state, size) else size,
        destinations=None if destinations is not None and destinations.unanswered else destinations,
        ages=None if state.shards and answers.ages is not None and answers.ages.manager_away else answers.ages,
    )


def _processes(answers: Answers) -> Iterable[Family]:
    up = Family(
        "waypost_up", "1 if the manager answers the control process, else 0: mail is accepted but not delivered."
    )
    up.add(answers.state is not None)
    running = Family("waypost_process_up", "1 if the process runs, else 0.")
    restarts = Family(
        "waypost_process_restarts_total", "Restarts of a process since the supervisor started.", "counter"
    )
    started = Family("waypost_process_start_time_seconds", "When the process started, in seconds since 1970.")
    for name, child in (answers.processes.children if answers.processes is not None else {}).items():
        running.add(child.pid is not None, process=name)
        restarts.add(child.restarts, process=name)
        started.add(child.started_at or None, process=name)
    return up, running, restarts, started


def _mail(state: State | None) -> Iterable[Family]:
    since = Family(
        "waypost_counted_since_seconds", "Since when mail is counted: a later time means that counters began again."
    )
    accepted = Family(
        "waypost_accepted_messages_total", "Messages accepted: over SMTP, local ones, and bounces.", "counter"
    )
    recipients = Family("waypost_accepted_recipients_total", "Recipients of accepted messages.", "counter")
    finished = Family(
        "waypost_finished_messages_total", "Messages whose recipients all have their final outcome.", "counter"
    )
    outcomes = Family(
        "waypost_recipients_total",
        "Recipients by outcome; a deferred one counts at each attempt that deferred it.",
        "counter",
    )
    lost = Family("waypost_lost_recipients", "Recipients whose records on disk are damaged; look at waypost doctor.")
    balance = Family(
        "waypost_balance_difference", "Mail that came in, less mail that left and mail still queued; 0 is right."
    )
    stalled = Family(
        "waypost_stalled", "1 if the manager takes in no mail, for instance because the disk is full, else 0."
    )
    if state is not None:
        totals = state.totals
        since.add(state.counted_since)
        accepted.add(totals.get("accepted"))
        recipients.add(totals.get("recipients_accepted"))
        finished.add(totals.get("messages_finished"))
        for outcome in OUTCOMES:
            outcomes.add(totals.get(f"recipients_{outcome}"), outcome=outcome)
        lost.add(totals.get("recipients_lost"))
        for scope, terms in (("messages", state.balance.messages), ("recipients", state.balance.recipients)):
            balance.add(terms.get("difference"), of=scope)
        stalled.add(bool(state.stalled))
    return since, accepted, recipients, finished, outcomes, lost, balance, stalled


def _measured(state: State | None) -> Iterable[Family]:
    refusals = Family(
        "waypost_refusals_total",
        "Replies that refused mail, by class (4xx, 5xx) and enhanced status code, since the manager started.",
        "counter",
    )
    syncs = Family(
        "waypost_sync_seconds", "Time of a sync to disk, by process, since the manager started.", "histogram"
    )
    delays = Family(
        "waypost_delivery_delay_seconds",
        "Time from the arrival of a message to its delivery, by transport, since the manager started.",
        "histogram",
    )
    if state is not None and (measured := state.measured) is not None:
        for reply, count in measured.refusals.items():
            of_class, _, reason = reply.partition(" ")
            refusals.add(count, **{"class": of_class, "reason": reason})
        for process, each in measured.syncs.items():
            syncs.add_histogram(each.bounds, each.counts, each.total, process=process)
        for transport, each in measured.delays.items():
            delays.add_histogram(each.bounds, each.counts, each.total, transport=transport)
    return refusals, syncs, delays


def _cut_through(state: State | None) -> Iterable[Family]:
    messages = Family(
        "waypost_cut_through_messages_total",
        "Messages offered for cut-through since the manager started: passed_on, stored, or uncertain (the client got 421).",
        "counter",
    )
    stored = Family(
        "waypost_cut_through_stored_total",
        "Messages offered for cut-through and stored, by reason, since the manager started.",
        "counter",
    )
    if state is not None and "passed_on" in (counters := state.counters):  # a transport has cut-through
        failed = counters.get("cut_through_failed", 0)
        messages.add(counters["passed_on"], outcome="passed_on")
        messages.add(counters.get("cut_through_refused", 0) + failed, outcome="stored")
        messages.add(counters.get("cut_through_uncertain", 0), outcome="uncertain")
        for reason in CUT_THROUGH_STORED:
            stored.add(counters.get(f"cut_through_{reason}", 0), reason=reason)
        stored.add(failed - counters.get("cut_through_late", 0), reason="refused")
    return messages, stored


def _queue(answers: Answers, now: float) -> Iterable[Family]:
    messages = Family("waypost_queue_messages", "Messages in the queue; deleted ones do not count.")
    recipients = Family("waypost_queue_recipients", "Recipients in the queue; deleted ones do not count.")
    in_lane = Family("waypost_lane_messages", "Messages of a lane, with those of it that are being worked on.")
    unread = Family(
        "waypost_lane_unread_bytes", "Bytes of a lane that the manager has not read; new mail gets 452 at a limit."
    )
    by_state = Family("waypost_queue_messages_by_state", "Messages by state, counted at most a minute ago.")
    oldest = Family(
        "waypost_oldest_message_age_seconds", "Age of the oldest message, as of a look at most a minute ago."
    )
    active = Family("waypost_active_messages", "Messages in the active set.")
    limit = Family("waypost_active_messages_limit", "Messages that the active set may hold (message_active_limit).")
    written = Family("waypost_restart_positions_age_seconds", "Age of the restart positions on disk, while mail moves.")
    journal = Family("waypost_journal_suffix_bytes", "Bytes of the journal that a restart would read.")
    if answers.size is not None:
        messages.add(answers.size.messages)
        recipients.add(answers.size.recipients)
        for lane, amount in answers.size.lanes.items():
            in_lane.add(amount.messages, lane=lane)
    if answers.ages is not None:
        for name, count in answers.ages.by_state.items():
            by_state.add(count, state=name)
        oldest.add(max(now - answers.ages.oldest.arrived_at, 0.0) if answers.ages.oldest is not None else 0.0)
    if (state := answers.state) is not None:
        active.add(state.active_messages)
        most = state.scheduler.parameters.get("message_active_limit")
        limit.add(float(most) if isinstance(most, int | float) else None)
        written.add(max(now - state.positions.written_at, 0.0) if state.positions.written_at else None)
        journal.add(state.journal.end - state.journal.suffix)
        for lane, at in state.lanes.items():
            unread.add(max(at.end - at.runner, 0) if at.interval_s == 0 else None, lane=lane)
    return messages, recipients, in_lane, unread, by_state, oldest, active, limit, written, journal


def _deliveries(answers: Answers, destinations_max: int) -> Iterable[Family]:
    flying = Family("waypost_deliveries_in_progress", "Deliveries in progress, by deliverer.")
    capacity = Family("waypost_deliveries_limit", "Deliveries that a deliverer makes at once.")
    entries = Family(
        "waypost_transport_entries_total", "Deliveries that a transport began since the manager started.", "counter"
    )
    outcomes = Family(
        "waypost_transport_recipients_total",
        "Recipients by transport and outcome since the manager started; a deferred one counts at each attempt.",
        "counter",
    )
    busy = Family("waypost_transport_deliveries", "Deliveries in progress, by transport.")
    dead = Family("waypost_transport_dead", "1 while the transport cannot deliver at all, else 0.")
    queued = Family("waypost_destination_recipients", "Recipients queued for a destination; those with the most mail.")
    window = Family("waypost_destination_window", "Deliveries to the destination that are allowed at once, now.")
    windowed = Family("waypost_destination_deliveries", "Deliveries to the destination that are in progress.")
    gone = Family("waypost_destination_dead", "1 while the destination is not tried because it failed, else 0.")
    suspended = Family("waypost_suspended_scopes", "Destinations and transports that an operator suspended.")
    if (state := answers.state) is not None:
        for link in state.deliverers:
            flying.add(link.in_flight, deliverer=str(link.number))
            capacity.add(link.capacity, deliverer=str(link.number))
        for name, transport in state.scheduler.transports.items():
            entries.add(transport.entries, transport=name)
            busy.add(transport.busy, transport=name)
            dead.add(transport.dead_until is not None, transport=name)
        for name, counts in state.outcomes.items():
            for outcome, count in counts.items():
                outcomes.add(count, transport=name, outcome=outcome)
    if answers.size is not None:
        counted = sorted(answers.size.destinations.items(), key=lambda each: (-each[1], each[0]))
        named = [each for each in counted if each[0]][:destinations_max]
        for name, count in named:
            queued.add(count, destination=name)
        queued.add(sum(count for _, count in counted) - sum(count for _, count in named), destination=OTHER)
    if answers.destinations is not None:
        suspended.add(len(answers.destinations.suspended))
        most = sorted(answers.destinations.destinations.items(), key=lambda each: (-each[1].queued, each[0]))
        for name, each in most[:destinations_max]:
            window.add(each.window, destination=name)
            windowed.add(each.busy, destination=name)
            gone.add(each.dead_until is not None, destination=name)
    return flying, capacity, entries, outcomes, busy, dead, queued, window, windowed, gone, suspended


def _export(answers: Answers) -> Iterable[Family]:
    lag = Family("waypost_export_lag_bytes", "Bytes of the log that are not exported as events for reports.")
    limit = Family("waypost_export_lag_limit_bytes", "Above this, reports lose events, so that the disk does not fill.")
    lag.add(answers.export_lag_bytes)
    limit.add(answers.export_lag_bytes_max)
    return lag, limit


def _traces(answers: Answers) -> Iterable[Family]:
    lag = Family("waypost_traces_lag_bytes", "Bytes of the log whose traces are not sent yet.")
    spans = Family(
        "waypost_traces_spans_total", "Spans that the collector of traces took (sent) or refused (rejected).", "counter"
    )
    lost = Family(
        "waypost_traces_lost_bytes_total", "Bytes of the log that were deleted before traces were made.", "counter"
    )
    lag.add(answers.traces_lag_bytes)
    if (progress := answers.traces) is not None:
        spans.add(progress.sent, result="sent")
        spans.add(progress.rejected, result="rejected")
        lost.add(progress.lost_bytes)
    return lag, spans, lost


def _disks(disks: Disks | None) -> Iterable[Family]:
    free = Family("waypost_disk_free_bytes", "Free bytes on the disk of a directory.")
    reserve = Family("waypost_disk_reserve_bytes", "New mail gets 452 while less than this is free.")
    inodes = Family("waypost_disk_free_inodes", "Free inodes on the disk of a directory, where they are limited.")
    ballast = Family("waypost_ballast_bytes", "Bytes set aside for delivery on a full disk, now.")
    whole = Family("waypost_ballast_limit_bytes", "The same while no delivery uses it.")
    for disk in disks.disks if disks is not None else ():
        free.add(disk.free_bytes, directory=disk.what)
        reserve.add(disk.reserve_bytes, directory=disk.what)
        inodes.add(disk.free_inodes, directory=disk.what)
        if disk.ballast_bytes_whole:
            ballast.add(disk.ballast_bytes, directory=disk.what)
            whole.add(disk.ballast_bytes_whole, directory=disk.what)
    return free, reserve, inodes, ballast, whole


def _certificates(certificates: Mapping[str, float] | None) -> Iterable[Family]:
    expiry = Family("waypost_certificate_expiry_seconds", "When the certificate expires, in seconds since 1970.")
    for file, until in (certificates or {}).items():
        expiry.add(until, file=file)
    return (expiry,)
