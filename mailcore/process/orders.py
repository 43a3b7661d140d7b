"""What operators do to messages. A change is an ADMINISTRATIVE record behind the message's START, and is answered once that
is synced: from then on recovery carries it out if we can't.

A message at rest is claimed out of its lane; one being worked on is taken from the scheduler first, and what is in flight
is waited for. ``passes`` writes where it goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from mailcore.envelope import DataPlace, Envelope, Origin
from mailcore.process.core import Core
from mailcore.process.flow import Flow
from mailcore.process.passes import Passes
from mailcore.process.wire import Request
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, LOCAL, retry_lane
from mailcore.queue.queue import Gone
from mailcore.queue.records import Administrative
from mailcore.routing.route import RouteError, parse_route

__all__ = ["BadRequest", "Orders"]

MESSAGES_MAX = 1_000  # of one request, so that mail is not kept waiting
BUSY_TRIES = 40  # looks at a message whose pass is just being ended, 50 ms apart


class BadRequest(Exception):
    """What is wrong with the request, for who made it."""


class Orders:
    OPERATIONS = frozenset(
        {"delete", "undelete", "hold", "release", "retry", "delay", "reroute", "bounce", "add_recipients"}
    )

    def __init__(self, core: Core, flow: Flow, passes: Passes) -> None:
        self.core = core
        self.flow = flow
        self.passes = passes

    async def change(self, request: Request) -> dict[str, Any]:
        """Answers ``{"changed": n, "errors": {queue id: text}}`` once the records are synced."""
        operation, arguments = request.operation, dict(request.arguments)
        messages = arguments.pop("messages", None)
        if operation == "add_recipients" and messages is None:
            messages = [[arguments.pop("queue_id", ""), arguments.pop("lane", ""), arguments.pop("offset", -1)]]
        _check(operation, messages, arguments)
        self._check_route(arguments)
        changed = 0
        errors: dict[str, str] = {}
        for queue_id, lane, offset in messages:
            try:
                await self._order(queue_id, lane, offset, operation, arguments, request)
                changed += 1
            except Gone as gone:
                errors[queue_id] = str(gone)
        if changed:
            await self.core.commit.wait()
            self.core.request_checkpoint()
            self.core.go_on()
        return {"changed": changed, "errors": errors}

    def _check_route(self, arguments: dict[str, Any]) -> None:
        if "route" not in arguments:
            return
        try:
            route = parse_route(str(arguments["route"]))
        except RouteError as error:
            raise BadRequest(f"route: {error}") from error
        known = sorted(self.core.settings.transports)
        if route.transport not in known:
            raise BadRequest(f"route: there is no transport {route.transport!r}; there are {', '.join(known)}")

    async def _order(
        self, queue_id: str, lane: str, offset: int, operation: str, arguments: dict[str, Any], request: Request
    ) -> None:
        core = self.core
        for _ in range(BUSY_TRIES):
            active = core.queue.active.get(queue_id)
            if active is None or not (active.ending and active.order is None):
                break
            await asyncio.sleep(0.05)
        order = Administrative(operation, queue_id, request.who, request.why, core.wall(), arguments)
        active = core.queue.active.get(queue_id)
        if active is not None:
            if active.ending:
                raise Gone("it is just being put elsewhere; try again")
            if operation in ("undelete", "release"):
                raise Gone("it is being delivered: neither deleted nor held")
            core.queue.administer(order)
            active.order = order
            self.flow.stop_for_order(active)
        else:
            _fits(operation, lane)
            active = core.queue.claim(lane, offset, queue_id, core.now())
            core.queue.administer(order)
            active.order = order
            self.passes.over(active)
        core.log.administered(queue_id, operation, request.who, request.why)

    async def inject(self, request: Request) -> dict[str, Any]:
        """A message whose spool file is complete comes to rest in ``local``, or in the lanes until ``not_before``."""
        core = self.core
        try:
            envelope = msgspec.convert(request.arguments["envelope"], Envelope)
            not_before = float(request.arguments.get("not_before") or 0.0)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise BadRequest(f"inject: {error}") from error
        if envelope.data is not DataPlace.SPOOL or not core.queue.disk.exists(core.queue.spool.path(envelope.queue_id)):
            raise BadRequest(f"inject: there is no spool file of {envelope.queue_id}")
        left = not_before - core.wall()
        interval = core.ladder().fitting(left) if left > 0 else 0
        envelope = msgspec.structs.replace(
            envelope,
            origin=Origin.LOCAL,
            generation=0,
            not_before=not_before,
            due_at=core.wall() + interval if interval else 0.0,
            resting={"": envelope.recipient_count},
        )
        core.queue.put(retry_lane(interval) if interval else LOCAL, envelope)
        core.log.accepted(envelope)
        core.count("injected")
        # Nobody reads it, or believes it after a crash, before a checkpoint covers it: that is when it is safe.
        await self.flow_checkpoint()
        return {"queue_id": envelope.queue_id}

    async def flow_checkpoint(self) -> None:
        """Returns when a checkpoint that began after now is written."""
        future: asyncio.Future[None] = self.core.loop.create_future()
        self.core.checkpoint_waiters.append(future)
        self.core.request_checkpoint()
        await future


def _fits(operation: str, lane: str) -> None:
    """Whether the change makes sense for a message resting in this lane. Raises Gone."""
    if operation == "undelete" and lane != DELETED:
        raise Gone("it is not deleted")
    if operation != "undelete" and lane == DELETED:
        raise Gone("it is deleted; undelete it first")
    if operation == "release" and lane != HOLD:
        raise Gone("it is not held")
    if operation == "hold" and lane == HOLD:
        raise Gone("it is held already")
    if operation == "retry" and lane in (HOLD, AT_ONCE, LOCAL):
        raise Gone("it is held; release it" if lane == HOLD else "it is due already")


def _check(operation: str, messages: Sequence[Any] | None, arguments: dict[str, Any]) -> None:
    if not isinstance(messages, list | tuple) or not messages:
        raise BadRequest("messages: a list of [queue id, lane, offset] is needed")
    if len(messages) > MESSAGES_MAX:
        raise BadRequest(f"messages: {len(messages)} of them; at most {MESSAGES_MAX} are allowed in one request")
    for message in messages:
        if not (
            isinstance(message, list | tuple)
            and len(message) == 3
            and isinstance(message[0], str)
            and isinstance(message[1], str)
            and isinstance(message[2], int)
        ):
            raise BadRequest(f"messages: {message!r} is not [queue id, lane, offset]")
    if operation == "delay" and not isinstance(arguments.get("until"), int | float):
        raise BadRequest("until: a time in seconds since 1970 is needed")
    if operation == "reroute" and not arguments.get("route"):
        raise BadRequest("route: transport:next hop is needed")
    if operation == "add_recipients" and not arguments.get("recipients"):
        raise BadRequest("recipients: a list of addresses is needed")
