"""qshape: recipients by domain and age, in the table of Postfix's qshape(1)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from mailcore.cli.postfix.exits import Ended
from mailcore.cli.postfix.mailq import QUEUES, queued
from mailcore.cli.postfix.waiting import OpenMaildrop
from mailcore.control.client import ControlClient
from mailcore.terminal.output import plain

__all__ = ["qshape"]

FAILED = 1
USAGE = "usage: qshape [-s] [-p] [-l] [-m min_subdomains] [-b bucket_count] [-t bucket_minutes] [-w width] [queue...]"
WIDTH, NAME_WIDTH = 80, 18
TOTAL = "TOTAL"
MAILDROP = "maildrop"


def qshape(argv: Sequence[str], client: Callable[[str], ControlClient], maildrop: OpenMaildrop) -> int:
    """Runs qshape; returns the exit status. ``maildrop`` is asked for only if it is named. Raises Ended."""
    flags, numbers, queues, config = _options(argv)
    for name in queues:
        if name not in (*QUEUES, MAILDROP):
            raise Ended(FAILED, f"{name}: not a queue; there are {', '.join((*QUEUES, MAILDROP))}")
    buckets, tick_min = numbers.get("b", 10), numbers.get("t", 5)
    now = time.time()
    counts: dict[str, list[int]] = {TOTAL: [0] * (buckets + 1)}
    below: dict[str, int] = {}  # parent domain -> subdomains
    notes: list[str] = []

    def count(arrived_at: float, sender: str, recipients: Sequence[str]) -> None:
        bucket = _bucket(now - arrived_at, buckets, tick_min, linear="l" in flags)
        for address in [sender] if "s" in flags else recipients:
            _count(counts, below, address, bucket, parents="p" in flags)

    if MAILDROP in queues:  # before the queue: a message that is taken meanwhile is counted twice rather than never
        dropped = maildrop(config)
        names = dropped.names()
        if names is None:
            raise Ended(FAILED, dropped.unlisted())
        for letter in dropped.letters(names, notes):
            count(letter.submitted_at, letter.sender, letter.recipients)
    if set(queues) != {MAILDROP}:
        with client(config) as control:
            for message in queued(control, notes, with_reasons=False):
                if message.queue in (queues or ["incoming", "active"]):
                    item = message.item
                    count(item.arrived_at, item.sender, [each.address for each in message.recipients])
    for line in _table(counts, below, buckets, tick_min, "l" in flags, numbers.get("m", 5), numbers.get("w", WIDTH)):
        print(line)
    if notes:
        raise Ended(FAILED, f"the table lacks a part: {plain(notes[0])}")
    return 0


def _options(argv: Sequence[str]) -> tuple[set[str], dict[str, int], list[str], str]:
    flags: set[str] = set()
    numbers: dict[str, int] = {}
    config = ""
    arguments = list(argv)
    while arguments and arguments[0].startswith("-"):
        letters = arguments.pop(0)[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in "spl":
                flags.add(letter)
                continue
            value, letters = letters or (arguments.pop(0) if arguments else ""), ""
            if letter == "c":
                config = value
            elif letter in "bmtwnN" and value.isascii() and value.isdecimal() and 0 < int(value) <= 1000:
                numbers[letter] = int(value)
            else:
                raise Ended(FAILED, USAGE)
    numbers["w"] = max(numbers.get("w", WIDTH), WIDTH)
    return flags, numbers, arguments, config


def _bucket(age_s: float, buckets: int, tick_min: int, *, linear: bool) -> int:
    ticks = age_s / (60 * tick_min)
    if ticks < 1:
        return 1
    bucket = int(ticks + 1) if linear else 2 + int(math.log2(ticks))
    return min(bucket, buckets)


def _count(counts: dict[str, list[int]], below: dict[str, int], address: str, bucket: int, *, parents: bool) -> None:
    size = len(counts[TOTAL])
    domain = address.lower().rpartition("@")[2].strip(".") or "MAILER-DAEMON"
    new = False
    for column in (0, bucket):
        counts[TOTAL][column] += 1
    while True:
        row = counts.setdefault(domain, [0] * size)
        old = row[0] > 0
        row[0] += 1
        row[bucket] += 1
        if new:
            below[domain] = below.get(domain, 0) + 1
        new = not old
        parent = domain.lstrip(".").partition(".")[2]
        if not parents or "." not in parent:
            return
        domain = f".{parent}"


def _table(
    counts: dict[str, list[int]],
    below: dict[str, int],
    buckets: int,
    tick_min: int,
    linear: bool,
    least: int,
    width: int,
) -> list[str]:
    heads = ["T"]
    widths: list[int] = []
    age = 0
    for column in range(buckets + 1):
        head = "T" if column == 0 else heads[column]
        needed = max(len(head), len(str(counts[TOTAL][column])))
        widths.append(needed + 1 if needed > 2 else 3)
        if column + 1 < buckets:
            age += age if age and not linear else tick_min
            heads.append(str(age))
        elif column + 1 == buckets:
            heads.append(f"{age}+")
    room = max(width - sum(widths), NAME_WIDTH)

    def line(name: str, cells: Sequence[object]) -> str:
        if len(name) > room:
            name = f".+{name[len(name) - room + 2 :]}" if name.startswith(".") else f"+{name[len(name) - room + 1 :]}"
        return name.rjust(room) + "".join(str(cell).rjust(size) for cell, size in zip(cells, widths, strict=True))

    rows = sorted(counts.items(), key=lambda each: (-each[1][0], len(each[0]), each[0]))
    rows.sort(key=lambda each: each[0] != TOTAL)
    shown = [(name, row) for name, row in rows if not (name.startswith(".") and below.get(name, 0) < least)]
    return [line("", heads), *(line(plain(name), row) for name, row in shown)]
