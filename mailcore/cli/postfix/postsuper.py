"""postsuper: deletes, holds, releases and requeues messages, and counts exactly those that it changed.

For ALL, the queue is listed first, and only the messages of this list are changed: mail that arrives meanwhile is not touched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mailcore.cli.postfix.exits import OK, Ended
from mailcore.cli.postfix.mailq import QUEUES, queued
from mailcore.cli.postfix.waiting import Maildrop, OpenMaildrop
from mailcore.control.client import ControlClient
from mailcore.control.protocol.changes import ChangeResult
from mailcore.control.protocol.operation import MESSAGES_MAX, QUEUE_ID_PATTERN
from mailcore.faults import Code
from mailcore.terminal.output import plain

__all__ = ["FAILED", "postsuper"]

FAILED = 1  # Postfix's status of every error of postsuper
WARNINGS_MAX = 20
USAGE = (
    "usage: postsuper [-c config_file] [-d ID|-|ALL] [-e ID|-|ALL] [-f ID|-|ALL] [-h ID|-|ALL] [-H ID|-|ALL] "
    "[-r ID|-|ALL] [directory...]"
)


class _Action(NamedTuple):
    operation: str  # of the control socket
    done: str  # begins the last line
    each: str  # of a message
    queues: tuple[str, ...]  # that ALL means


_ACTIONS = {
    "d": _Action("delete", "Deleted", "removed", QUEUES),
    "h": _Action("hold", "Placed on hold", "placed on hold", ("incoming", "active", "deferred")),
    "H": _Action("release", "Released from hold", "released from hold", ("hold",)),
    "r": _Action("retry", "Requeued", "requeued", QUEUES),
    "e": _Action("bounce", "Expired", "expired", QUEUES),
    "f": _Action("bounce", "Expired", "expired", QUEUES),
}
MAILDROP = "maildrop"
_KNOWN = frozenset({*QUEUES, MAILDROP})


def postsuper(
    argv: Sequence[str], client: Callable[[str], ControlClient], maildrop: OpenMaildrop, stdin: Iterable[str]
) -> int:
    """Runs postsuper; returns the exit status. Raises Ended."""
    wanted: list[tuple[str, str]] = []
    queues: list[str] = []
    config = ""
    arguments = list(argv)
    while arguments:
        option = arguments.pop(0)
        letter, rest = option[1:2], option[2:]
        if not option.startswith("-"):
            queues.append(option)
        elif letter == "c" or letter in _ACTIONS:
            if not rest and not arguments:
                raise Ended(FAILED, USAGE)
            value = rest or arguments.pop(0)
            if letter == "c":
                config = value
            else:
                wanted.append((letter, value))
        elif set(option[1:]) <= set("psSv") and letter:
            continue  # a check of the queue's files: each start of Waypost makes one
        else:
            raise Ended(FAILED, USAGE)
    for name in queues:
        if name not in _KNOWN:
            raise Ended(FAILED, f"invalid directory name: {name}")
    if wanted and MAILDROP in queues:
        _refuse_waiting(maildrop(config))
    given = _from_stdin(wanted, stdin)
    status = OK
    with client(config) as control:
        for letter, ids in given:
            status = max(status, _run(control, _ACTIONS[letter], ids, tuple(queues)))
    return status


def _refuse_waiting(maildrop: Maildrop) -> None:
    """Raises Ended unless the maildrop is known to be empty.

    A file that is removed here may have been read by Waypost a moment before, and would be sent though it was counted.
    """
    names = maildrop.names()
    if names is None:
        raise Ended(FAILED, f"{maildrop.unlisted()}; nothing was changed")
    if names:
        raise Ended(
            FAILED,
            f"{maildrop.said()}, so that it cannot be changed; nothing was changed. Waypost takes it within two seconds, or "
            f"its log says why not. To throw it away, stop Waypost and remove the files in {maildrop.directory}",
        )


def _from_stdin(wanted: list[tuple[str, str]], stdin: Iterable[str]) -> list[tuple[str, list[str]]]:
    given: list[tuple[str, list[str]]] = []
    for letter, value in wanted:
        ids = [line.split()[0] for line in stdin if line.strip()] if value == "-" else [value]
        if given and given[-1][0] == letter and given[-1][1] != ["ALL"] and value != "ALL":
            given[-1][1].extend(ids)
        else:
            given.append((letter, ids))
    return given


def _run(control: ControlClient, action: _Action, ids: list[str], queues: tuple[str, ...]) -> int:
    if ids == ["ALL"]:
        notes: list[str] = []
        messages: list[tuple[str, list[object] | None, str]] = [
            (each.item.queue_id, [each.item.queue_id, each.item.lane, each.item.offset], each.queue)
            for each in queued(control, notes, with_reasons=False)
            if each.queue in (queues or action.queues)
        ]
        status = FAILED if notes else OK
        for note in notes:
            _warn(note)
    else:
        wrong = [each for each in ids if not re.fullmatch(QUEUE_ID_PATTERN, each.upper())]
        for each in wrong:
            _warn(f"bad mail file name: {each}")
        in_queues = _in_queues(control, queues) if queues else None
        fit = dict.fromkeys(each.upper() for each in ids if each not in wrong)
        messages = [(each, None, "") for each in fit if in_queues is None or each in in_queues]
        status = OK
    changed = 0
    for operation, some in _by_operation(control, action, messages):
        for at in range(0, len(some), MESSAGES_MAX):
            chunk = some[at : at + MESSAGES_MAX]
            places = [place for _, place in chunk if place is not None]
            names = [name for name, place in chunk if place is None]
            asked = {"messages": places} if places else {"queue_ids": names}
            answer = control.ask(operation, ChangeResult, asked, why="postsuper")
            changed += answer.changed
            for name, _ in chunk:
                if name not in answer.errors:
                    print(f"postsuper: {name}: {action.each}", file=sys.stderr)
            for number, (name, fault) in enumerate(answer.errors.items()):
                if number < WARNINGS_MAX:
                    _warn(f"{name}: {fault.message}")
                if fault.code not in (Code.NOT_FOUND, Code.CONFLICT):
                    status = FAILED  # the outcome is not known, or the change can be tried again
    print(f"postsuper: {action.done}: {changed} message{'' if changed == 1 else 's'}", file=sys.stderr)
    return status


def _in_queues(control: ControlClient, queues: tuple[str, ...]) -> set[str]:
    return {each.item.queue_id for each in queued(control, [], with_reasons=False) if each.queue in queues}


Named = tuple[str, "list[object] | None"]


def _by_operation(
    control: ControlClient, action: _Action, messages: Sequence[tuple[str, list[object] | None, str]]
) -> list[tuple[str, list[Named]]]:
    """Divides the messages by what must be asked: to requeue a held message is to release it."""
    if action.operation != "retry":
        return [(action.operation, [(name, place) for name, place, _ in messages])]
    held = {each.item.queue_id for each in queued(control, [], with_reasons=False) if each.queue == "hold"}
    return [
        ("retry", [(name, place) for name, place, _ in messages if name not in held]),
        ("release", [(name, place) for name, place, _ in messages if name in held]),
    ]


def _warn(text: str) -> None:
    print(f"postsuper: warning: {plain(text)}", file=sys.stderr)
