"""Lists over several shards: pages of the queue, of a search, of the past, and the feed of events.

A page of the queue has the order that one queue has: lane by lane. Within a lane of one name, each shard's messages keep the
order of their lane, and of the next ones of all shards the earliest arrival comes first. It never shows what lies behind a
message of a shard that is not known yet.

A cursor is ``shards:`` and JSON: for each shard its own cursor, null at its end, false if it did not answer. Such a shard is
left out of the rest of the list, and each page says so.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Mapping
from typing import Any

from mailcore.config.known_shards import UNKNOWN, KnownShard
from mailcore.control.control_errors import ControlError, Refused
from mailcore.control.several.steps import Answers, Question, Steps, emitted, first_of
from mailcore.control.shard_cursor import PREFIX, Turn, key_of, parts_in, read, turn_in, written, written_parts
from mailcore.faults import Code
from mailcore.lookup.browse import lane_order
from mailcore.lookup.feed import NOW, OLDEST

__all__ = ["events", "list_at", "list_queue", "search"]

WAIT_S = 0.5  # for an event of one shard, before the next is asked
_LEFT_OUT = False  # in place of a cursor
_Cursors = dict[int, Any]


def _cursor(cursors: _Cursors) -> str | None:
    """Returns the cursor of a page behind which these begin; None if all are at their end, or left out."""
    if all(each is None or each is _LEFT_OUT for each in cursors.values()):
        return None
    return written(cursors)


def _cursors(text: str, numbers: list[int]) -> _Cursors:
    """Returns the cursor of each shard. One of a time when the queue was alone is that of the first. Raises Refused."""
    if not text.startswith(PREFIX):
        return {number: text if number == numbers[0] else "" for number in numbers}
    given = _read(text)
    return {number: given.get(number, "") for number in numbers}


def _read(text: str) -> _Cursors:
    """Raises Refused."""
    try:
        return read(text)
    except ValueError:
        message = f"{text[:50]!r} is not a cursor; allowed: the cursor that a page returned"
        raise Refused(message, code=Code.INVALID, argument="cursor") from None


def list_queue(question: Question) -> Steps:
    """Gives one page of the queues of all shards."""
    arguments = question.arguments
    limit = arguments.get("limit", 100)
    cursors = _cursors(arguments.get("cursor", ""), question.numbers)
    answers = Answers(nodes=question.nodes)
    left_out = [number for number, cursor in cursors.items() if cursor is _LEFT_OUT]
    for number, cursor in cursors.items():
        if cursor is None or cursor is _LEFT_OUT:
            continue
        try:
            answers.by_shard[number] = yield from question.ask(number, {**arguments, "cursor": cursor})
        except ControlError as error:
            answers.errors[number] = error
            cursors[number] = _LEFT_OUT
    if not answers.by_shard and answers.errors:
        raise first_of(answers.errors)
    without_lane = [number for number, error in answers.errors.items() if error.argument == "filter.lane"]
    for number in without_lane:  # another shard has it
        del answers.errors[number]
        cursors[number] = None
    items, taken = _merged(answers.by_shard, limit)
    for number, page in answers.by_shard.items():
        rest = page["items"][taken[number] :]
        cursors[number] = f"{rest[0]['lane']}:{rest[0]['offset']}" if rest else page["cursor"]
    pages = list(answers.by_shard.values())
    unanswered = answers.unknown("its mail is not in this list")
    unanswered += [
        f"{question.words_of(number)} did not answer, and its mail is not in this list" for number in left_out
    ]
    notes = [answers.joined("note"), *unanswered]
    merged = {
        "items": items,
        "cursor": _cursor(cursors),
        "examined": sum(page["examined"] for page in pages),
        "damage": [
            f"{question.words_of(n)}: {each}" for n, page in answers.by_shard.items() for each in page.get("damage", ())
        ],
        "manager_away": bool(answers.errors or left_out) or any(page["manager_away"] for page in pages),
        "note": "; ".join(each for each in notes if each),
        "unanswered": "; ".join(unanswered),
    }
    yield emitted(merged if merged["damage"] else {key: each for key, each in merged.items() if key != "damage"})


def _merged(pages: dict[int, Any], limit: int) -> tuple[list[Any], dict[int, int]]:
    """Returns the first items of all pages in order, and how many of each page they are."""
    taken = dict.fromkeys(pages, 0)
    heads: list[tuple[Any, ...]] = []
    items: list[Any] = []

    def look(number: int) -> bool:
        """Puts the next item of a page among the heads; returns False if it is not known whether there is one."""
        page = pages[number]
        if taken[number] < len(page["items"]):
            item = page["items"][taken[number]]
            heapq.heappush(heads, (lane_order(item["lane"]), item["arrived_at"], number, item["queue_id"], item))
            return True
        return page["cursor"] is None

    is_known = all(look(number) for number in pages)
    while is_known and heads and len(items) < limit:
        _, _, number, _, item = heapq.heappop(heads)
        items.append(item)
        taken[number] += 1
        is_known = look(number)
    return items, taken


def list_at(question: Question) -> Steps:
    """Gives one page of the queues as they were: all shards list by arrival, so that one cursor serves all."""
    arguments = question.arguments
    limit = arguments.get("limit", 100)
    answers: Answers = yield from question.each()
    rows: list[tuple[float, str, int, Any]] = []
    ends = []  # the last key that a page with a cursor has reached
    for number, page in answers.by_shard.items():
        rows += [(item["arrived_at"], item["queue_id"], number, item) for item in page["items"]]
        if page["cursor"] is not None:
            ends.append(_key_of(page["cursor"]))
    end = min(ends, default=None)
    rows.sort(key=lambda row: row[:2])
    known = [row for row in rows if end is None or row[:2] <= end]
    shown = known[:limit]
    if len(shown) < len(known):
        cursor = _key_text(shown[-1][:2])
    elif end is not None:
        cursor = _key_text(end)
    else:
        cursor = None
    merged = as_of(answers, "its mail is not in this list") | {
        "items": [row[3] for row in shown],
        "cursor": cursor,
        "examined": sum(page["examined"] for page in answers.by_shard.values()),
    }
    yield emitted(merged)


def _key_of(cursor: str) -> tuple[float, str]:
    arrived, _, queue_id = cursor.partition(":")
    return float(arrived), queue_id


def _key_text(key: tuple[float, str]) -> str:
    return f"{key[0]!r}:{key[1]}"


def as_of(answers: Answers, what: str) -> dict[str, Any]:
    """Returns the fields of ``AsOf`` of all answers: the moment is the earliest that all know."""
    parts = list(answers.by_shard.values())
    missing = [part["missing"] for part in parts]
    counted = [part["counted_at"] for part in parts]
    notes = [answers.joined("note"), *answers.unknown(what)]
    return {
        "done": True,
        "time": min(part["time"] for part in parts),
        "complete": not answers.errors and all(part["complete"] for part in parts),
        "counted_at": None if None in counted else min(counted),
        "missing": None if None in missing or answers.errors else sum(missing),
        "note": "; ".join(each for each in notes if each),
    }


def search(question: Question) -> Steps:
    """Gives a page of hits: of one shard after the other."""
    arguments = question.arguments
    limit = arguments.get("limit", 50)
    numbers = question.numbers
    if isinstance(arguments.get("queue_id"), str):
        with contextlib.suppress(Refused):  # its id may have no number, or an older one
            numbers = [question.shard_of(arguments["queue_id"])]
    at, own = _place(arguments.get("cursor", ""), numbers[0])
    answers, items = Answers(nodes=question.nodes), list[Any]()
    cursor: str | None = None
    for number in [each for each in numbers if each >= at]:
        if len(items) >= limit:
            cursor = _cursor({number: ""})
            break
        try:
            asked = {**arguments, "cursor": own, "limit": limit - len(items)}
            parts = yield from question.parts(number, asked)
        except ControlError as error:
            answers.errors[number] = error
            continue
        finally:
            own = ""
        answers.by_shard[number] = parts[-1]
        items += [item for part in parts for item in part["items"]]
        if parts[-1]["cursor"] is not None:
            cursor = _cursor({number: parts[-1]["cursor"]})
            break
    if answers.errors and not answers.by_shard:
        raise first_of(answers.errors)
    last = list(answers.by_shard.values())
    unanswered = answers.unknown("its mail is not searched")
    notes = [answers.joined("note"), *unanswered]
    yield emitted(
        {
            "items": items,
            "cursor": cursor,
            "examined": sum(part["examined"] for part in last),
            "done": True,
            "manager_away": bool(answers.errors) or any(part.get("manager_away", False) for part in last),
            "unread_files": sum(part.get("unread_files", 0) for part in last),
            "note": "; ".join(each for each in notes if each),
            "unanswered": "; ".join(unanswered),
        }
    )


def _place(text: str, first: int) -> tuple[int, str]:
    """Returns the shard at which a search continues, and the cursor there. Raises Refused."""
    if not text.startswith(PREFIX):
        return first, text
    ((number, cursor),) = list(_read(text).items())[:1] or [(first, "")]
    return number, str(cursor)


def events(question: Question) -> Steps:
    """Gives some events of one shard: of the first in turn that has some. Those of a message are in one, and stay in order.

    The answer's ``start`` is of that shard alone, as others may have events by then: so the same limit gives the same again.
    The events of a shard that is away come later.
    """
    arguments = question.arguments
    wait_s, waited = arguments.get("wait_s", 0.0), 0.0
    places = _Places(question, arguments.get("after", OLDEST))
    order, alone = places.order()
    if places.is_now:  # for all of them, before one is waited for
        for number in order:
            try:
                batch = yield from question.ask(number, {**arguments, "after": NOW, "wait_s": 0.0})
            except ControlError as error:
                places.refuse_now(number, error)
                raise
            places.at[number] = batch["start"]
    while True:
        away: dict[int, ControlError] = {}
        more = False
        for number in order:
            wait = min(WAIT_S, wait_s - waited) if wait_s > waited else 0.0
            try:
                batch = yield from question.ask(number, {**arguments, "after": places.at[number], "wait_s": wait})
            except ControlError as error:
                if alone or not places.may_come_later(number, error):
                    raise
                away[number] = error
                continue
            waited += wait if not batch["events"] else 0.0
            more = more or batch["more"]
            start = places.text(Turn(places.keys[number], alone=True), {number: batch["start"]})
            places.at[number] = batch["cursor"]
            if batch["events"] or batch["lost"]:
                again = alone and batch["more"] and len(batch["events"]) < arguments.get("limit", 100)
                following = number if again else places.behind(number)
                yield emitted(
                    {
                        "events": batch["events"],
                        "start": start,
                        "cursor": places.text(Turn(places.keys[following], alone=again)),
                        "more": more or len(places.at) > 1,  # the others were not asked behind this
                        "lost": [*places.closed, *(f"{question.words_of(number)}: {words}" for words in batch["lost"])],
                    }
                )
                return
        if len(away) >= len(order):
            raise first_of(away)
        if waited >= wait_s:
            here = places.text(Turn(places.keys[order[0]], alone=alone and more))
            unanswered = "; ".join(Answers(errors=away, nodes=question.nodes).unknown("its events come later"))
            yield emitted(
                {
                    "events": [],
                    "start": here,
                    "cursor": here,
                    "more": more,
                    "lost": places.closed,
                    "unanswered": unanswered,
                }
            )
            return


class _Places:
    """How far the events of each shard were read, by its number here. Raises Refused for a text that is not a cursor."""

    def __init__(self, question: Question, after: str) -> None:
        self._question = question
        shards = [shard for shard in question.shards if shard.number != UNKNOWN]
        if not shards or (after == NOW and len(shards) < len(question.shards)):
            why = "the shards of other nodes are not known yet, and what is now is not known there"
            raise Refused(f"{why}; ask again, or with --here", code=Code.UNAVAILABLE)
        self.keys = {shard.number: key_of(shard) for shard in sorted(shards)}
        self.closed: list[str] = []  # words
        # A shard that is not known now keeps its place: its node may start, or another take it over.
        self._rest: dict[str, str] = {}
        self.is_now = after == NOW
        if after.startswith(PREFIX):
            self._turn = _read_turn(after)
            self._rest = parts_in(after)
            # A cursor of a time when this node told its own events alone does not ask for the past of the others.
            is_of_all = any(key.startswith("n") for key in self._rest)
            self.at = {shard.number: self._part(shard, is_of_all=is_of_all) for shard in sorted(shards)}
            if len(shards) == len(question.shards) and any(shard.node for shard in shards):
                self._forget_closed()
        else:  # of a queue that was alone: it is that of this node
            self._turn = None
            own = next((shard.number for shard in sorted(shards) if shard.is_here), shards[0].number)
            others = {shard.number: NOW if shard.in_ids >= 0 else OLDEST for shard in shards}
            to_all = after in (NOW, OLDEST)
            self.at = {number: after if to_all or number == own else others[number] for number in self.keys}

    def _part(self, shard: KnownShard, *, is_of_all: bool) -> str:
        """Takes the cursor of a shard out of the rest. One that a cursor of all does not know began after it."""
        found = self._rest.pop(key_of(shard), "")
        if not found and shard.is_here:  # of a time before it had a number of the database
            found = self._rest.pop(str(shard.number), "")
        return found or (OLDEST if is_of_all or shard.in_ids < 0 else NOW)

    def _forget_closed(self) -> None:
        """Forgets the shards that no node has any more, as all that there are are known."""
        for key in [each for each in self._rest if each.startswith("n")]:
            del self._rest[key]
            self.closed.append(f"shard {key[1:]} is closed: events of it that were not read yet are not given any more")

    def order(self) -> tuple[list[int], bool]:
        """Returns the shards in turn, and whether only the first is to be asked."""
        numbers = list(self.at)
        turn = self._turn
        named = [number for number in numbers if turn and turn.key in (self.keys[number], str(number))]
        if turn is None or not named:
            if turn is not None and turn.alone and turn.key in self._rest:
                raise Refused(f"shard {turn.key.lstrip('n')} is not known now", code=Code.UNAVAILABLE)
            if turn is not None and turn.alone and self.closed:
                raise Refused(f"{self.closed[0]}; the same events cannot be given again", code=Code.CONFLICT)
            return numbers, False
        at = numbers.index(named[0])
        return ([named[0]], True) if turn.alone else (numbers[at:] + numbers[:at], False)

    def behind(self, number: int) -> int:
        """Returns the shard that follows in turn."""
        numbers = list(self.at)
        return numbers[(numbers.index(number) + 1) % len(numbers)]

    def refuse_now(self, number: int, error: ControlError) -> None:
        """Raises Refused if a shard at another node does not say where now is."""
        if number in self._question.nodes:
            words = f"{self._question.words_of(number)} does not answer, and what is now is not known there"
            raise Refused(f"{words}; ask again, or with --here: {error}", code=Code.UNAVAILABLE) from error

    def may_come_later(self, number: int, error: ControlError) -> bool:
        """Returns whether the others are read on after an error of a shard."""
        # Another node may have a release that does not tell its events to others.
        return error.code is Code.UNAVAILABLE or (number in self._question.nodes and error.code is Code.FORBIDDEN)

    def text(self, turn: Turn, other: Mapping[int, str] | None = None) -> str:
        """Returns the cursor; ``other``: places instead of those that were read."""
        parts = {self.keys[number]: each for number, each in {**self.at, **(other or {})}.items()}
        return written_parts(self._rest | parts, turn)


def _read_turn(text: str) -> Turn | None:
    """Raises Refused."""
    try:
        return turn_in(text)
    except ValueError:
        _read(text)
        raise
