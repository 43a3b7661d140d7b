"""Changes over several shards: a queue id goes to its shard, a change of all that match to all of them, with one count.

Before a change concerns several shards, each is asked whether its manager is there: if one is away, nothing is changed. If one
ends in the middle, the answer says what the others did.
"""

from __future__ import annotations

import json
from typing import Any

from mailcore.control.control_errors import ControlError, Refused
from mailcore.control.several.steps import Question, Steps, add, emitted, first_of, next_of, opened
from mailcore.counted import counted
from mailcore.faults import Code, Fault

__all__ = ["begin_injection", "change", "change_matching", "go_on_injecting", "of_message", "set_all", "working"]

_CUT = "shards:"
ERRORS_SHOWN = 100  # of a change of all that match, as in the answer of one queue
DEAD_SHOWN = 20


def of_message(question: Question) -> Steps:
    """Passes a question about one message on to its shard."""
    number = yield from question.find(question.arguments.get("queue_id"))
    yield from question.passed_on(number)


def working(question: Question) -> Steps:
    """Gives those of the messages that are active."""
    found: dict[str, Any] = {"messages": {}}
    by_shard, faults = yield from _by_shard(question, question.arguments.get("queue_ids", []))
    for fault in faults.values():
        if fault.code is Code.UNAVAILABLE:
            raise Refused.of(fault)
    for number, ids in by_shard.items():
        if number in question.numbers:
            found = add(found, (yield from question.ask(number, {**question.arguments, "queue_ids": ids})))
    yield emitted(found)


def _by_shard(question: Question, queue_ids: list[Any]) -> Steps:
    """Returns queue ids by the shard that has the message, and why those of -1 are in none that is known."""
    found: dict[int, list[Any]] = {}
    faults: dict[str, Fault] = {}
    where = "that no node has" if question.nodes else "that does not run on this node"
    for queue_id in queue_ids:
        try:
            number = yield from question.find(queue_id)
        except Refused as error:
            number = -1
            is_nowhere = error.code is Code.NOT_FOUND
            faults[queue_id] = Fault(error.code, f"the message is in a shard {where}") if is_nowhere else error.fault
        found.setdefault(number, []).append(queue_id)
    return found, faults


def change(question: Question) -> Steps:
    """Changes chosen messages: each in its shard."""
    arguments = question.arguments
    ids, faults = yield from _by_shard(question, arguments.get("queue_ids", []))
    places: dict[int, list[Any]] = {}
    for place in arguments.get("messages", []):
        queue_id = place[0] if isinstance(place, list | tuple) and place else None
        by_shard, why = yield from _by_shard(question, [queue_id])
        faults |= why
        places.setdefault(next(iter(by_shard)), []).append(place)
    result: dict[str, Any] = {}
    errors: dict[int, ControlError] = {}
    for number in sorted({*ids, *places}) or question.here[:1]:
        concerned = [*ids.get(number, ()), *(place[0] for place in places.get(number, ()))]
        asked = {**arguments, "queue_ids": ids.get(number, []), "messages": places.get(number, [])}
        try:
            if number < 0:
                answer = _nothing({each: faults[each] for each in concerned})
            else:
                answer = yield from question.ask(number, asked)
        except ControlError as error:
            if error.code is Code.INVALID:
                raise  # the arguments are wrong; the shards that were changed before had the same
            errors[number] = error
            answer = _nothing(dict.fromkeys(concerned, Fault(error.code, f"{question.words_of(number)}: {error}")))
        result = answer if not result else add(result, answer) | {"dead": [*result["dead"], *answer["dead"]]}
    if errors and len(errors) == len({*ids, *places}):
        raise first_of(errors)
    result["dead"] = sorted(set(result["dead"]))
    yield emitted(result)


def _nothing(errors: dict[str, Fault]) -> dict[str, Any]:
    plain = {queue_id: {"code": str(fault.code), "message": fault.message} for queue_id, fault in errors.items()}
    zeros = dict.fromkeys(("changed", "recipients", "in_flight", "too_late", "undecided"), 0)
    return {**zeros, "errors": plain, "dead": []}


def _refuse_if_away(question: Question) -> Steps:
    """Asks each shard whether it could change anything. Raises Refused."""
    further = "; --here changes those of this node alone" if question.nodes else ""
    for number in question.numbers:
        try:
            is_there = (yield from question.ask(number, {}, "ping"))["manager"]
            why = "its manager is not running"
        except ControlError as error:
            is_there, why = False, str(error)
        if not is_there:
            raise Refused(
                f"{question.words_of(number)}: {why}; nothing was changed in any shard{further}", code=Code.UNAVAILABLE
            )


def change_matching(question: Question) -> Steps:
    """Changes all that match in all shards, one after the other, and counts them as one."""
    arguments = question.arguments
    is_dry = bool(arguments.get("dry_run"))
    cuts = _cuts(arguments.get("cut"), question.numbers)
    if not is_dry:
        yield from _refuse_if_away(question)
    total: dict[str, Any] = {}
    found_cuts: dict[str, str] = {}
    no_lane: list[ControlError] = []
    for number in question.numbers:
        asked = {**arguments, **({"cut": cuts[number]} if cuts else {})}
        so_far = total
        try:
            yield opened(number, question.operation, asked)
            while (part := (yield next_of(number))) is not None:
                if part.get("cut"):
                    found_cuts[str(number)] = part.pop("cut")
                total = _sum(so_far, part)
                if not part["done"]:
                    yield emitted({**total, "done": False})
        except ControlError as error:
            if error.argument == "filter.lane":  # another shard may have it
                no_lane.append(error)
                continue
            if total and not is_dry:
                done = f"changed in the shards before: {counted(total['changed'], 'message')}"
                raise ControlError(
                    f"{question.words_of(number)}: {error}; {done}", code=Code.OUTCOME_UNKNOWN
                ) from error
            if error.code is Code.UNAVAILABLE:
                raise Refused(f"{question.words_of(number)}: {error}", code=error.code) from error
            raise
    if not total:
        raise no_lane[0]
    if found_cuts:
        total["cut"] = _CUT + json.dumps(found_cuts, separators=(",", ":"))
    yield emitted({**total, "done": True})


def _sum(so_far: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    if not so_far:
        return part
    total: dict[str, Any] = add(so_far, part)
    return total | {
        "errors": dict(list({**so_far["errors"], **part["errors"]}.items())[:ERRORS_SHOWN]),
        "dead": sorted({*so_far["dead"], *part["dead"]})[:DEAD_SHOWN],
        "manager_away": so_far["manager_away"] or part["manager_away"],
        "note": "; ".join(each for each in (so_far["note"], part["note"]) if each),
    }


def _cuts(text: object, numbers: list[int]) -> dict[int, str]:
    """Returns the cut of each shard. Raises Refused if it is not one of these shards."""
    if not isinstance(text, str):
        return {}
    try:
        given = json.loads(text.removeprefix(_CUT)) if text.startswith(_CUT) else {}
        return {number: given[str(number)] for number in numbers}
    except (ValueError, KeyError, TypeError):
        raise Refused(
            "cut: it was made when there were other shards; count again", code=Code.INVALID, argument="cut"
        ) from None


def set_all(question: Question) -> Steps:
    """Sets a value in all shards: the answer is that of the first.

    Where a database keeps the queue, all shards follow what one of them is asked for. Only a destination that is dead is each
    shard's own, and is resumed in all that answer; the answer names the others.
    """
    if any(each.in_ids >= 0 for each in question.shards):
        number, answer = yield from _first_that_is_there(question)
        failed: list[str] = []
        for other in question.numbers if question.operation == "resume" else ():
            if other != number:
                try:
                    yield from question.ask(other)
                except ControlError as error:
                    failed.append(f"{question.words_of(other)}: {error}")
        yield emitted(answer | ({"unanswered": "; ".join(failed)} if failed else {}))
        return
    yield from _refuse_if_away(question)
    first: Any = None
    for number in question.numbers:
        try:
            answer = yield from question.ask(number)
        except ControlError as error:
            if first is None:
                raise
            message = f"{question.words_of(number)}: {error}; the shards before have the new value: set it again"
            raise ControlError(message, code=Code.OUTCOME_UNKNOWN) from error
        first = answer if first is None else first
    yield emitted(first)


def _first_that_is_there(question: Question) -> Steps:
    """Returns the first shard whose processes run, those of this node before others, and its answer."""
    errors: dict[int, ControlError] = {}
    for number in sorted(question.numbers, key=lambda each: each in question.nodes):
        try:
            return number, (yield from question.ask(number))
        except ControlError as error:
            if error.code is not Code.UNAVAILABLE:
                raise
            errors[number] = error
    raise first_of(errors)


def begin_injection(question: Question) -> Steps:
    """Hands a message in to a shard of this node that takes mail: the first that answers, beginning with another each time."""
    session = question.session
    numbers = [each.number for each in question.shards if each.is_open and each.is_here]
    if not numbers:
        raise Refused("no shard of this node takes mail now", code=Code.UNAVAILABLE)
    turn = session.turn % len(numbers)
    session.turn += 1
    errors: dict[int, ControlError] = {}
    for number in [*numbers[turn:], *numbers[:turn]]:
        try:
            answer = yield from question.ask(number)
        except ControlError as error:
            if error.code not in (Code.UNAVAILABLE, Code.BUSY):
                raise
            errors[number] = error
            continue
        session.injecting = number
        yield emitted(answer)
        return
    raise first_of(errors)


def go_on_injecting(question: Question) -> Steps:
    """Gives more of a message to the shard that takes it; without one the first says so."""
    number = question.session.injecting
    is_end = question.operation == "inject_end"
    if is_end:
        question.session.injecting = None
    yield from question.passed_on(question.here[0] if number not in question.numbers else number)
