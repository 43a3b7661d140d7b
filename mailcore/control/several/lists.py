"""Lists over several shards: pages of the queue, of a search, of the past, and the feed of events.

A page of the queue has the order that one queue has: lane by lane, and within a lane of one name the messages of all shards by
their arrival. It never shows what lies behind a message of a shard that is not known yet.

A cursor is ``shards:`` and JSON: for each shard its own cursor, null at its end, false if it did not answer. Such a shard is
left out of the rest of the list, and each page says so.
"""

from __future__ import annotations

import contextlib
import heapq
from typing import Any

from mailcore.control.control_errors import ControlError, Refused
from mailcore.control.several.steps import Answers, Question, Steps, emitted, first_of
from mailcore.control.shard_cursor import PREFIX, Turn, read, turn_in, written
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


def _cursors(text: str, numbers: list[int], beginning: str = "") -> _Cursors:
    """Returns the cursor of each shard. One of a time when the queue was alone is that of the first. Raises Refused."""
    if not text.startswith(PREFIX):
        return {number: text if number == numbers[0] or text in ("", NOW, OLDEST) else beginning for number in numbers}
    given = _read(text)
    return {number: given.get(number, beginning) for number in numbers}


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
    notes = [answers.joined("note"), *answers.unknown("its mail is not in this list")]
    notes += [f"{question.words_of(number)} did not answer, and its mail is not in this list" for number in left_out]
    merged = {
        "items": items,
        "cursor": _cursor(cursors),
        "examined": sum(page["examined"] for page in pages),
        "damage": [
            f"{question.words_of(n)}: {each}" for n, page in answers.by_shard.items() for each in page.get("damage", ())
        ],
        "manager_away": bool(answers.errors or left_out) or any(page["manager_away"] for page in pages),
        "note": "; ".join(each for each in notes if each),
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
    notes = [answers.joined("note"), *answers.unknown("its mail is not searched")]
    yield emitted(
        {
            "items": items,
            "cursor": cursor,
            "examined": sum(part["examined"] for part in last),
            "done": True,
            "manager_away": bool(answers.errors) or any(part.get("manager_away", False) for part in last),
            "unread_files": sum(part.get("unread_files", 0) for part in last),
            "note": "; ".join(each for each in notes if each),
        }
    )


def _place(text: str, first: int) -> tuple[int, str]:
    """Returns the shard at which a search continues, and the cursor there. Raises Refused."""
    if not text.startswith(PREFIX):
        return first, text
    ((number, cursor),) = list(_read(text).items())[:1] or [(first, "")]
    return number, str(cursor)


def events(question: Question) -> Steps:
    """Gives some events of one shard of this node: of the first in turn that has some. Those of a message are in one, and stay
    in order.

    The answer's ``start`` is of that shard alone, as others may have events by then: so the same limit gives the same again.
    """
    arguments = question.arguments
    wait_s, waited = arguments.get("wait_s", 0.0), 0.0
    # A shard that the cursor does not know began after it.
    cursors = _cursors(arguments.get("after", OLDEST), question.here, OLDEST)
    turn = _turn(arguments.get("after", OLDEST), sorted(cursors))
    order = [each for each in sorted(cursors) if each >= turn.shard] + [
        each for each in sorted(cursors) if each < turn.shard
    ]
    while True:
        away: dict[int, ControlError] = {}
        more = False
        for place, number in enumerate(order[:1] if turn.alone else order):
            wait = min(WAIT_S, wait_s - waited) if wait_s > waited else 0.0
            try:
                batch = yield from question.ask(number, {**arguments, "after": cursors[number], "wait_s": wait})
            except ControlError as error:
                if turn.alone or error.code is not Code.UNAVAILABLE or cursors[number] == NOW:
                    raise
                away[number] = error  # its events come later
                continue
            waited += wait if not batch["events"] else 0.0
            more = more or batch["more"]
            start = cursors | {number: batch["start"]}
            cursors[number] = batch["cursor"]
            if batch["events"] or batch["lost"]:
                following = order[(place + 1) % len(order)]
                again = turn.alone and batch["more"] and len(batch["events"]) < arguments.get("limit", 100)
                yield emitted(
                    {
                        "events": batch["events"],
                        "start": written(start, Turn(number, alone=True)),
                        "cursor": written(cursors, turn if again else Turn(following)),
                        "more": more or len(order) > 1,  # the others were not asked behind this
                        "lost": [f"shard {number}: {words}" for words in batch["lost"]],
                    }
                )
                return
        if len(away) >= len(order):
            raise first_of(away)
        if waited >= wait_s:
            turn = turn if turn.alone and more else Turn(order[0])
            here = written(cursors, turn)
            yield emitted({"events": [], "start": here, "cursor": here, "more": more, "lost": []})
            return


def _turn(text: str, numbers: list[int]) -> Turn:
    """Returns whose turn it is: the first shard's, if the cursor does not say, or names one that is gone. Raises Refused."""
    try:
        turn = turn_in(text)
    except ValueError:
        turn = None  # ``_read`` says so
    return turn if turn is not None and turn.shard in numbers else Turn(numbers[0])
