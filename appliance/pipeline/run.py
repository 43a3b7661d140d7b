"""Makes the report of a day: ``python -m appliance.pipeline 2026-11-20 --events … --output … --zone …``.

Also updates earlier days with late events, the weeks and months that contain them, and those that an earlier run did not
complete. Standard output has lines of JSON, {"stage": …, "share": …}, and at the end the report's summary.

Exit status: 0; 1 if the day does not balance (its tables exist); 2 if the day has not begun, or if the day, a week or a
month could not be made (the last line on standard error gives the reason); 75 if another run is at work. It can be started
by hand, by Celery or by spark-submit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

from mailcore.extras import missing

if SPARK_MISSING := missing("reports"):  # the modules below import Spark
    print(SPARK_MISSING, file=sys.stderr)
    sys.exit(2)

from appliance.pipeline.build_day import Progress, ReportBuilder, Told
from appliance.pipeline.class_data import ClassData
from appliance.pipeline.cluster import NotShared, check_shared
from appliance.pipeline.days import Day, month_of, not_begun, week_of
from appliance.pipeline.events import event_paths
from appliance.pipeline.failure import in_short
from appliance.pipeline.java import NoJava
from appliance.pipeline.nodes import NotGathered, read_nodes
from appliance.pipeline.session import QUICK, QUICK_JAVA, NoMaster, end, start
from appliance.pipeline.shards import Sources
from appliance.pipeline.store import Busy, Store
from appliance.pipeline.weeks import behind, make_period

__all__ = ["main", "report", "run_and_exit"]

LATE_DAYS = 2  # before the day asked for: made again when events of theirs came late
SMALL_BYTES = 192 << 20  # of files: three million attempts (docs/decisions/0079-the-quick-compiler-longer.md)
TINY_BYTES = 1 << 20  # 20 000 events
UNBALANCED, FAILED, BUSY = 1, 2, 75  # 75: EX_TEMPFAIL of sysexits.h


def report(
    day: date,
    events: Path,
    output: Path,
    zone: str,
    master: str = "local[*]",
    progress: Progress = lambda stage, share: None,
    options: dict[str, str] | None = None,
    keep_classes: bool = False,
    shards: Sources = MappingProxyType({}),
    nodes: Path | None = None,
    nodes_fault: str = "",
) -> Told:
    """Makes and publishes it. ``events``: the directory of ``dt=…`` and ``cuts``; ``shards``: those of further shards, by
    number; ``nodes``: ``shards.json`` of a copy of the events of all nodes, instead of both; ``nodes_fault``: why that was
    not made for this run; ``output``: of ``store``; ``options`` of Spark; ``keep_classes``: whether Java keeps its classes
    for later runs, if that was not done before.

    Raises Busy, NoJava, NoMaster, NotShared, NotGathered, or what Spark says.
    """
    store = Store(output)
    copy = None if nodes is None else read_nodes(nodes.resolve(), nodes_fault)
    with store.locked():
        classes = ClassData(store.scratch, keep_classes)
        its = Day(day, zone)
        theirs = {number: directory.resolve() for number, directory in shards.items()}
        places = [events.resolve(), *theirs.values()]
        if copy is not None:
            places = [shard.events for shard in copy.shards.values()]
        size = sum(_size(directory, its) for directory in places)
        quick = (QUICK if size < TINY_BYTES else QUICK_JAVA) if size < SMALL_BYTES else {}
        progress("starting Spark", 0.0)
        with ThreadPoolExecutor(1) as pool:  # events are read while it starts
            starting = pool.submit(start, master, store.scratch, quick | (options or {}), classes)
            try:
                if not master.startswith("local"):
                    check_shared(starting.result(), places, store.scratch)
                builder = ReportBuilder(starting, store, events.resolve(), progress, shards=theirs, nodes=copy)
                return make(builder, Day(day, zone))
            finally:
                if starting.exception() is None:
                    end(starting.result(), classes)


def _size(events: Path, day: Day) -> int:
    days = {dt for back in range(LATE_DAYS + 1) for dt in day.before(back).partitions()}
    return sum(_bytes_of(path) for dt in days for path in event_paths(events, dt))


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it is gone again, or a link that leads nowhere; reading it says so
        return 0


def make(builder: ReportBuilder, day: Day) -> Told:
    """Makes the report of the day; those of the two days before it if they were made from fewer events; those of the
    weeks and months of these days, and of all weeks and months that are behind their days. A week or month that cannot
    be made does not stop the others; ``unmade`` names it."""
    made = []
    for late in (day.before(back) for back in range(LATE_DAYS, 0, -1)):
        if builder.stale(late):
            builder.progress(f"events that came late for {late.date}", 0.0)
            builder.day(late)
            made.append(late)
    told = builder.day(day)
    made.append(day)
    builder.progress("weeks and months", 0.95)
    unmade = []
    theirs = [of(each.date) for each in made for of in (week_of, month_of)]
    for period in dict.fromkeys([*theirs, *behind(builder.store, day.zone)]):
        try:
            make_period(builder, period, day.zone)
        except Exception as error:  # a full disk, Spark's, Arrow's: the next one may have room
            traceback.print_exc()
            unmade.append(f"{period.name} ({in_short(error, builder.store.root)})")
    builder.progress("done", 1.0)
    return replace(told, unmade=tuple(unmade))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m appliance.pipeline", description="Makes the report of a day.")
    parser.add_argument("day", type=date.fromisoformat, help="2026-11-20")
    parser.add_argument("--events", type=Path, required=True, help="directory of the exported events")
    parser.add_argument(
        "--shard",
        type=_shard,
        action="append",
        default=[],
        metavar="NUMBER=DIRECTORY",
        help="events of a further shard of the node; may be repeated",
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        metavar="FILE",
        help="shards.json of a copy of the events of all nodes, which are read instead of --events and --shard",
    )
    parser.add_argument("--nodes-fault", default="", metavar="WORDS", help="why that copy was not made for this run")
    parser.add_argument("--output", type=Path, required=True, help="directory for the tables")
    parser.add_argument(
        "--zone", type=_zone, default="UTC", help="time zone whose midnight starts a day, such as Europe/Berlin"
    )
    parser.add_argument(
        "--master", default="local[*]", help="Spark's master: local[*], spark://host:port, yarn, k8s://…"
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="a Spark option, spark.…; may be repeated"
    )
    parser.add_argument(
        "--keep-classes",
        action="store_true",
        help="write an archive of Java's classes at the end, unless there is a good one: later runs start faster",
    )
    given = parser.parse_args(arguments)
    if why := not_begun(Day(given.day, given.zone), time.time()):
        print(why, file=sys.stderr)
        return FAILED
    options = dict(each.split("=", 1) for each in given.option)
    say: Callable[[dict[str, object]], None] = lambda said: print(json.dumps(said), flush=True)  # noqa: E731
    try:
        told = report(
            given.day,
            given.events,
            given.output,
            given.zone,
            given.master,
            lambda stage, share: say({"stage": stage, "share": round(share, 3)}),
            options,
            given.keep_classes,
            dict(given.shard),
            given.nodes,
            given.nodes_fault,
        )
    except Busy as busy:
        print(busy, file=sys.stderr)
        return BUSY
    except (NoJava, NoMaster, NotGathered, NotShared) as missing:
        print(missing, file=sys.stderr)
        return FAILED
    except Exception as error:  # Python's own end would be 1, which says that the tables are there
        traceback.print_exc()
        print(f"could not make the report: {in_short(error, given.output, given.master)}", file=sys.stderr)
        return FAILED
    print(told.words, flush=True)
    if told.balances is False:
        for suspect in told.content["balance"]["suspects"]:
            print(f"{suspect['queue_id']}: {suspect['why']}; {'; '.join(suspect['events'])}", file=sys.stderr)
        for each in told.content["balance"].get("altered") or ():
            print(
                f"events differ: {each['lane']}, {each['what']}: {each['exported']} exported, {each['found']} in the files",
                file=sys.stderr,
            )
        for gap in told.content["balance"]["gaps"]:
            day = f", of {gap['day']}" if gap["day"] else ""
            print(
                f"missing from the event files: {gap['lane']} from {gap['begin']} to {gap['end']}{day}", file=sys.stderr
            )
        print(told.words, file=sys.stderr)
    if told.unmade:
        words = f"the report of {given.day} is made ({told.words.removesuffix('.')}), but not {', '.join(told.unmade)}"
        print(f"{words}; the next run will make them", file=sys.stderr)
        return FAILED
    return UNBALANCED if told.balances is False else 0


def _shard(given: str) -> tuple[int, Path]:
    number, _, directory = given.partition("=")
    if not number.isdecimal() or not int(number) or not directory:
        raise argparse.ArgumentTypeError(f"{given!r} is not NUMBER=DIRECTORY")
    return int(number), Path(directory)


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{name!r} is not a time zone") from error
    return name


def run_and_exit() -> None:
    """Runs ``main`` and ends the process at once: Spark's threads would keep it for nothing."""
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":  # spark-submit runs a file
    run_and_exit()
