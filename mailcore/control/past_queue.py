"""Answers questions about the queue as it was at a moment, from events.

The result for a moment is kept for a while, so that further pages cost no second reading. Events of the last minutes may
not be exported yet: then the exporter is asked to, and if it cannot, the answer is of the last moment that events tell of.

Laws: one moment is read at a time, so that the memory is that of one; the others wait. The manager is not asked.

Keeps law: past-balances (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET

from mailcore.config.settings import Settings
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.control.operations import Answers
from mailcore.control.protocol.past import (
    NAMES_MAX,
    AsOf,
    ListAtArguments,
    ListAtPart,
    OldestThen,
    SizeAtArguments,
    SizeAtPart,
)
from mailcore.control.protocol.table import ArgumentError
from mailcore.control.session import Session
from mailcore.control.stepping import SAID_S, going
from mailcore.control.view import View
from mailcore.counted import counted
from mailcore.faults import Code, FaultError
from mailcore.lookup.answers import PastItem
from mailcore.lookup.archive import Archive, QueueThen, Then, Trouble
from mailcore.lookup.filter import Filter, Matcher
from mailcore.lookup.pattern import text_matcher
from mailcore.lookup.tracing import Steps, Walk
from mailcore.mail_state import MailState, in_order, main_state
from mailcore.queue.lanes import DELETED
from mailcore.queue.sizes import Amount

__all__ = ["PastQueueAnswers"]

EXPORTER_SOCKET = "exporter.sock"  # as events.exporter, which control does not import
EXPORT_S = 90.0  # for the exporter to write what is not exported yet
KEPT_S = 300.0  # a moment, after the last question about it
KEPT_MAX = 2  # moments
PAGE_S = 5.0  # of one page whose filter matches little; it continues at its cursor
A = TypeVar("A", bound=AsOf)


class NotKnown(FaultError):
    """A moment of which events tell nothing."""

    default = Code.NOT_FOUND


class _Known(NamedTuple):
    then: QueueThen
    asked: float
    trouble: Trouble
    note: str  # why it is of another moment


class PastQueueAnswers:
    """``answers``: by operation, for ``Operations``."""

    def __init__(self, view: View, settings: Settings) -> None:
        self._view = view
        self._exporter = settings.run_directory / EXPORTER_SOCKET if settings.export.enabled else None
        self._undo_s = settings.queue.undo_time_s
        self._one_at_a_time = asyncio.Lock()
        self._kept: OrderedDict[float, _Known] = OrderedDict()
        self._exported = 0.0  # wall clock: everything before it is exported
        self.answers: dict[str, Answers] = {"size_at": self._size_at, "list_at": self._list_at}

    async def _size_at(self, session: Session, arguments: SizeAtArguments) -> AsyncGenerator[Any, None]:
        answer = SizeAtPart(done=True)
        async with self._locked() as parts:
            async for _ in parts:
                yield SizeAtPart(done=False)
            known = None
            async for known in self._known(arguments.time):
                if known is None:
                    yield SizeAtPart(done=False)
            assert known is not None
            async for _ in going(self._view, Walk(_count(known, answer))):
                yield SizeAtPart(done=False)
        yield _as_of(answer, known)

    async def _list_at(self, session: Session, arguments: ListAtArguments) -> AsyncGenerator[Any, None]:
        answer = ListAtPart(done=True)
        async with self._locked() as parts:
            async for _ in parts:
                yield ListAtPart(done=False)
            known = None
            async for known in self._known(arguments.time):
                if known is None:
                    yield ListAtPart(done=False)
            assert known is not None
            walk = Walk(self._page(known, arguments, answer))
            async for _ in going(self._view, walk):
                yield ListAtPart(done=False, examined=answer.examined)
        yield _as_of(answer, known)

    # -- the moment

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncGenerator[AsyncGenerator[None, None], None]:
        """Waits for its turn; the generator that it gives has to be used up first, and stops every second."""

        mine = False

        async def waiting() -> AsyncGenerator[None, None]:
            nonlocal mine
            while True:
                try:
                    async with asyncio.timeout(SAID_S):
                        await self._one_at_a_time.acquire()
                    mine = True
                    return
                except TimeoutError:
                    yield

        parts = waiting()
        try:
            yield parts
        finally:
            await parts.aclose()
            if mine:
                self._one_at_a_time.release()

    async def _known(self, asked: float) -> AsyncGenerator[_Known | None, None]:
        """Yields None while it reads, and then what is known of the moment. Raises ArgumentError, NotKnown."""
        archive, now = self._view.archive, self._view.browser.clock()
        if asked > now:
            raise ArgumentError("time: it is in the future; allowed: a moment in the past", argument="time")
        if archive is None:
            raise NotKnown("no events are kept here")
        known = self._kept.get(asked)
        if known is None:
            at, note = asked, ""
            if asked > max(self._exported, await self._view.in_thread(archive.counted_until)):
                exporting = asyncio.ensure_future(self._export())
                while not (await asyncio.wait({exporting}, timeout=SAID_S))[0]:
                    yield None
                if why := exporting.result():
                    at = await self._view.in_thread(archive.counted_until)
                    note = f"events after {_when(at)} are not exported yet ({why}); this is the queue as it was then"
                    if not at:
                        raise NotKnown(f"no events are exported yet: {why}")
            trouble = Trouble()
            walk: Walk[QueueThen] = Walk(_read(archive, at, self._undo_s, trouble))
            async for _ in going(self._view, walk):
                yield None
            assert walk.result is not None
            known = _Known(walk.result, asked, trouble, note)
            if not note:
                self._kept[asked] = known
                while len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(asked)
        asyncio.get_running_loop().call_later(KEPT_S, self._drop, asked, known)
        yield known

    def _drop(self, asked: float, known: _Known) -> None:
        """Forgets a moment, unless it was asked for again: then a later call does."""
        if self._kept.get(asked) is known:
            del self._kept[asked]

    async def _export(self) -> str:
        """Has everything up to now exported; returns "" or why that failed."""
        if self._exporter is None:
            return "the export is off"
        asked = time.time()
        try:
            async with AsyncControlClient(self._exporter, who="control", timeout_s=EXPORT_S) as exporter:
                await exporter.call("export")
        except ControlError as error:
            return str(error)
        self._exported = asked
        return ""

    # -- a page

    def _page(self, known: _Known, arguments: ListAtArguments, answer: ListAtPart) -> Steps[None]:
        then, trouble, moment = known.then, known.trouble, known.then.at
        monotonic = self._view.browser.monotonic
        until = monotonic() + PAGE_S
        filter_ = arguments.filter
        matcher = Matcher(filter_, moment, self._view.browser.route_of)
        in_lane = _lane_test(filter_)
        for chunk in then.walk(arguments.cursor, trouble):
            yield
            if chunk is None:
                continue
            wanted = [each for each in chunk if in_lane(each)]
            left = arguments.limit - len(answer.items)
            for first in range(0, len(wanted), max(left, 1)):
                some = wanted[first : first + max(left, 1)]
                envelopes = yield from then.envelopes(some, trouble, all_recipients=matcher.asks_recipients)
                for each in some:
                    item = _item(each, envelopes, matcher, moment)
                    if item is not None:
                        answer.items.append(item)
                    answer.cursor = each.key
                    if len(answer.items) >= arguments.limit:
                        return
            answer.examined += len(chunk)
            answer.cursor = chunk[-1].key
            if monotonic() >= until:
                return
        answer.cursor = None


def _read(archive: Archive, at: float, undo_s: float, trouble: Trouble) -> Steps[QueueThen]:
    """Reads the queue of a moment. Raises NotKnown if events begin later."""
    then = yield from archive.queue_at(at, undo_s, trouble)
    if then.balance.counted_at is None:
        since = archive.since(trouble)
        if since is None:
            raise NotKnown("no events are kept here")
        if at < since:
            raise NotKnown(f"nothing is known of {_when(at)}: events begin at {_when(since)}")
    return then


def _as_of(answer: A, known: _Known) -> A:
    balance, trouble = known.then.balance, known.trouble
    answer.time = known.then.at
    answer.counted_at = balance.counted_at
    answer.complete = balance.agrees and not trouble.count and not balance.cut_short
    answer.missing = None if balance.expected is None else balance.expected - balance.found
    notes = [known.note, balance.cut_short, str(trouble)]
    if balance.expected is None:
        notes.append("the queue was not counted before this moment, so what is missing is not known")
    elif not balance.agrees and not balance.cut_short:
        notes.append(_difference(balance.expected - balance.found))
    answer.note = "; ".join(each for each in notes if each)
    return answer


def _difference(missing: int) -> str:
    if missing > 0:
        return f"{counted(missing, 'recipient')} of the queue not found: events of their arrival are missing"
    if missing < 0:
        return f"{counted(-missing, 'recipient')} too many: events of their end are missing"
    return "some messages are missing and others are too many: events are missing"


def _lane_test(filter_: Filter) -> Any:
    """Returns the test of the lane; without a condition on it, deleted messages do not match."""
    if filter_.lane is UNSET:
        return lambda each: each.message.lane != DELETED
    matches = text_matcher(filter_.lane)
    return lambda each: matches(each.message.lane)


def _item(each: Then, envelopes: dict[str, Any], matcher: Matcher, moment: float) -> PastItem | None:
    """Returns the message as the list shows it; None if it does not match, or its arrival cannot be read."""
    envelope = envelopes.get(each.queue_id)
    if envelope is None or not matcher.of_envelope(envelope):
        return None
    matching = ""
    if matcher.asks_recipients:
        first = next((one for one in envelope.recipients if matcher.of_recipient(one, "")), None)
        if first is None:
            return None
        matching = first.address
    return each.message.item(envelope, list(envelope.recipients), moment, matching)


def _count(known: _Known, answer: SizeAtPart) -> Steps[None]:
    """Counts the queue into the answer."""
    then, moment = known.then, known.then.at
    lanes: dict[str, list[int]] = {}
    destinations: dict[str, int] = {}
    oldest: Then | None = None
    for chunk in then.walk("", known.trouble):
        yield
        for each in chunk or ():
            states = each.message.states(moment)
            for state, count in states.items():
                answer.states[state] = answer.states.get(state, 0) + count
            deleted = states.pop(MailState.DELETED, 0)
            answer.deleted += deleted
            left = each.message.left - deleted
            if not left:
                continue
            oldest = oldest or each
            main = main_state(states)
            answer.by_state[main] = answer.by_state.get(main, 0) + 1
            answer.messages += 1
            answer.recipients += left
            there = lanes.setdefault(each.message.lane, [0, 0])
            there[0] += 1
            there[1] += left
            for name, count in each.message.destinations().items():
                destinations[name] = destinations.get(name, 0) + count
    answer.untried = destinations.pop("", 0)
    ranked = sorted(destinations.items(), key=lambda pair: (-pair[1], pair[0]))
    answer.destinations = dict(ranked[:NAMES_MAX])
    answer.others = sum(count for _, count in ranked[NAMES_MAX:])
    answer.lanes = {lane: Amount(messages=there[0], recipients=there[1]) for lane, there in sorted(lanes.items())}
    answer.states = in_order(answer.states)
    answer.by_state = in_order(answer.by_state)
    if oldest is not None:
        envelopes = yield from then.envelopes([oldest], known.trouble)
        envelope = envelopes.get(oldest.queue_id)
        answer.oldest = OldestThen(
            queue_id=oldest.queue_id,
            arrived_at=oldest.arrived_at,
            sender="" if envelope is None else envelope.sender,
            state=main_state(oldest.message.states(moment)),
        )


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")
