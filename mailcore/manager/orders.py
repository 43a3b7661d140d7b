"""Makes the changes that operators order. A change is an ADMINISTRATIVE record behind the message's START. It is answered
once that record is synced: from then on recovery carries it out if this process cannot.

A message at rest is claimed out of its lane. A message being worked on is taken from the scheduler first, and its deliveries
in flight are awaited. ``passes`` writes the message to its new lane; a message that only waits for its next attempt needs none
for a retry: it is tried at once while the active set has room, and so are some of its recipients.

Keeps law: answered-after-sync, law: retry-survives (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from mailcore.change_rules import MessageState
from mailcore.counted import counted
from mailcore.envelope import AsideKind, DataPlace, Envelope, Origin, Recipient
from mailcore.faults import Code, FaultError
from mailcore.frames import Request
from mailcore.log.record import Record
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import Flow
from mailcore.manager.passes import Passes
from mailcore.manager.placing import Placing, change_of
from mailcore.manager_answers import Injected, Ordered
from mailcore.queue.active import Active, Only
from mailcore.queue.aside import HELD, NUMBERS, RANGES_MAX, Change, numbers_in, with_its_state
from mailcore.queue.lanes import LOCAL, retry_lane, state_in
from mailcore.queue.queue import Elsewhere, Gone
from mailcore.queue.recipients import recipients_at
from mailcore.queue.records import Administrative, Place
from mailcore.queue.requested import Requested, RetryBatch
from mailcore.queue.rewrite import remaining_recipients
from mailcore.routing.address import comparable, is_mailbox
from mailcore.routing.route import RouteError, parse_route

__all__ = ["BadRequest", "Orders"]

MESSAGES_MAX = 1_000  # of one request, so that mail is not kept waiting
TURN = 50  # changes after which other work has its turn
BUSY_TRIES = 100  # how often a message whose pass is ending is looked at
BUSY_S = 0.02  # between them; a spool file is synced in less
DESTINATIONS_KEPT = 10_000  # of one message
DEAD_SHOWN = 20  # destinations in the answer to a retry
ORDERS_MAX = 100  # records of changes that wait for deliveries in flight of one message


class BadRequest(FaultError):
    """A request that is wrong; the message says what is allowed."""

    default = Code.INVALID


class Orders:
    """Carries out the changes that operators request, and injects messages."""

    OPERATIONS = frozenset(
        {"delete", "undelete", "hold", "release", "retry", "delay", "reroute", "bounce", "add_recipients"}
    )

    def __init__(self, context: ManagerContext, flow: Flow, passes: Passes) -> None:
        self.context = context
        self.flow = flow
        self.passes = passes

    async def change(self, request: Request) -> Ordered:
        """Changes the messages; answers once the records are synced. Raises BadRequest."""
        operation, arguments = request.operation, dict(request.arguments)
        messages = arguments.pop("messages", None)
        if operation == "add_recipients" and messages is None:
            messages = [[arguments.pop("queue_id", ""), arguments.pop("lane", ""), arguments.pop("offset", -1)]]
        _check(operation, messages, arguments, self.context.wall())
        self._check_route(arguments)
        moving: list[Active] = []
        answer = Ordered(changed=0, recipients=0, in_flight={}, errors={}, dead=[], elsewhere=[])
        destinations: set[str] = set()
        batch = RetryBatch(request.who, request.why, self.context.wall())
        for queue_id, lane, offset, *numbers in messages:
            some = {**arguments, NUMBERS: numbers[0]} if numbers and numbers[0] is not None else arguments
            started = None
            try:
                if operation == "retry":
                    started = self._try(queue_id, lane, offset, some, batch)
                fit = started or await self._order(queue_id, lane, offset, operation, some, request)
            except Gone as gone:
                answer.errors[queue_id] = gone.fault
                if isinstance(gone, Elsewhere):
                    answer.elsewhere.append(queue_id)
                continue
            if started is None and fit.active is not None:
                moving.append(fit.active)
            if operation == "retry":  # once a request: one that does not live is dead again after a few tries
                for destination in fit.destinations - destinations:
                    self.context.scheduler.try_now(destination, self.context.now())
            answer.changed += 1
            if answer.changed % TURN == 0:  # mail tried so far goes out meanwhile
                self.context.go_on()
                await asyncio.sleep(0)
            if self.passes.carrying.is_half_full:
                await self.flow_checkpoint()
            answer.recipients += fit.recipients
            if fit.in_flight:
                answer.in_flight[queue_id] = fit.in_flight
            destinations |= fit.destinations
        if answer.changed:
            await self.context.commit.wait()
            self.context.go_on()
            if moving:
                await self._until_seen(moving)
            if operation == "retry":
                answer.dead = sorted(filter(self.context.scheduler.is_dead, destinations))[:DEAD_SHOWN]
        elif self.context.queue.is_moving(answer.elsewhere):
            await self.flow_checkpoint()  # then a new search finds them where they came to rest a moment ago
        return answer

    async def _until_seen(self, moving: Sequence[Active]) -> None:
        """Waits until the next reader finds the messages in their new lanes. The change itself is durable already.

        Waits at most BUSY_TRIES * BUSY_S for passes that are ending (the disk may refuse writes), then for a checkpoint; not
        for deliveries under way.
        """
        active = self.context.queue.active
        for _ in range(BUSY_TRIES):
            if not any(one.ending and active.get(one.queue_id) is one for one in moving):
                break
            await asyncio.sleep(BUSY_S)
        await self.flow_checkpoint()

    def _check_route(self, arguments: dict[str, Any]) -> None:
        if "route" not in arguments:
            return
        try:
            route = parse_route(str(arguments["route"]))
        except RouteError as error:
            raise BadRequest(f"route: {error}", argument="route") from error
        known = sorted(self.context.settings.transports)
        if route.transport not in known:
            raise BadRequest(
                f"route: there is no transport {route.transport!r}; there are {', '.join(known)}", argument="route"
            )

    async def _order(
        self, queue_id: str, lane: str, offset: int, operation: str, arguments: dict[str, Any], request: Request
    ) -> _Fit:
        """Appends the records of one message's change. Raises Gone."""
        context = self.context
        orders = [
            Administrative(operation, queue_id, request.who, request.why, context.wall(), some)
            for some in _parts(arguments)
        ]
        for _ in range(BUSY_TRIES):
            active = context.queue.active.get(queue_id)
            if active is None or not active.ending:
                break
            await asyncio.sleep(BUSY_S)
        else:
            raise Gone("message is being moved to another lane; retry in a second", code=Code.BUSY)
        if operation == "add_recipients":
            once: dict[str, str] = {}
            for address in arguments["recipients"]:
                once.setdefault(comparable(address), address)
            arguments = {**arguments, "recipients": list(once.values())}
            orders = [msgspec.structs.replace(order, arguments=arguments) for order in orders]
        is_at_rest = active is None
        if active is not None:
            if len(active.orders) + len(orders) > ORDERS_MAX:
                waiting = counted(len(active.orders), "change")
                text = f"deliveries in flight keep {waiting} waiting; retry when they have ended"
                raise Gone(text, code=Code.BUSY)
            fit = self._fit_active(active, orders)
        elif any(known.queue_id == queue_id for known, _ in context.queue.recovered):
            raise Gone("message is still being recovered after the restart; retry", code=Code.BUSY)
        elif context.restored.covers(lane, offset):
            raise Gone("message came out of a backup and is about to be held; retry then", code=Code.BUSY)
        else:
            record, envelope = context.queue.resting(lane, offset, queue_id)
            fitting = self._check_fits_at_rest(lane, record, envelope, orders)
            requested = context.queue.requested.get(queue_id)
            active = context.queue.take(lane, record, envelope, context.now())
            fit = _Fit(active, len(fitting.numbers), [], fitting.destinations)
            if requested is not None:
                # Its START ended the request; recipients that this change does not name are still to be tried.
                batch = requested[1]
                orders.insert(0, Administrative("retry", queue_id, batch.who, batch.why, batch.at, {}, anew=True))
        context.overtaking.watch(queue_id, fit.in_flight)
        why = context.restored.held_if_undeleted(active.lane, active.offset) if operation == "undelete" else None
        for order in orders:
            told = order if why is None else msgspec.structs.replace(order, arguments={**order.arguments, HELD: why})
            context.queue.administer(told)
            active.orders.append(told)
        if not (is_at_rest and self.passes.delete_at_rest(active)):
            self.flow.stop_for_order(active)
        context.log.administered(queue_id, operation, request.who, request.why)
        return fit

    def _try(self, queue_id: str, lane: str, offset: int, arguments: dict[str, Any], batch: RetryBatch) -> _Fit | None:
        """Tries a message that only waits for its next attempt, without a move: its START makes it due for recovery, too. One
        that the active set has no room for is tried as soon as it has.

        Recipients that the retry does not name keep their time. Returns None if a retry must take the way of other changes.
        Raises Gone.
        """
        context, queue = self.context, self.context.queue
        if queue_id in queue.active or queue.recovered or len(arguments.get(NUMBERS, ())) > RANGES_MAX:
            return None
        record, envelope = queue.resting(lane, offset, queue_id)
        if not self.flow.admission.may_take(lane, envelope):
            return None
        order = Administrative("retry", queue_id, batch.who, batch.why, context.wall(), arguments)
        fitting: _Fitting | None = None
        change = Change(order, age_s=0.0, undo_time_s=0.0)
        # All destinations are revived, also those of recipients that are not in the envelope itself.
        if envelope.batches or (arguments and not all(change.covers(each.number) for each in envelope.recipients)):
            fitting = self._check_fits_at_rest(lane, record, envelope, [order])
        others = 0 if fitting is None else envelope.recipient_count - len(fitting.numbers)
        active = None
        if self.flow.admission.has_room():
            active = queue.take(lane, record, envelope, context.now())
            if others:
                active.only = Only(order, change.covers, others, active.rested_until)
            active.rested_until = 0.0
            queue.administer(order)
        elif others or len(queue.requested) >= context.settings.queue.retries_waiting:
            return None
        else:
            requested = Requested(Place(lane, offset), envelope.generation, envelope.recipient_count)
            queue.requested.add(queue.journal, batch, queue_id, requested)
        context.log.administered(queue_id, "retry", batch.who, batch.why)
        if active is not None:
            self.flow.admission.enter(active, context.now())
        if fitting is not None:
            return _Fit(active, len(fitting.numbers), [], fitting.destinations)
        return _Fit(active, envelope.recipient_count, [], _destinations(envelope))

    def _fit_active(self, active: Active, orders: Sequence[Administrative]) -> _Fit:
        """Counts the recipients that the change fits, after the orders that wait for deliveries in flight. Raises Gone."""
        context = self.context
        _refuse_repeated(orders, remaining_recipients(context.queue, active), active.orders)
        changes = [change_of(context, active, order) for order in orders]
        placing = Placing(context, active, 0)
        returned = {recipient.number for recipient, _ in placing.bounced()}  # nothing after it can change that
        remaining = (r for r in remaining_recipients(context.queue, active) if r.number not in returned)
        fitting = _fitting(
            changes,
            map(placing.after_orders, remaining),
            MessageState.ACTIVE,
            "its recipients are being returned to the sender" if returned else "",
        )
        flying = {n for flight in self.flow.flights() if flight.active is active for n in flight.entry.recipients}
        in_flight = sorted(flying.intersection(fitting.numbers))
        return _Fit(active, len(fitting.numbers), in_flight, fitting.destinations)

    def _check_fits_at_rest(
        self, lane: str, record: Record, envelope: Envelope, orders: Sequence[Administrative]
    ) -> _Fitting:
        """Returns the recipients of a message at rest that the change fits. Raises Gone."""
        context, offset, now = self.context, record.offset, self.context.wall()
        if context.restored.is_of_maildrop(lane, envelope):
            raise Gone("message came out of a backup and is about to be held; retry then", code=Code.BUSY)
        changes = [Change(order, age_s=envelope.age_s, undo_time_s=context.queue.undo_time_s) for order in orders]
        named = any(NUMBERS in order.arguments or order.operation == "add_recipients" for order in orders)
        if not named and not envelope.aside and envelope.recipients:  # all recipients are in one state
            first = with_its_state(envelope.recipients[0], envelope, lane, now)
            _fitting(changes, [first], state_in(lane))
            return _Fitting(range(envelope.recipient_count), _destinations(envelope))
        at_rest = recipients_at(context.queue, lane, offset, envelope)
        _refuse_repeated(orders, itertools.chain.from_iterable(at_rest))
        recipients = (
            with_its_state(recipient, envelope, lane, now)
            for some in recipients_at(context.queue, lane, offset, envelope)
            for recipient in some
        )
        return _fitting(changes, recipients, state_in(lane))

    async def inject(self, request: Request) -> Injected:
        """Puts a message whose spool file is complete into ``local``, or into a retry lane until ``not_before``."""
        context = self.context
        try:
            envelope = msgspec.convert(request.arguments["envelope"], Envelope)
            not_before = float(request.arguments.get("not_before") or 0.0)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise BadRequest(f"inject: {error}", argument="envelope") from error
        if envelope.data is not DataPlace.SPOOL or not context.queue.disk.exists(
            context.queue.spool.path(envelope.queue_id)
        ):
            raise BadRequest(f"inject: there is no spool file of {envelope.queue_id}", argument="envelope")
        left = not_before - context.wall()
        interval = context.ladder().towards(left)
        envelope = msgspec.structs.replace(
            envelope,
            origin=Origin.LOCAL,
            generation=0,
            not_before=not_before,
            due_at=context.wall() + interval if interval else 0.0,
            resting={"": envelope.recipient_count},
        )
        context.queue.put(retry_lane(interval) if interval else LOCAL, envelope)
        context.log.accepted(envelope)
        context.count("injected")
        context.balance.accept(envelope)
        # The message is safe when a checkpoint covers it: before, no runner reads it, and recovery ignores it.
        await self.flow_checkpoint()
        return Injected(queue_id=envelope.queue_id)

    async def flow_checkpoint(self) -> None:
        """Returns when a checkpoint that began after now is written."""
        future: asyncio.Future[None] = self.context.loop.create_future()
        self.context.checkpoint_waiters.append(future)
        self.context.request_checkpoint()
        await future


@dataclass(frozen=True, slots=True)
class _Fit:
    """A message that a change fits, with the number of its recipients, and those of them who are being delivered now."""

    active: Active | None  # None: it stays where it rests
    recipients: int
    in_flight: list[int]  # numbers of recipients
    destinations: frozenset[str]  # of the recipients, the first DESTINATIONS_KEPT


class _Fitting(NamedTuple):
    """The recipients that a change fits."""

    numbers: Sequence[int]
    destinations: frozenset[str]


def _destinations(envelope: Envelope) -> frozenset[str]:
    return frozenset({each.destination for each in envelope.recipients if each.destination})


def _fitting(
    changes: Sequence[Change], recipients: Iterable[Recipient], otherwise: MessageState, why: str = ""
) -> _Fitting:
    """Returns the recipients that the change fits. Raises Gone if there is none; ``why``: what is known of the others."""
    fitting: list[int] = []
    destinations: set[str] = set()
    for recipient in recipients:
        for change in changes:
            if change.covers(recipient.number):
                refused = change.refusal(recipient, otherwise)
                if not refused:
                    fitting.append(recipient.number)
                    if recipient.destination and len(destinations) < DESTINATIONS_KEPT:
                        destinations.add(recipient.destination)
                why = why or refused
                break
    if fitting:
        return _Fitting(fitting, frozenset(destinations))
    if why:
        raise Gone(why, code=Code.CONFLICT)
    raise Gone("its recipients are finished", code=Code.NOT_FOUND)


def _refuse_repeated(
    orders: Sequence[Administrative], recipients: Iterable[Recipient], waiting: Sequence[Administrative] = ()
) -> None:
    """Raises Gone if a recipient to be added is left already, or is in an order that waits: it would get two copies.

    One that was delivered or deleted may be added again.
    """
    added = {comparable(each): each for order in orders for each in _added(order)}
    if not added:
        return
    left = (each.address for each in recipients if each.aside is None or each.aside.kind is not AsideKind.DELETED)
    for address in itertools.chain(left, *map(_added, waiting)):
        if (known := added.get(comparable(address))) is not None:
            raise Gone(f"{known} is a recipient of this message already; nothing was added", code=Code.CONFLICT)


def _added(order: Administrative) -> Sequence[str]:
    return order.arguments["recipients"] if order.operation == "add_recipients" else ()


def _parts(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the arguments once for each record: the numbers of many recipients are divided."""
    ranges = arguments.get(NUMBERS)
    if ranges is None or len(ranges) <= RANGES_MAX:
        return [arguments]
    return [{**arguments, NUMBERS: ranges[at : at + RANGES_MAX]} for at in range(0, len(ranges), RANGES_MAX)]


def _check(operation: str, messages: Sequence[Any] | None, arguments: dict[str, Any], now: float) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise BadRequest("messages: a list of [queue id, lane, offset] is needed", argument="messages")
    if len(messages) > MESSAGES_MAX:
        raise BadRequest(
            f"messages: {len(messages)} of them; at most {MESSAGES_MAX} are allowed in one request", argument="messages"
        )
    for message in messages:
        if not (
            isinstance(message, list | tuple)
            and len(message) in (3, 4)
            and isinstance(message[0], str)
            and isinstance(message[1], str)
            and isinstance(message[2], int)
        ):
            raise BadRequest(f"messages: {message!r} is not [queue id, lane, offset, numbers]", argument="messages")
        try:
            numbers_in(message[3] if len(message) == 4 else None)
        except ValueError as error:
            raise BadRequest(f"messages: {message[0]}: {error}", argument="messages") from None
    if operation == "delay":
        until = arguments.get("until")
        if not isinstance(until, int | float):
            raise BadRequest("until: a time in seconds since 1970 is needed", argument="until")
        if until <= now:
            raise BadRequest("until: this time is over; retry makes a message due now", argument="until")
    if operation == "reroute" and not arguments.get("route"):
        raise BadRequest("route: transport:next hop is needed", argument="route")
    if operation == "add_recipients":
        recipients = arguments.get("recipients")
        if not isinstance(recipients, list | tuple) or not recipients:
            raise BadRequest("recipients: a list of addresses is needed", argument="recipients")
        for address in recipients:
            if not isinstance(address, str) or not is_mailbox(address):
                raise BadRequest(
                    f"recipients: {address!a} is not an address; allowed: local@domain", argument="recipients"
                )
