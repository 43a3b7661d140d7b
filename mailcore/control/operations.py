"""Answers every operation: from the lanes where these suffice, otherwise from the manager.

Laws: browsing asks the manager two cheap questions a page (where to read, which messages are active); without the manager it
works, with a note. A change goes to the manager, and its answer is passed on; control only finds positions for queue ids.
Files are read in a few threads only, in steps of a fifth of a second, so that no client waits long for another.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from mailcore.change_rules import MessageState, refusal
from mailcore.control.changes import Changes
from mailcore.control.injecting import Injecting
from mailcore.control.manager_link import ManagerAway, OutcomeUnknown
from mailcore.control.protocol.changes import CHANGES, AddRecipientsArguments, ChangeArguments
from mailcore.control.protocol.messages import (
    Details,
    ListArguments,
    ListPage,
    OneMessage,
    ShowArguments,
    ShownRecipient,
    ShowPart,
)
from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation
from mailcore.control.protocol.state import Child, Ping, Processes
from mailcore.control.session import Session
from mailcore.control.view import Look, View
from mailcore.control.waiting import NOT_READ, why_at_rest, why_not_in_pass
from mailcore.envelope import DataPlace, Envelope, Origin, Recipient
from mailcore.lookup.browse import REASON_CHARACTERS, Budget, Item
from mailcore.lookup.filter import Filter, Matcher
from mailcore.lookup.left import recipients_left
from mailcore.lookup.selection import states_in
from mailcore.mail_state import MailState, main_state
from mailcore.manager_answers import Progress, Reason, Reasons
from mailcore.queue.aside import state_with_message, with_its_state

__all__ = ["Answers", "Operations"]

T = TypeVar("T")
LOOKS = 3  # at one message; its passes are seconds apart at least
Answers = Callable[[Session, Any], AsyncGenerator[Any, None]]


class Operations:
    """Finds the answer to each operation."""

    def __init__(self, view: View, injecting: Injecting, processes_path: str, *families: Mapping[str, Answers]) -> None:
        """``families``: answers of further rooms, by operation."""
        self._view = view
        self._changes = Changes(view)
        self._processes_path = processes_path
        self._children_path = os.path.join(os.path.dirname(processes_path), "children.json")
        self._answers: dict[str, Answers] = {
            "ping": self._ping,
            "processes": self._processes,
            "list": self._list,
            "show": self._show,
            "explain": self._explain,
            "change_matching": self._changes.change_matching,
            "inject_begin": injecting.begin,
            "inject_data": injecting.data,
            "inject_end": injecting.end,
        }
        for family in families:
            assert not family.keys() & self._answers.keys()
            self._answers.update(family)

    def answer(self, operation: Operation, arguments: Arguments, session: Session) -> AsyncGenerator[Any, None]:
        """Yields the parts of the answer, in order; a caller that stops reading ends the operation after its current step."""
        if operation.answerer is Answerer.CONTROL:
            return self._answers[operation.name](session, arguments)
        if isinstance(arguments, ChangeArguments):
            return self._changes.change(operation.name, arguments, session)
        if isinstance(arguments, AddRecipientsArguments):
            return self._changes.add_recipients(arguments, session)
        return self._ask(operation, arguments, session)

    # -- answered by the manager

    async def _ask(self, operation: Operation, arguments: Arguments, session: Session) -> AsyncGenerator[Any, None]:
        given = msgspec.structs.asdict(arguments)
        ask = self._view.link.order if operation.access is Access.CHANGE else self._view.link.ask
        yield await ask(operation.name, operation.result, given, session.who, session.why)

    # -- answered here

    async def _ping(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield Ping(pid=os.getpid(), manager=not self._view.link.absence)

    async def _processes(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield Processes(
            processes=await self._view.in_thread(_read_json, self._processes_path, dict[str, int]),
            children=await self._view.in_thread(_read_json, self._children_path, dict[str, Child]),
            manager=not self._view.link.absence,
        )

    async def _list(self, session: Session, arguments: ListArguments) -> AsyncGenerator[Any, None]:
        stretches, note = await self._view.stretches()
        self._view.check_lane(arguments.filter, stretches)
        budget = Budget(items=arguments.limit)
        page = await self._view.in_thread(
            self._view.browser.page, stretches, arguments.filter, arguments.cursor, budget
        )
        yield ListPage(
            items=await self._as_they_are(page.items, arguments.filter),
            cursor=page.cursor,
            examined=page.examined,
            damage=page.damage,
            manager_away=bool(note),
            note=note,
        )

    async def _show(self, session: Session, arguments: ShowArguments) -> AsyncGenerator[Any, None]:
        queue_id = arguments.queue_id
        look, reasons = await self._explained(queue_id)
        found, working, note = look.found, look.working, look.note
        item = self._view.browser.item(found, look.stretch)
        _overlay(item, working)
        yield ShowPart(
            message=item,
            envelope=_details(found.envelope),
            working=working,
            explain=reasons.reasons,
            changes=_changes_that_fit(item, found.envelope),
            manager_away=bool(note),
            note=note,
        )
        if arguments.recipients:
            now = self._view.browser.clock()
            batches = self._view.browser.recipients(found)
            while (batch := await self._view.in_thread(next, batches, None)) is not None:
                yield ShowPart(recipients=[_recipient(each, look, now) for each in batch])

    async def _explain(self, session: Session, arguments: OneMessage) -> AsyncGenerator[Any, None]:
        look, reasons = await self._explained(arguments.queue_id)
        if not reasons.state:
            item = self._view.browser.item(look.found, look.stretch)
            _overlay(item, look.working)
            reasons = msgspec.structs.replace(reasons, state=item.state, states=item.states)
        yield reasons

    # -- inside

    async def _why_active(self, queue_id: str, lane: str = "") -> Reasons:
        """Returns the manager's explanation; without reasons if the message is not active, or the manager is away."""
        try:
            return await self._view.link.ask("explain", Reasons, {"queue_id": queue_id, "lane": lane})
        except (ManagerAway, OutcomeUnknown):
            return Reasons(reasons=[])

    async def _explained(self, queue_id: str) -> tuple[Look, Reasons]:
        """Returns the message, and why each group of its recipients waits. Looks again if its pass ends meanwhile."""
        for _ in range(LOOKS):
            look = await self._view.message(queue_id)
            if look.working is None:
                break
            explanation = await self._why_active(queue_id)
            if explanation.reasons:
                explanation.reasons += why_not_in_pass(look.found.envelope, look.working, explanation.reasons)
                return look, explanation
        return look, Reasons(reasons=await self._why_at_rest(look))

    async def _why_at_rest(self, look: Look) -> list[Reason]:
        """Returns the reasons of a message that is not active; of one that is due, the manager knows why it is not read."""
        found, stretch, now = look.found, look.stretch, self._view.browser.clock()
        reasons = why_at_rest(found, stretch, now, manager_away=bool(look.note))
        if look.note or not any(each.state in NOT_READ for each in reasons):
            return reasons
        not_read = (await self._why_active(found.envelope.queue_id, found.lane)).not_read
        return why_at_rest(found, stretch, now, manager_away=False, not_read=not_read)

    async def _as_they_are(self, items: list[Item], filter_: Filter) -> list[Item]:
        """Adds what the manager knows of active messages; leaves out those of which nothing that is left matches."""
        working = await self._view.working([item.queue_id for item in items])
        browser = self._view.browser
        matcher = Matcher(filter_, browser.clock(), browser.route_of)
        there = []
        for item in items:
            known = working.get(item.queue_id)
            _overlay(item, known)
            if known is not None:  # the envelope still has those done in this pass
                item.recipient_count = known.remaining
                if known.done:
                    found = await self._view.in_thread(browser.read, known.lane, known.offset)
                    if found is not None and found.envelope.queue_id == item.queue_id:
                        left = await self._view.in_thread(
                            recipients_left, browser, found, matcher, frozenset(known.done)
                        )
                        if left is None:
                            continue
                        item.recipients = left
            there.append(item)
        return there


def _read_json(path: str, type_: type[T]) -> T:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(1 << 20), type=type_)
    except (OSError, msgspec.DecodeError):
        return type_()  # there is no supervisor: a process started by hand, or a test


def _changes_that_fit(item: Item, envelope: Envelope) -> list[str]:
    """Returns the changes that fit at least one recipient."""
    states = states_in(envelope, item.lane, MessageState.ACTIVE if item.active else None)
    return [change for change in CHANGES if any(not refusal(change, state) for state in states)]


def _overlay(item: Item, working: Progress | None) -> None:
    """Puts the manager's newer state and reply into an item read from a lane."""
    if working is None:
        return
    item.active = working.active
    if not working.active:
        item.due_at = 0.0
    item.states = working.states
    item.destinations = working.destinations or item.destinations
    item.state = main_state(working.states)
    if working.replies:
        item.reason = next(reversed(working.replies.values()))[:REASON_CHARACTERS]


def _recipient(recipient: Recipient, look: Look, now: float) -> ShownRecipient:
    found, working = look.found, look.working
    aside = with_its_state(recipient, found.envelope, found.lane, now).aside
    done = working is not None and recipient.number in working.done
    reply = recipient.reply if working is None else working.replies.get(recipient.number, recipient.reply)
    if done:
        reply = ""  # the one that is known is of an earlier try
    if working is not None and (recipient.number in working.recipient_states or recipient.number in working.replies):
        aside = None  # its time has come: this pass has it
    if aside is not None:
        state = aside.kind.name.lower()
    elif look.between:
        state = MailState.ACTIVE  # as the message; its envelope is from before the pass
    elif working is None:
        state = state_with_message(found.envelope, found.lane, now)
    elif recipient.number in working.replies:
        state = MailState.DEFERRED
    else:  # one that is not in memory, or beyond the bound of the answer
        state = working.recipient_states.get(recipient.number, MailState.QUEUED)
    return ShownRecipient(
        number=recipient.number,
        address=recipient.address,
        destination=recipient.route or recipient.destination,
        reply=reply[:REASON_CHARACTERS],
        done=done,
        state=state,
        until=0.0 if aside is None else aside.until,
        why="" if aside is None else aside.why,
        since=0.0 if aside is None else aside.at,
    )


def _details(envelope: Envelope) -> Details:
    return Details(
        origin=Origin(envelope.origin).name.lower(),
        client_address=envelope.client_address,
        client_port=envelope.client_port,
        helo=envelope.helo,
        tls=envelope.tls,
        login=envelope.login,
        message_id=envelope.message_id,
        eight_bit=envelope.eight_bit,
        smtputf8=envelope.smtputf8,
        data=DataPlace(envelope.data).name.lower(),
        not_before=envelope.not_before,
        held_because=envelope.held_because,
        authentication=envelope.authentication,
    )
