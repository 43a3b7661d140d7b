"""The answers to every operation: from the lanes where they can be read, from the manager where they must be asked.

Laws: browsing asks the manager two cheap things a page (where to read, who is active), and works without it, saying so. A
change goes to the manager and is answered in its words; here only positions are found for queue ids. All reading of files
happens in a few threads, in steps of a fifth of a second, so that no client waits long for another.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from mailcore.control.injecting import Injecting
from mailcore.control.manager_link import ManagerAway, ManagerLink, OutcomeUnknown
from mailcore.control.protocol import (
    CHANGES,
    MESSAGES_MAX,
    AddRecipientsArguments,
    Answerer,
    ArgumentError,
    Arguments,
    ChangeArguments,
    ChangeMatchingArguments,
    ListArguments,
    OneMessage,
    Operation,
    ShowArguments,
)
from mailcore.control.session import Session
from mailcore.control.waiting import why_at_rest
from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.queue.browse import REASON_CHARACTERS, Browser, Budget, Found, Item, State, Stretch, stretches_of
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, LOCAL
from mailcore.queue.matching import Filter

__all__ = ["NotFound", "Operations"]

ERRORS_SHOWN = 100  # of a change to all that match; the count goes on
PROGRESS_S = 1.0  # a client hears at least this often how far it is

T = TypeVar("T")
Place = tuple[str, int]  # lane, offset


class NotFound(Exception):
    """No such message; for a person as it is."""


def fits(change: str, lane: str) -> bool:
    """Whether a change can do anything to a message in this lane: the manager's own rule, so that it is not asked in vain."""
    if change == "undelete":
        return lane == DELETED
    if lane == DELETED:
        return False
    if change == "release":
        return lane == HOLD
    if change == "retry":
        return lane not in (HOLD, AT_ONCE, LOCAL)
    return change != "hold" or lane != HOLD


class Operations:
    def __init__(
        self,
        browser: Browser,
        link: ManagerLink,
        injecting: Injecting,
        pool: ThreadPoolExecutor,
        processes_path: str,
    ) -> None:
        self._browser = browser
        self._link = link
        self._pool = pool
        self._processes_path = processes_path
        self._matching = Budget(items=MESSAGES_MAX)
        self._answers: dict[str, Callable[[Session, Any], AsyncGenerator[Any, None]]] = {
            "ping": self._ping,
            "processes": self._processes,
            "list": self._list,
            "show": self._show,
            "explain": self._explain,
            "change_matching": self._change_matching,
            "inject_begin": injecting.begin,
            "inject_data": injecting.data,
            "inject_end": injecting.end,
        }

    def answer(self, operation: Operation, arguments: Arguments, session: Session) -> AsyncGenerator[Any, None]:
        """The parts of the answer, in order; whoever stops reading them ends the operation between two of its steps."""
        if operation.answerer is Answerer.CONTROL:
            return self._answers[operation.name](session, arguments)
        if isinstance(arguments, ChangeArguments):
            return self._change(operation.name, arguments, session)
        if isinstance(arguments, AddRecipientsArguments):
            return self._add_recipients(arguments, session)
        return self._ask(operation.name, arguments, session)

    # -- answered by the manager

    async def _ask(self, name: str, arguments: Arguments, session: Session) -> AsyncGenerator[Any, None]:
        yield await self._link.call(name, msgspec.structs.asdict(arguments), session.who, session.why)

    async def _change(self, name: str, arguments: ChangeArguments, session: Session) -> AsyncGenerator[Any, None]:
        given = {queue_id: (lane, offset) for queue_id, lane, offset in arguments.messages}
        unplaced = [queue_id for queue_id in dict.fromkeys(arguments.queue_ids) if queue_id not in given]
        if not given and not unplaced:
            raise ArgumentError(f"{name}: queue_ids or messages: at least one is needed")
        if len(given) + len(unplaced) > MESSAGES_MAX:
            raise ArgumentError(
                f"{name}: {len(given) + len(unplaced)} messages; allowed: {MESSAGES_MAX} in one request"
            )
        extra = msgspec.structs.asdict(arguments)
        del extra["queue_ids"], extra["messages"]
        places = given | await self._places(unplaced)
        result = await self._send_change(name, places, extra, session)
        # What went elsewhere between looking and changing is looked for once more; nothing was done to it yet.
        moved = {
            queue_id: place
            for queue_id, place in (await self._places(result["errors"])).items()
            if place != places.get(queue_id)
        }
        if moved:
            again = await self._send_change(name, moved, extra, session)
            result["changed"] += again["changed"]
            for queue_id in moved:
                del result["errors"][queue_id]
            result["errors"].update(again["errors"])
        for queue_id in unplaced:
            if queue_id not in places and queue_id not in moved:
                result["errors"][queue_id] = "there is no such message in the queue"
        yield result

    async def _send_change(
        self, name: str, places: dict[str, Place], extra: dict[str, Any], session: Session
    ) -> dict[str, Any]:
        if not places:
            return {"changed": 0, "errors": {}}
        messages = [[queue_id, lane, offset] for queue_id, (lane, offset) in places.items()]
        answer = await self._link.call(name, {"messages": messages, **extra}, session.who, session.why)
        return {"changed": int(answer.get("changed", 0)), "errors": dict(answer.get("errors") or {})}

    async def _add_recipients(self, arguments: AddRecipientsArguments, session: Session) -> AsyncGenerator[Any, None]:
        place = (arguments.lane, arguments.offset)
        if not arguments.lane:
            found = (await self._places([arguments.queue_id])).get(arguments.queue_id)
            if found is None:
                raise NotFound(f"there is no message {arguments.queue_id} in the queue")
            place = found
        yield await self._link.call(
            "add_recipients",
            {
                "messages": [[arguments.queue_id, *place]],
                "recipients": arguments.recipients,
            },
            session.who,
            session.why,
        )

    async def _places(self, queue_ids: Iterable[str]) -> dict[str, Place]:
        """Where the messages lie now; those that are nowhere are left out. Raises ManagerAway."""
        wanted = list(queue_ids)
        if not wanted:
            return {}
        working = await self._link.call("working", {"queue_ids": wanted})
        places = {queue_id: (known["lane"], known["offset"]) for queue_id, known in working.items()}
        rest = [queue_id for queue_id in wanted if queue_id not in places]
        if rest:
            stretches, _ = await self._stretches()
            found = await self._in_thread(self._browser.find, stretches, rest)
            places.update({queue_id: (each.lane, each.offset) for queue_id, each in found.items()})
        return places

    # -- answered here

    async def _ping(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield {"pid": os.getpid(), "manager": self._link.connected}

    async def _processes(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield {"processes": await self._in_thread(_read_json, self._processes_path), "manager": self._link.connected}

    async def _list(self, session: Session, arguments: ListArguments) -> AsyncGenerator[Any, None]:
        stretches, note = await self._stretches()
        budget = Budget(items=arguments.limit)
        page = await self._in_thread(self._browser.page, stretches, arguments.filter, arguments.cursor, budget)
        await self._say_who_is_active(page.items)
        answer: dict[str, Any] = {"items": page.items, "cursor": page.cursor, "examined": page.examined, "note": note}
        if page.damage:
            answer["damage"] = page.damage
        yield answer

    async def _show(self, session: Session, arguments: ShowArguments) -> AsyncGenerator[Any, None]:
        queue_id = arguments.queue_id
        stretches, note = await self._stretches()
        working = (await self._working([queue_id])).get(queue_id)
        found: Found | None = None
        if working is not None:
            found = await self._in_thread(self._browser.read, working["lane"], working["offset"])
        if found is None or found.envelope.queue_id != queue_id:
            found = await self._find(queue_id, stretches)
        item = self._browser.item(found, stretches.get(found.lane))
        _overlay(item, working)
        explanation = await self._why_active(queue_id) if working is not None else []
        if not explanation:
            explanation = self._why_at_rest(found, stretches, note)
        yield {
            "message": item,
            "envelope": _details(found.envelope),
            "working": working,
            "explain": explanation,
            "note": note,
        }
        if arguments.recipients:
            batches = self._browser.recipients(found)
            while (batch := await self._in_thread(next, batches, None)) is not None:
                yield {"recipients": [_recipient(each, working) for each in batch]}

    async def _explain(self, session: Session, arguments: OneMessage) -> AsyncGenerator[Any, None]:
        explanation = await self._why_active(arguments.queue_id)
        if not explanation:
            stretches, note = await self._stretches()
            found = await self._find(arguments.queue_id, stretches)
            # It may have been taken up between the two questions.
            explanation = await self._why_active(arguments.queue_id) or self._why_at_rest(found, stretches, note)
        yield explanation

    async def _change_matching(self, session: Session, arguments: ChangeMatchingArguments) -> AsyncGenerator[Any, None]:
        if not arguments.dry_run and not self._link.connected:
            raise ManagerAway("the manager is not running; mail is still accepted, but nothing can be changed")
        assert arguments.change in CHANGES
        extra: dict[str, Any] = {}
        if arguments.until is not None:
            extra["until"] = arguments.until
        if arguments.route:
            extra["route"] = arguments.route
        filter_ = _where_it_fits(arguments.filter, arguments.change)
        # Taken once: what a change writes anew lies beyond these ends, so nothing is changed twice.
        stretches, note = await self._stretches()
        progress: dict[str, Any] = {"matched": 0, "changed": 0, "failed": 0, "errors": {}, "done": False, "note": note}
        cursor: str | None = ""
        said = time.monotonic()
        while cursor is not None:
            page = await self._in_thread(self._browser.page, stretches, filter_, cursor, self._matching)
            cursor = page.cursor
            places = {
                item.queue_id: (item.lane, item.offset) for item in page.items if fits(arguments.change, item.lane)
            }
            progress["matched"] += len(places)
            if places and not arguments.dry_run:
                result = await self._send_change(arguments.change, places, extra, session)
                progress["changed"] += result["changed"]
                progress["failed"] += len(result["errors"])
                for queue_id, error in result["errors"].items():
                    if len(progress["errors"]) < ERRORS_SHOWN:
                        progress["errors"][queue_id] = error
            if (places and not arguments.dry_run) or time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                yield dict(progress)
        yield progress | {"done": True}

    # -- inside

    async def _stretches(self) -> tuple[dict[str, Stretch], str]:
        """Where to read, and "" or a note for people that the manager could not say."""
        try:
            cut = await self._link.call("cut", {})
        except (ManagerAway, OutcomeUnknown):
            stretches, at = await self._in_thread(stretches_of, self._browser.disk, self._browser.queue_directory)
            when = datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds") if at else "its beginning"
            return stretches, f"the manager is away; as of {when}"
        return {lane: Stretch(start, runner, end) for lane, (start, runner, end) in cut["lanes"].items()}, ""

    async def _working(self, queue_ids: list[str]) -> dict[str, Any]:
        """Those in the active set; none when the manager is away."""
        if not queue_ids:
            return {}
        try:
            working: dict[str, Any] = await self._link.call("working", {"queue_ids": queue_ids})
        except (ManagerAway, OutcomeUnknown):
            return {}
        return working

    async def _find(self, queue_id: str, stretches: dict[str, Stretch]) -> Found:
        """Raises NotFound."""
        found = (await self._in_thread(self._browser.find, stretches, [queue_id])).get(queue_id)
        if found is None:
            raise NotFound(f"there is no message {queue_id} in the queue")
        return found

    async def _why_active(self, queue_id: str) -> list[dict[str, Any]]:
        """[] when the message is not being worked on, or the manager is away."""
        try:
            answer = await self._link.call("explain", msgspec.structs.asdict(OneMessage(queue_id=queue_id)))
        except (ManagerAway, OutcomeUnknown):
            return []
        return list(answer)

    def _why_at_rest(self, found: Found, stretches: dict[str, Stretch], note: str) -> list[dict[str, Any]]:
        return why_at_rest(found, stretches.get(found.lane), self._browser.clock(), manager_away=bool(note))

    async def _say_who_is_active(self, items: list[Item]) -> None:
        working = await self._working([item.queue_id for item in items])
        for item in items:
            known = working.get(item.queue_id)
            _overlay(item, known)
            if known is not None:  # the envelope still counts those done in this pass; ``size`` does not
                item.recipient_count = known["remaining"]

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)


def _read_json(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(1 << 20))
    except (OSError, ValueError):
        return {}  # nobody supervises: a process started by hand, or a test


def _where_it_fits(filter_: Filter, change: str) -> Filter:
    """Undelete and release need not read lanes where there is nothing for them."""
    only = {"undelete": DELETED, "release": HOLD}.get(change)
    return msgspec.structs.replace(filter_, lane=only) if only and not filter_.lane else filter_


def _overlay(item: Item, working: dict[str, Any] | None) -> None:
    """What the manager knows better than the lane."""
    if working is None:
        return
    item.state = State.ACTIVE
    replies = list((working.get("replies") or {}).values())
    if replies:
        item.reason = str(replies[-1])[:REASON_CHARACTERS]


def _recipient(recipient: Recipient, working: dict[str, Any] | None) -> dict[str, Any]:
    known = working or {}
    reply = (known.get("replies") or {}).get(recipient.number, recipient.reply)
    return {
        "number": recipient.number,
        "address": recipient.address,
        "destination": recipient.route or recipient.destination,
        "reply": str(reply)[:REASON_CHARACTERS],
        "done": recipient.number in (known.get("done") or ()),
    }


def _details(envelope: Envelope) -> dict[str, Any]:
    """What a list leaves out."""
    return {
        "origin": Origin(envelope.origin).name.lower(),
        "client_address": envelope.client_address,
        "client_port": envelope.client_port,
        "helo": envelope.helo,
        "tls": envelope.tls,
        "login": envelope.login,
        "message_id": envelope.message_id,
        "eight_bit": envelope.eight_bit,
        "smtputf8": envelope.smtputf8,
        "data": DataPlace(envelope.data).name.lower(),
        "not_before": envelope.not_before,
        "held_because": envelope.held_because,
    }
