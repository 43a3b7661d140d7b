"""Makes the changes that operators order. A change is an ADMINISTRATIVE record behind the message's START. It is answered
once that record is synced: from then on recovery carries it out if this process cannot.

A message at rest is claimed out of its lane. A message being worked on is taken from the scheduler first, and its deliveries
in flight are awaited. ``passes`` writes the message to its new lane.

Keeps law: answered-after-sync (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from mailcore.change_rules import MessageState, refusal
from mailcore.envelope import DataPlace, Envelope, Origin
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import Request
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import Flow
from mailcore.manager.passes import Passes
from mailcore.manager_answers import Injected, Ordered
from mailcore.queue.active import Active
from mailcore.queue.lanes import LOCAL, retry_lane, state_in
from mailcore.queue.queue import Elsewhere, Gone
from mailcore.queue.records import Administrative
from mailcore.queue.undelete import HELD
from mailcore.routing.address import is_mailbox
from mailcore.routing.route import RouteError, parse_route

__all__ = ["BadRequest", "Orders"]

MESSAGES_MAX = 1_000  # of one request, so that mail is not kept waiting
BUSY_TRIES = 100  # how often a message whose pass is ending is looked at
BUSY_S = 0.02  # between them; a spool file is synced in less


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
        _check(operation, messages, arguments)
        self._check_route(arguments)
        changed: list[Active] = []
        errors: dict[str, Fault] = {}
        elsewhere: list[str] = []
        for queue_id, lane, offset in messages:
            try:
                changed.append(await self._order(queue_id, lane, offset, operation, arguments, request))
            except Gone as gone:
                errors[queue_id] = gone.fault
                if isinstance(gone, Elsewhere):
                    elsewhere.append(queue_id)
        if changed:
            await self.context.commit.wait()
            self.context.go_on()
            await self._until_seen(changed)
        return Ordered(changed=len(changed), errors=errors, elsewhere=elsewhere)

    async def _until_seen(self, changed: Sequence[Active]) -> None:
        """Waits until the next reader finds the messages in their new lanes. The change itself is durable already.

        Waits at most BUSY_TRIES * BUSY_S for passes that are ending (the disk may refuse writes), then for a checkpoint; not
        for deliveries under way.
        """
        active = self.context.queue.active
        for _ in range(BUSY_TRIES):
            if not any(one.ending and active.get(one.queue_id) is one for one in changed):
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
    ) -> Active:
        """Raises Gone."""
        context = self.context
        order = Administrative(operation, queue_id, request.who, request.why, context.wall(), arguments)
        for _ in range(BUSY_TRIES):
            active = context.queue.active.get(queue_id)
            if active is None or not active.ending:
                break
            await asyncio.sleep(BUSY_S)
        else:
            raise Gone("message is being moved to another lane; retry in a second", code=Code.BUSY)
        if active is not None:
            _check_fits(operation, _state_of_active(active.order), active.order)
            if operation in ("delete", "undelete") and (held := context.restored.held_before(active)) is not None:
                order = msgspec.structs.replace(order, arguments={**arguments, HELD: held})
            context.queue.administer(order)
            active.order = order
            self.flow.stop_for_order(active)
        elif any(known.queue_id == queue_id for known, _ in context.queue.recovered):
            raise Gone("message is still being recovered after the restart; retry", code=Code.BUSY)
        elif context.restored.covers(lane, offset):
            raise Gone("message came out of a backup and is about to be held; retry then", code=Code.BUSY)
        else:
            try:
                _check_fits(operation, state_in(lane))
            except Gone:
                context.queue.resting(lane, offset, queue_id)  # raises when the message is no longer in this lane
                raise
            active = context.queue.claim(lane, offset, queue_id, context.now())
            context.queue.administer(order)
            active.order = order
            self.passes.over(active)
        context.log.administered(queue_id, operation, request.who, request.why)
        return active

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


_PLACED = ("hold", "delete", "delay", "retry", "undelete", "release")  # where it rests: the last counts


def _state_of_active(order: Administrative | None) -> MessageState:
    """Returns the state of a message being worked on; an order that waits for deliveries in flight counts as done."""
    if order is None:
        return MessageState.ACTIVE
    if order.operation == "hold" or (order.operation == "undelete" and HELD in order.arguments):
        return MessageState.HELD
    return MessageState.DELETED if order.operation == "delete" else MessageState.ACTIVE


def _check_fits(operation: str, state: MessageState, order: Administrative | None = None) -> None:
    """Raises Gone when the change does not fit the state, or the order that waits for deliveries in flight."""
    if why := refusal(operation, state):
        raise Gone(why, code=Code.CONFLICT)
    if order is not None and (operation not in _PLACED or order.operation not in _PLACED):
        text = f"{order.operation} waits for deliveries in flight; retry when they have ended"
        raise Gone(text, code=Code.BUSY)


def _check(operation: str, messages: Sequence[Any] | None, arguments: dict[str, Any]) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise BadRequest("messages: a list of [queue id, lane, offset] is needed", argument="messages")
    if len(messages) > MESSAGES_MAX:
        raise BadRequest(
            f"messages: {len(messages)} of them; at most {MESSAGES_MAX} are allowed in one request", argument="messages"
        )
    for message in messages:
        if not (
            isinstance(message, list | tuple)
            and len(message) == 3
            and isinstance(message[0], str)
            and isinstance(message[1], str)
            and isinstance(message[2], int)
        ):
            raise BadRequest(f"messages: {message!r} is not [queue id, lane, offset]", argument="messages")
    if operation == "delay" and not isinstance(arguments.get("until"), int | float):
        raise BadRequest("until: a time in seconds since 1970 is needed", argument="until")
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
