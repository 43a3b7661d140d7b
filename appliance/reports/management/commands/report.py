"""``manage.py report DAY``: makes the report of a day by hand, as ``waypost report`` asks for it, and shows how far it is."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import date
from typing import Any

import msgspec
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from appliance.common.current_settings import current_settings
from appliance.common.templatetags.waypost import visible
from appliance.pipeline.days import Day, not_begun
from appliance.reports import exporter, report_store
from appliance.reports.by_hand import RecordedRun, database_is_there
from appliance.reports.content import balance_of
from appliance.reports.preferences import in_force, yesterday
from appliance.reports.report_store import Period, Report
from appliance.reports.running import Busy, Heard, command_of, held, run
from appliance.reports.runs import FETCHING
from appliance.reports.shard_events import nodes_events, shard_events
from mailcore.counted import counted
from mailcore.faults import Code, Fault

LOG_LINES = 20  # told when it failed


class Command(BaseCommand):
    """Makes the report of a day: ``waypost report``."""

    help = "Make the report of a day."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the day and the form of the output."""
        parser.add_argument("day", nargs="?", type=date.fromisoformat, help="2026-11-20; default: yesterday")
        parser.add_argument("--json", action="store_true", help="print the result as one JSON document")

    def handle(self, *_: Any, **options: Any) -> None:
        """Makes the report, prints what it says, and exits with 1 if it does not balance or could not be made; with 2 if
        the day has not begun."""
        zone = _zone()
        day: date = options["day"] or yesterday(zone)
        if why := not_begun(Day(day, zone), time.time()):
            error = {"error": msgspec.to_builtins(Fault(Code.INVALID, why, "DAY"))}
            self.stderr.write(json.dumps(error) if options["json"] else f"waypost: {why}")
            sys.exit(2)
        output = settings.REPORTS_DIRECTORY
        try:
            with held(output) as hold:
                recorded = RecordedRun(day)
                try:
                    _bar(Heard("exporting events", 0.0, ""))
                    not_cut = exporter.cut("waypost report", zone)
                    nodes, gathered = nodes_events(), exporter.Gathered()
                    if nodes is not None:
                        gathered = exporter.gather(day, lambda: _bar(FETCHING) and recorded.heard(FETCHING))
                    recorded.export_failed("; ".join(filter(None, (not_cut, *gathered))))
                    command = command_of(
                        day,
                        settings.EVENTS_DIRECTORY,
                        output,
                        zone,
                        settings.REPORTS.spark_master,
                        shards=shard_events(),
                        nodes=nodes,
                        nodes_fault=gathered.fault,
                    )
                    ended = run(
                        command,
                        hold,
                        timeout_s=current_settings().reports.timeout_s,
                        listen=lambda heard: _bar(heard) and recorded.heard(heard),
                    )
                except KeyboardInterrupt:
                    recorded.interrupted()
                    raise
                recorded.ended(ended)
        except Busy as busy:
            raise CommandError(str(busy), returncode=1) from None
        _clear()
        for words in gathered:
            if words:
                self.stderr.write(f"waypost: {visible(words)}")
        report = report_store.report_of(Period.DAY, day)
        if report is None or ended.status not in (0, 1):
            tail = "\n".join(visible(line) for line in ended.log.splitlines()[-LOG_LINES:])
            raise CommandError(
                f"{tail}\ncould not make the report of {day} completely: exit status {ended.status} {ended.why}",
                returncode=1,
            )
        if options["json"]:
            told = {
                "day": str(day),
                "balances": report.balances,
                "words": report.summary,
                "directory": str(report.directory),
            }
            self.stdout.write(json.dumps(told))
        else:
            self.stdout.write(f"{day}: {visible(report.summary)}")
            self.stdout.write(str(report.directory))
            for line in _what_does_not_add_up(report):
                self.stderr.write(line)
        sys.exit(1 if report.balances is False else 0)


def _zone() -> str:
    """Returns the time zone set in the portal; that of the configuration file if there is no portal yet."""
    with contextlib.suppress(DatabaseError):
        if database_is_there():
            return in_force().zone
    return str(current_settings().reports.zone)


def _what_does_not_add_up(report: Report) -> Iterator[str]:
    """Yields the messages that do not balance and the gaps in the log, a line each."""
    balance = balance_of(report)
    for each in balance.suspects:
        places = "; ".join(visible(place) for place in each.get("events") or ())
        yield f"  {visible(each.get('queue_id', ''))}: {visible(each.get('why', ''))} ({places})"
    if balance.suspects_left_out:
        yield f"  and {counted(balance.suspects_left_out, 'more message')}"
    for altered in balance.altered:
        yield f"events differ: {altered}"
    for gap in balance.gaps:
        yield f"  missing from the event files: {visible(gap)}"


def _bar(heard: Heard) -> bool:
    if sys.stderr.isatty():
        width = max(10, min(40, shutil.get_terminal_size().columns - 45))
        done = round(heard.share * width)
        print(f"\r\x1b[K{'█' * done}{'·' * (width - done)} {heard.share:4.0%} {visible(heard.stage)[:38]}", end="",
              file=sys.stderr, flush=True)  # fmt: skip
    return True


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
