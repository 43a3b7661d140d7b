"""``waypost queue ages`` and ``positions``: how old the mail is, and where lanes, runners and restarts stand."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mailcore.cli.incomplete import say_note, status_of
from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Positions
from mailcore.counted import counted
from mailcore.terminal.command import add_common, control_client
from mailcore.terminal.output import cut, plain, print_json, say, size_shown, table, width
from mailcore.terminal.times import shown, shown_duration

__all__ = ["configure"]

WIDE = 120  # columns for all ages


def configure(commands: Any) -> None:
    """Adds these commands to the subcommands of ``waypost queue``."""
    ages = commands.add_parser("ages", help="count messages by destination and age, as qshape does")
    ages.add_argument("--refresh", action="store_true", help="count now; otherwise a count of a moment ago is shown")
    ages.add_argument("--limit", type=int, default=30, metavar="N", help="maximum number of destinations (default: 30)")
    add_common(ages)
    ages.set_defaults(run=_ages)
    positions = commands.add_parser(
        "positions", help="show lanes, runners, segments on disk, retired ones too, and the cost of a restart now"
    )
    positions.add_argument("--segments", action="store_true", help="also each segment, and why it is kept")
    add_common(positions)
    positions.set_defaults(run=_positions)


def _ages(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("ages", AgesPart, {"refresh": arguments.refresh})
    if arguments.json:
        print_json(answer)
        return status_of(answer)
    say_note(answer)
    states = ", ".join(f"{count} {plain(state)}" for state, count in answer.by_state.items() if count)
    say(f"{counted(answer.total, 'message')}{f' ({states})' if states else ''}")
    if answer.oldest is not None:
        oldest = answer.oldest
        sender = plain(oldest.sender) or "<>"
        line = f"oldest: {oldest.queue_id}, {oldest.state}, arrived {shown(oldest.arrived_at)}, from {sender}"
        say(cut(line, width(sys.stdout)))
    if not answer.rows:
        return status_of(answer)
    say()
    for line in _age_lines(answer, arguments.limit, width(sys.stdout)):
        say(line)
    if len(answer.rows) > arguments.limit:
        say(f"and {len(answer.rows) - arguments.limit} more; use --limit to see them")
    return status_of(answer)


def _age_lines(answer: AgesPart, limit: int, columns: int) -> list[str]:
    """Formats the table. On a narrow terminal a column holds two of the answer's, and is named by the higher age."""
    step = 1 if columns >= WIDE else 2
    starts = range(0 if len(answer.buckets_s) % 2 == 0 else 1 - step, len(answer.buckets_s), step)
    ends = [answer.buckets_s[start + step - 1] for start in starts]
    heads = ["DESTINATION", "TOTAL", *("older" if age is None else shown_duration(age) for age in ends)]
    rows = [
        (
            row.destination or "(not routed yet)",
            row.total,
            *(sum(row.counts[max(start, 0) : start + step]) or "-" for start in starts),
        )
        for row in answer.rows[:limit]
    ]
    return table(heads, rows, columns, frozenset(range(1, len(heads))))


def _positions(arguments: argparse.Namespace) -> int:
    with control_client(arguments) as control:
        answer = control.ask("positions", Positions)
    if arguments.json:
        print_json(answer)
        return status_of(answer)
    say_note(answer)
    written = f"written {shown(answer.written_at)}" if answer.written_at else "none are on disk"
    say(f"restart positions {answer.sequence}: {written}")
    say(plain(answer.recovery.sentence))
    rows: list[tuple[object, ...]] = [
        (
            lane.lane,
            lane.browse,
            lane.runner,
            lane.end,
            size_shown(lane.lag_bytes),
            len(lane.segments) + lane.segments_left_out,
            size_shown(lane.bytes_on_disk),
        )
        for lane in answer.lanes
    ]
    journal = answer.journal
    segments = len(journal.segments) + journal.segments_left_out
    suffix = size_shown(journal.suffix_bytes)
    rows.append(("journal", "", journal.suffix, journal.end, suffix, segments, size_shown(journal.bytes_on_disk)))
    say()
    heads = ("LANE", "BROWSE", "RUNNER", "END", "UNREAD", "SEGMENTS", "ON DISK")
    for line in table(heads, rows, width(sys.stdout), frozenset(range(1, 7))):
        say(line)
    for line in _retired_lines(answer):
        say(line)
    if arguments.segments:
        of_lanes = [(lane.lane, each) for lane in answer.lanes for each in lane.segments]
        say()
        kept = [
            (name, each.base, size_shown(each.bytes), each.sentence)
            for name, each in [*of_lanes, *(("journal", each) for each in journal.segments)]
        ]
        for line in table(("LANE", "SEGMENT", "SIZE", "KEPT"), kept, width(sys.stdout), frozenset({1, 2})):
            say(line)
    return status_of(answer)


def _retired_lines(answer: Positions) -> list[str]:
    """Formats what retired segments take; no line without any."""
    with_some = [(lane.lane, lane.retired) for lane in answer.lanes if lane.retired.segments]
    if not with_some:
        return []
    rows = [
        (
            lane,
            each.segments,
            size_shown(each.bytes),
            "not known yet" if each.needed_bytes is None else size_shown(each.needed_bytes),
            shown(each.oldest_at) if each.oldest_at else "not known",
        )
        for lane, each in with_some
    ]
    heads = ("RETIRED IN", "SEGMENTS", "ON DISK", "NEEDED", "OLDEST")
    return ["", *table(heads, rows, width(sys.stdout), frozenset({1, 2, 3}))]
