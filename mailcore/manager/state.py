"""The manager's answers about its live state, sizes, positions, and why a message waits.

Keeps law: one-state (docs/laws.md).
"""

from __future__ import annotations

import bisect
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from mailcore.config.tuned import Tuned
from mailcore.mail_state import MailState, main_state, states_when_active
from mailcore.manager.active_set import why_full, why_not_read
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import Flow
from mailcore.manager.orders import BadRequest
from mailcore.manager.waiting import why_active, why_recovered, why_requested
from mailcore.manager_answers import (
    ActiveDestination,
    Cut,
    DelivererState,
    Destinations,
    JournalPlaces,
    LaneCut,
    LaneState,
    Places,
    Progress,
    Reasons,
    ShardState,
    Size,
    StateUntil,
    Working,
    WrittenPositions,
)
from mailcore.manager_answers import State as StateResult
from mailcore.queue.active import Active
from mailcore.queue.lanes import HOLD, incoming
from mailcore.scheduler.parameters import SUSPENDED_UNTIL
from mailcore.scheduler.snapshot import DestinationSnapshot

__all__ = ["State"]

NAMES_MAX = 1_000  # destinations in one answer
DESTINATIONS_SHOWN = 5  # of a message, as in a list
WORKING_MAX = 5_000  # queue ids in one question


class State:
    """Answers the read-only operations of the manager; each takes its arguments as a dict."""

    def __init__(self, context: ManagerContext, flow: Flow, tuned: Tuned) -> None:
        self.context = context
        self.flow = flow
        self.tuned = tuned
        self.started_at = context.wall()
        self.receivers: dict[str, int] = {}  # lane -> pid
        self.recovered = 0
        self.shard: Callable[[], ShardState] | None = None  # of a shard that a database keeps

    def state(self, arguments: dict[str, Any]) -> StateResult:
        """Returns the live state."""
        context = self.context
        queue = context.queue
        positions = context.checkpoints.newest
        size = queue.sizes.summary()
        return StateResult(
            pid=os.getpid(),
            started_at=self.started_at,
            counted_since=context.queue.totals.since,
            counted_note=context.queue.totals.note,
            totals=context.balance.counters(over_restarts=True),
            uptime_s=context.wall() - self.started_at,
            stalled=context.stalled,
            tuned_damage=self.tuned.damage,
            restored=self._restored(),
            active_full=why_full(context),
            active_messages=len(queue.active),
            recovered_waiting=len(queue.recovered),
            recovered_at_start=self.recovered,
            counters=context.counters | context.balance.counters(),
            accepted_by_origin=context.balance.by_origin(),
            balance=context.balance.terms(size.messages, size.recipients),
            receivers=dict(self.receivers),
            deliverers=[
                DelivererState(number=link.number, pid=link.pid, in_flight=link.busy, capacity=link.capacity)
                for link in self.flow.deliverers
            ],
            lanes={
                lane: LaneState(runner=runner.position, end=runner.readable_end, interval_s=runner.interval_s)
                for lane, runner in sorted(queue.runners.items())
            },
            journal=self._journal(positions.suffix),
            positions=WrittenPositions(sequence=positions.sequence, written_at=positions.written_at),
            scheduler=context.scheduler.snapshot(context.now(), 100),
            outcomes=context.outcomes.by_transport(),
            shard=None if self.shard is None else self.shard(),
            measured=context.measured.answer() if context.measured is not None else None,
        )

    def _journal(self, suffix: int) -> JournalPlaces:
        journal = self.context.queue.journal
        return JournalPlaces(suffix=suffix, end=journal.recorded_end, durable=journal.durable)

    def _restored(self) -> str:
        """Returns why restored mail is held, while some of it may be; "" if the queue does not come from a backup."""
        restored, queue = self.context.restored, self.context.queue
        waits = any(runner.position < restored.lanes.get(lane, 0) for lane, runner in queue.runners.items())
        held = queue.sizes.resting.get(HOLD, [0, 0])[0]
        return restored.why if restored.backup_at and (waits or held) else ""

    def size(self, arguments: dict[str, Any]) -> Size:
        """Returns the size of the queue."""
        size = self.context.queue.sizes.summary()
        return Size(**msgspec.structs.asdict(size), unheard=self._unheard())

    def _unheard(self) -> list[str]:
        lanes = [incoming(number) for number in range(self.context.settings.receiver.processes)]
        return self.context.balance.unheard(lanes)

    def cut(self, arguments: dict[str, Any]) -> Cut:
        """Returns where to read each lane."""
        lanes = {}
        for lane, runner in self.context.queue.runners.items():
            lowest = self.context.queue.floor(lane).lowest()
            browse = runner.position if lowest is None else min(lowest, runner.position)
            lanes[lane] = LaneCut(browse, runner.position, runner.readable_end)
        return Cut(lanes=lanes, unheard=self._unheard())

    def places(self, arguments: dict[str, Any]) -> Places:
        """Returns the positions of lanes and journal, and the active messages by lane and segment."""
        queue = self.context.queue
        held: dict[str, list[tuple[int, int]]] = {}
        for lane in queue.runners:
            bases = queue.reader(lane).bases
            counts: dict[int, int] = {}
            for offset in queue.floor(lane).offsets():
                at = bisect.bisect_right(bases, offset)
                if at:
                    counts[bases[at - 1]] = counts.get(bases[at - 1], 0) + 1
            held[lane] = list(counts.items())
        suffix = queue.journal.recorded_end if queue.suffix_start is None else queue.suffix_start
        return Places(
            lanes=self.cut(arguments).lanes,
            journal=self._journal(suffix),
            held=held,
            working=len(queue.starts),
        )

    def working(self, arguments: dict[str, Any]) -> Working:
        """Returns the progress of those of ``queue_ids`` that are active. Raises BadRequest for too many."""
        queue_ids = arguments.get("queue_ids", ())
        if len(queue_ids) > WORKING_MAX:
            raise BadRequest(
                f"queue_ids: {len(queue_ids)} of them; at most {WORKING_MAX} are allowed", argument="queue_ids"
            )
        waiting = {known.queue_id: known for known, _ in self.context.queue.recovered}
        in_memory = self.context.scheduler.recipient_states(queue_ids, self.context.now())
        messages: dict[str, Progress] = {}
        for queue_id in queue_ids:
            active = self.context.queue.active.get(queue_id)
            if active is not None:
                states = in_memory.get(queue_id, {})
                shown = _shown(active, states) if len(queue_ids) == 1 else {}
                messages[queue_id] = Progress(
                    remaining=active.remaining,
                    in_flight=active.in_flight,
                    lane=active.lane,
                    offset=active.offset,
                    generation=active.envelope.generation,
                    done=sorted(active.done)[:NAMES_MAX],
                    replies={number: reply for number, (_, reply, *_) in list(active.deferred.items())[:NAMES_MAX]},
                    destinations=_first(islice(active.destinations.values(), NAMES_MAX)),
                    states=_states(active, states),
                    recipient_states=shown,
                )
            elif queue_id in waiting:
                known = waiting[queue_id]
                remaining = max(known.recipients - len(known.done), 0)
                messages[queue_id] = Progress(
                    remaining=remaining,
                    in_flight=0,
                    lane=known.place.lane,
                    offset=known.place.offset,
                    generation=known.generation,
                    done=sorted(known.done)[:NAMES_MAX],
                    replies={},
                    destinations=[],
                    states={MailState.ACTIVE: remaining},
                )
            elif (found := self.context.queue.requested.get(queue_id)) is not None:
                (place, generation, recipients), _ = found
                messages[queue_id] = Progress(
                    remaining=recipients,
                    in_flight=0,
                    lane=place.lane,
                    offset=place.offset,
                    generation=generation,
                    done=[],
                    replies={},
                    destinations=[],
                    states={MailState.QUEUED: recipients},
                    active=False,
                )
        return Working(messages=messages)

    def explain(self, arguments: dict[str, Any]) -> Reasons:
        """Returns why an active message is not done; no reasons for a message that is not active."""
        context = self.context
        queue_id = str(arguments.get("queue_id", ""))
        active = context.queue.active.get(queue_id)
        if active is None:
            reasons = why_recovered(context.queue.recovered, queue_id)
            states = {str(MailState.ACTIVE): each.recipients for each in reasons}
            if not reasons and (reasons := why_requested(context, queue_id)):
                states = {str(MailState.QUEUED): each.recipients for each in reasons}
        else:
            reasons = why_active(context, self.flow.deliverers, active)
            in_memory = context.scheduler.recipient_states([queue_id], context.now())
            states = _states(active, in_memory.get(queue_id, {}))
        not_read = "" if reasons else why_not_read(context, str(arguments.get("lane", "")))
        return Reasons(reasons=reasons, not_read=not_read, state=main_state(states) if reasons else "", states=states)

    # -- destinations

    def destinations(self, arguments: dict[str, Any]) -> Destinations:
        """Returns up to ``limit`` destinations with mail, those without, queued recipients, and suspensions."""
        limit = min(int(arguments.get("limit") or 100), NAMES_MAX)
        context = self.context
        snapshot = context.scheduler.snapshot(context.now(), limit)
        wall = context.wall()
        offset = wall - context.now()
        rows = {name: self._active(name, row, offset) for name, row in snapshot.destinations.items()}
        others = [name for name in context.outcomes.latest(limit) if name not in rows]
        queued = context.queue.sizes.summary().destinations
        most = dict(sorted(queued.items(), key=lambda item: -item[1])[:limit])
        suspended = {
            scope: until
            for scope, values in self.tuned.values.items()
            if isinstance(until := values.get(SUSPENDED_UNTIL), int | float) and until > wall
        }
        mail = {name: row.queued or row.busy for name, row in rows.items()} | {
            n: 1 for n, count in most.items() if count
        }
        names = dict.fromkeys((*rows, *others, *most, *suspended))
        names.pop("", None)
        return Destinations(
            destinations=rows,
            without_mail={name: context.outcomes.of(name, wall) for name in others},
            queued=most,
            suspended={scope: None if math.isinf(until) else until for scope, until in suspended.items()},
            states={name: self._states(name, queued=bool(mail.get(name))) for name in names},
        )

    def _states(self, name: str, *, queued: bool) -> list[StateUntil]:
        """Returns the states of a destination, with times of the wall clock. ``queued``: mail waits for it."""
        context = self.context
        now, wall = context.now(), context.wall()
        failing = context.outcomes.failing(name, wall, queued=queued)
        return [
            StateUntil(each.state, None if each.until is None or math.isinf(each.until) else each.until + wall - now)
            for each in context.scheduler.states(name, now, failing=failing)
        ]

    def _active(self, name: str, row: DestinationSnapshot, offset: float) -> ActiveDestination:
        """Adds the outcomes, and converts times of the scheduler's clock to wall clock."""
        outcomes = msgspec.structs.asdict(self.context.outcomes.of(name, self.context.wall()))
        answer = ActiveDestination(**msgspec.structs.asdict(row), **outcomes)
        for time in ("dead_until", SUSPENDED_UNTIL):
            if (until := getattr(answer, time)) is not None:
                setattr(answer, time, None if math.isinf(until) else until + offset)
        return answer


def _first(destinations: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(destinations))[:DESTINATIONS_SHOWN]


def _shown(active: Active, in_memory: Mapping[int, str]) -> dict[int, str]:
    """Returns the states of recipients by number, at most NAMES_MAX: of those in the scheduler, and of those that keep their
    time while a retry tries others."""
    shown = dict(in_memory)
    if active.only is not None:
        for recipient in active.envelope.recipients:
            if not active.only.covers(recipient.number) and recipient.number not in active.done:
                shown[recipient.number] = MailState.DEFERRED
    return dict(list(shown.items())[:NAMES_MAX])


def _states(active: Active, in_memory: Mapping[int, str]) -> dict[str, int]:
    """Returns the recipients of an active message by state. ``in_memory``: the states of those that the scheduler has."""
    aside = active.envelope.aside
    if active.only is not None:
        aside = {**aside, "deferred": active.only.others}
    return states_when_active(
        Counter(in_memory.values()),
        deferred=len(active.deferred),
        remaining=active.remaining,
        deleted=active.deleted,
        unread=active.unread_recipients,
        aside=aside,
    )
