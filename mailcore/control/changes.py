"""Changes messages: by queue id, by position, or all that match. This module finds the messages; the manager changes them.

Law: the set of messages that a change to all that match may touch is fixed when the change begins, so that no message is
changed twice and no newer message is changed; every message of the set is found, also when it has moved meanwhile.

Keeps law: change-set-is-fixed (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mailcore.control.change_progress import LOOK_S, Flying, Patience, Seen
from mailcore.control.manager_link import ManagerAway, OutcomeUnknown
from mailcore.control.protocol.changes import (
    CHANGES,
    AddRecipientsArguments,
    ChangeArguments,
    ChangeMatchingArguments,
    ChangeResult,
    MatchingProgress,
)
from mailcore.control.protocol.operation import MESSAGES_MAX
from mailcore.control.protocol.table import ArgumentError
from mailcore.control.session import Session
from mailcore.control.view import NotFound, Place, View
from mailcore.counted import counted
from mailcore.faults import Code, Fault
from mailcore.lookup.answers import Selected
from mailcore.lookup.browse import Budget, Item, Stretch
from mailcore.lookup.cutoff import Cutoff, CutoffError
from mailcore.lookup.filter import Filter
from mailcore.lookup.pattern import text_matcher
from mailcore.lookup.selection import Selection, without
from mailcore.manager_answers import Ordered, Overtaken

__all__ = ["Changes"]

_Matching = tuple[list[Item], dict[str, Selected]]  # messages, and the recipients of each that a change selects
DEAD_SHOWN = 20
ERRORS_SHOWN = 100  # of a change to all that match; further errors are only counted
LOOKS_AGAIN = 3  # for a message that has moved to another lane; between two moves it rests for seconds at least
PROGRESS_S = 1.0  # a client hears at least this often how far it is


class Changes:
    """Finds the messages of a change and asks the manager to make it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._budget = Budget(items=MESSAGES_MAX)

    async def change(
        self, name: str, arguments: ChangeArguments, session: Session
    ) -> AsyncGenerator[ChangeResult, None]:
        """Changes chosen messages. Raises ArgumentError, ManagerAway, ManagerRefused, OutcomeUnknown."""
        given = {queue_id: (lane, offset) for queue_id, lane, offset in arguments.messages}
        unplaced = [queue_id for queue_id in dict.fromkeys(arguments.queue_ids) if queue_id not in given]
        if not given and not unplaced:
            raise ArgumentError(f"{name}: queue_ids or messages: at least one is needed", argument="queue_ids")
        if len(given) + len(unplaced) > MESSAGES_MAX:
            raise ArgumentError(
                f"{name}: {counted(len(given) + len(unplaced), 'message')}; allowed: {MESSAGES_MAX} in one request",
                argument="messages" if given else "queue_ids",
            )
        extra = msgspec.structs.asdict(arguments)
        del extra["queue_ids"], extra["messages"], extra["wait_s"]
        places = given | await self._view.places(unplaced)
        flying = Flying()
        result = await self._change_placed(name, places, extra, session, flying)
        await self._await_the_end(flying, result, arguments.wait_s)
        for queue_id in unplaced:
            if queue_id not in places:
                result.errors[queue_id] = Fault(Code.NOT_FOUND, "there is no such message in the queue")
        yield result

    async def _change_placed(
        self,
        name: str,
        places: dict[str, Place],
        extra: dict[str, Any],
        session: Session,
        flying: Flying,
        lane: str | UnsetType = UNSET,
        selected: Mapping[str, Selected] = {},
    ) -> ChangeResult:
        """Sends a change; looks again for messages that moved between search and change, which were not changed yet. Puts
        the recipients who are being delivered now into ``flying``.

        Raises ManagerAway, ManagerRefused, OutcomeUnknown, each before anything else was changed.

        ``lane``: only messages in lanes that match this pattern are looked for again. ``selected``: the recipients of each
        message, whose numbers do not change when it moves; all, if it is not there.
        """
        result, elsewhere = await self._send_change(name, places, extra, session, flying, selected)
        in_lane = None if lane is UNSET else text_matcher(lane)
        for _ in range(LOOKS_AGAIN):
            moved: dict[str, Place] = {}
            try:
                moved = {
                    queue_id: place
                    for queue_id, place in (await self._view.places(elsewhere)).items()
                    if in_lane is None or in_lane(place[0])
                }
                if not moved:
                    break
                more, elsewhere = await self._send_change(name, moved, extra, session, flying, selected)
            except (ManagerAway, OutcomeUnknown) as error:  # the others are changed: that is the answer
                result.errors |= dict.fromkeys(moved or elsewhere, error.fault)
                break
            for queue_id in moved:
                result.errors.pop(queue_id, None)
            _add(result, more)
        return result

    async def _send_change(
        self,
        name: str,
        places: dict[str, Place],
        extra: dict[str, Any],
        session: Session,
        flying: Flying,
        selected: Mapping[str, Selected],
    ) -> tuple[ChangeResult, list[str]]:
        """Returns the result, and the queue ids that are in another lane."""
        if not places:
            return _nothing(), []
        messages = []
        for queue_id, (lane, offset) in places.items():
            some = selected.get(queue_id)
            numbers = [] if some is None or some.ranges is None else [some.ranges]
            messages.append([queue_id, lane, offset, *numbers])
        link = self._view.link
        ordered = await link.order(name, Ordered, {"messages": messages, **extra}, session.who, session.why)
        flying.add(ordered.in_flight)
        in_flight = sum(map(len, ordered.in_flight.values()))
        result = ChangeResult(
            changed=ordered.changed,
            recipients=ordered.recipients,
            in_flight=in_flight,
            too_late=0,
            undecided=in_flight,
            errors=ordered.errors,
            dead=ordered.dead,
        )
        return result, ordered.elsewhere

    async def _await_the_end(self, flying: Flying, answer: ChangeResult | MatchingProgress, wait_s: float) -> None:
        """Waits until the deliveries in progress have ended, at most ``wait_s``; tells the answer how they ended."""
        until = time.monotonic() + wait_s
        while flying.recipients:
            try:
                became = await self._view.link.ask("overtaken", Overtaken, {"recipients": flying.recipients})
            except (ManagerAway, OutcomeUnknown):
                return
            answer.too_late, answer.undecided = became.too_late, became.undecided + flying.unwatched
            if not became.undecided or time.monotonic() > until:
                return
            await asyncio.sleep(LOOK_S)

    async def add_recipients(
        self, arguments: AddRecipientsArguments, session: Session
    ) -> AsyncGenerator[ChangeResult, None]:
        """Adds recipients to one message. Raises NotFound, ManagerAway, ManagerRefused, OutcomeUnknown."""
        place = (arguments.lane, arguments.offset)
        if not arguments.lane:
            found = (await self._view.places([arguments.queue_id])).get(arguments.queue_id)
            if found is None:
                raise NotFound(f"there is no message {arguments.queue_id} in the queue")
            place = found
        extra = {"recipients": arguments.recipients}
        yield await self._change_placed("add_recipients", {arguments.queue_id: place}, extra, session, Flying())

    async def change_matching(
        self, session: Session, arguments: ChangeMatchingArguments
    ) -> AsyncGenerator[MatchingProgress, None]:
        """Changes all that match, or counts them. Yields progress. Raises ManagerAway when it is to change anything."""
        if not arguments.dry_run and self._view.link.absence:
            raise await self._view.link.away("nothing can be changed")
        assert arguments.change in CHANGES
        extra: dict[str, Any] = {}
        if arguments.until is not None:
            extra["until"] = arguments.until
        if arguments.route is not UNSET:
            extra["route"] = arguments.route
        since = None if arguments.cut is UNSET else _cut(arguments.cut)
        stretches, note = await self._view.stretches()
        self._view.check_lane(arguments.filter, stretches)
        progress = MatchingProgress(
            matched=0,
            matched_recipients=0,
            changed=0,
            changed_recipients=0,
            in_flight=0,
            too_late=0,
            undecided=0,
            failed=0,
            failures={},
            errors={},
            dead=[],
            done=False,
            manager_away=bool(note),
            note=note,
        )
        if arguments.dry_run:
            progress.cut = arguments.cut or str(Cutoff.of(stretches, self._view.browser.clock()))
        said = time.monotonic()
        flying, patience = Flying(), Patience(self._view.link)
        async for items, selected in self._matching(arguments, stretches, since):
            places = {item.queue_id: (item.lane, item.offset) for item in items}
            progress.matched += len(places)
            progress.matched_recipients += sum(selected[item.queue_id].recipients for item in items)
            if places and not arguments.dry_run:
                result = _nothing()
                try:
                    await patience.until_back()
                    result = await self._change_placed(
                        arguments.change, places, extra, session, flying, arguments.filter.lane, selected
                    )
                except (ManagerAway, OutcomeUnknown) as error:
                    result.errors = dict.fromkeys(places, error.fault)
                progress.changed += result.changed
                progress.changed_recipients += result.recipients
                progress.in_flight += result.in_flight
                progress.undecided += result.in_flight
                progress.dead = sorted({*progress.dead, *result.dead})[:DEAD_SHOWN]
                progress.failed += len(result.errors)
                for queue_id, fault in result.errors.items():
                    progress.failures[fault.code] = progress.failures.get(fault.code, 0) + 1
                    if len(progress.errors) < ERRORS_SHOWN:
                        progress.errors[queue_id] = fault
            if (places and not arguments.dry_run) or time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                yield msgspec.structs.replace(progress)  # sent after the next part has changed it
        await self._await_the_end(flying, progress, arguments.wait_s)
        yield msgspec.structs.replace(progress, done=True)

    async def _matching(
        self, arguments: ChangeMatchingArguments, stretches: Mapping[str, Stretch], since: Cutoff | None
    ) -> AsyncGenerator[_Matching, None]:
        """Yields the messages that match now, page by page; unless they are only counted, then those that moved during the
        reading and were seen neither in their old lane nor in their new one. No message comes twice."""
        now = self._view.browser.clock()
        selection = Selection(arguments.change, now, scheduled=arguments.scheduled)
        filter_ = _where_it_fits(arguments.filter, arguments.change)
        if since is not None:
            filter_ = _as_of(filter_, since.at, now)
        seen = Seen()
        async for items, selected in self._pages(selection, stretches, filter_, since):
            seen.add(items)
            yield items, selected
        if arguments.dry_run:
            return
        filter_ = _as_of(filter_, now, self._view.browser.clock())
        since = since or Cutoff.of(stretches, now)
        for _ in range(LOOKS_AGAIN):
            later, _ = await self._view.stretches()
            moved = False
            async for items, selected in self._pages(selection, _beyond(stretches, later), filter_, since, seen):
                seen.add(items)
                moved = moved or bool(items)
                yield items, selected
            if not moved:
                break
            stretches = later

    async def _pages(
        self,
        selection: Selection,
        stretches: Mapping[str, Stretch],
        filter_: Filter,
        since: Cutoff | None,
        seen: Seen | None = None,
    ) -> AsyncGenerator[_Matching, None]:
        """Yields pages of messages that match, are not newer than the cut and were not seen. Some pages are empty."""
        browser = self._view.browser
        lanes = selection.lanes(stretches)
        cursor: str | None = ""
        while cursor is not None:
            page = await self._view.in_thread(browser.page, lanes, filter_, cursor, self._budget, selection)
            cursor, items = page.cursor, page.items
            if seen is not None:
                items = await self._view.in_thread(seen.others, items)
            if since is not None and items:
                newer = await self._view.in_thread(since.newer, browser.disk, browser.queue_directory, lanes, items)
                items = [item for item in items if item.queue_id not in newer]
            selected = page.selected | await self._undelivered(items, page.selected)
            yield [item for item in items if selected[item.queue_id].recipients], selected

    async def _undelivered(self, items: list[Item], selected: Mapping[str, Selected]) -> dict[str, Selected]:
        """Returns what remains of the selected recipients of active messages, some of which have their verdict."""
        active = [item.queue_id for item in items if item.active]
        remaining: dict[str, Selected] = {}
        for queue_id, known in (await self._view.working(active)).items():
            count, ranges = selected[queue_id]
            if ranges is not None:
                remaining[queue_id] = without(ranges, known.done)
            else:
                remaining[queue_id] = Selected(min(count, known.remaining))
        return remaining


def _nothing() -> ChangeResult:
    return ChangeResult(changed=0, recipients=0, in_flight=0, too_late=0, undecided=0, errors={}, dead=[])


def _add(result: ChangeResult, more: ChangeResult) -> None:
    result.changed += more.changed
    result.recipients += more.recipients
    result.in_flight += more.in_flight
    result.undecided += more.undecided
    result.errors |= more.errors
    result.dead = sorted({*result.dead, *more.dead})


def _beyond(before: Mapping[str, Stretch], later: Mapping[str, Stretch]) -> dict[str, Stretch]:
    """Returns the parts by which the lanes have grown; leaves out a lane whose end was unknown."""
    grown = {}
    for lane, stretch in later.items():
        start = before[lane].end if lane in before else stretch.start
        if start is not None and stretch.end is not None and stretch.end > start:
            grown[lane] = replace(stretch, start=max(start, stretch.start))
    return grown


def _where_it_fits(filter_: Filter, change: str) -> Filter:
    """Returns the filter, for undelete with the lane of deleted messages, which other filters never show."""
    return msgspec.structs.replace(filter_, lane="*") if change == "undelete" and filter_.lane is UNSET else filter_


def _cut(text: str) -> Cutoff:
    try:
        return Cutoff.parse(text)
    except CutoffError as error:
        raise ArgumentError(f"change_matching: cut: {error}", argument="cut") from None


def _as_of(filter_: Filter, at: float, now: float) -> Filter:
    """Returns the filter with ages measured at the time of the count: no message gets old enough for it afterwards, and none
    young enough when the clock is set back."""
    passed = now - at
    older, younger = filter_.older_than_s, filter_.younger_than_s
    return msgspec.structs.replace(
        filter_,
        older_than_s=UNSET if older is UNSET else older + passed,
        younger_than_s=UNSET if younger is UNSET else younger + passed,
    )
