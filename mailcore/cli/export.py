"""``waypost export``: shows the progress of the event export; ``--now`` exports, ``--cut`` also counts the queue.

``show FILE`` prints an event file; Waypost need not run for it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mailcore.config.known_shards import name_of
from mailcore.config.settings import Settings
from mailcore.config.shards import all_of, running_of
from mailcore.control.client import ControlClient
from mailcore.control.starting import wait_until_it_listens
from mailcore.counted import counted
from mailcore.events.checksum import ChecksumError, check
from mailcore.events.exporter import EXPORTER_SOCKET
from mailcore.events.schema import KINDS
from mailcore.faults import Code, Fault
from mailcore.log.disk import Disk
from mailcore.log.positions import read_all_positions
from mailcore.queue.exported import EXPORTED, ExportedLane, read_exported
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, fault_of, queue_id, settings_of
from mailcore.terminal.output import JsonLines, complain_fault, plain, print_json, rows_to_lines, say, table, width

__all__ = ["configure"]

TIMEOUT_S = 3_600.0  # for counting a queue of ten million messages
ROWS_SHOWN = 50
BATCH_ROWS = 5_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.add_argument("command", nargs="?", choices=["show"], help="print an event file")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="event file for show")
    parser.add_argument("--now", action="store_true", help="export all events now, including those of open segments")
    parser.add_argument(
        "--cut", action="store_true", help="like --now; also count and record the messages in the queue now"
    )
    parser.add_argument(
        "--ids", action="store_true", help="with --cut: also write a file that lists all queued messages"
    )
    parser.add_argument("--kind", choices=KINDS, help="show: only events of this kind")
    parser.add_argument("--id", type=queue_id, metavar="QUEUE_ID", help="show: only events of this message")
    parser.add_argument(
        "--limit", type=int, default=ROWS_SHOWN, help=f"show: maximum number of events (default: {ROWS_SHOWN})"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "show":
        if arguments.file is None:
            raise UsageError("export show: give the event FILE")
        return _show(arguments)
    if arguments.ids and not arguments.cut:
        raise UsageError("export: --ids needs --cut")
    settings = settings_of(arguments)
    if arguments.cut or arguments.now:
        answer = _ask(settings, "cut" if arguments.cut else "export", arguments.ids)
    else:
        answer = _how_far(settings)
    if arguments.json:
        print_json(answer)
    else:
        for line in _lines(answer):
            say(line)
    return DONE


def _ask(settings: Settings, operation: str, ids: bool) -> dict[str, Any]:
    if not settings.export.enabled:
        raise UsageError("export: it is switched off; set enabled = true in [export] and restart the core")
    answers = []
    for each in running_of(settings):
        path = each.run_directory / EXPORTER_SOCKET
        wait_until_it_listens(path, each.run_directory / "control.sock")
        with ControlClient(path, timeout_s=TIMEOUT_S) as exporter:
            answers.append(exporter.call(operation, {"ids": ids}))
    return _as_one(answers)


def _as_one(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the answers of the exporters of all shards as one: sums, and the names of their files."""
    if len(answers) == 1:
        return answers[0]
    merged: dict[str, Any] = {}
    for shard, answer in enumerate(answers):
        for name, value in answer.items():
            if isinstance(value, int) and not isinstance(value, bool):
                merged[name] = merged.get(name, 0) + value
            elif isinstance(value, list):
                merged.setdefault(name, []).extend(f"{name_of(str(each), shard)}" for each in value)
            elif value:
                known = merged.get(name)
                merged[name] = f"{known}, {name_of(str(value), shard)}" if known else name_of(str(value), shard)
            else:
                merged.setdefault(name, value)
    return merged


def _lines(answer: dict[str, Any]) -> list[str]:
    if "lanes" in answer and "behind_bytes" in answer:
        rows = [(lane, each["exported"], each["end"], each["behind_bytes"]) for lane, each in answer["lanes"].items()]
        heads = ("lane", "exported to", "of", "bytes behind")
        return [
            *table(heads, rows, width(sys.stdout), frozenset({1, 2, 3})),
            "",
            *rows_to_lines([("events", answer["directory"]), ("last count", answer["last_cut"] or "none")]),
        ]
    pairs: list[tuple[str, object]] = [("events", answer["rows"]), ("files", len(answer["files"]))]
    if "messages" in answer:
        pairs.append(
            ("queued", f"{counted(answer['messages'], 'message')}, {counted(answer['recipients'], 'recipient')}")
        )
        pairs.append(("count file", answer["file"]))
        pairs += [("messages queued", f"cuts/{answer['ids']}")] if answer["ids"] else []
    return rows_to_lines(pairs)


def _how_far(settings: Settings) -> dict[str, Any]:
    """Reads the progress of all shards from files; Waypost need not run."""
    found = [_how_far_of(each) for each in all_of(settings)]
    for shard, each in enumerate(found[1:], 1):
        found[0]["lanes"] |= {name_of(lane, shard): at for lane, at in each["lanes"].items()}
        found[0]["behind_bytes"] += each["behind_bytes"]
        found[0]["directory"] += f", {each['directory']}"
    return found[0]


def _how_far_of(settings: Settings) -> dict[str, Any]:
    disk = Disk()
    try:
        state = read_exported(disk, str(settings.events_directory / EXPORTED))
    except ValueError as error:
        raise OSError(str(error)) from error
    found = read_all_positions(disk, str(settings.queue_directory))
    ends = {lane: each.end for lane, each in found[-1].lanes.items()} if found else {}
    ends |= {JOURNAL: found[-1].journal_end} if found else {}
    lanes = {}
    for lane in sorted(ends.keys() - {HOLD, DELETED}):
        at = state.lanes.get(lane, ExportedLane(0)).at if state is not None else 0
        lanes[lane] = {"exported": at, "end": ends[lane], "behind_bytes": max(ends[lane] - at, 0)}
    cuts = sorted(path.name for path in (settings.events_directory / "cuts").glob("[0-9]*Z.json"))
    return {
        "enabled": settings.export.enabled,
        "directory": str(settings.events_directory),
        "lanes": lanes,
        "behind_bytes": sum(each["behind_bytes"] for each in lanes.values()),
        "last_cut": cuts[-1] if cuts else None,
    }


# -- show


def _show(arguments: argparse.Namespace) -> int:
    lines = JsonLines()
    more = False
    try:
        check(arguments.file, whole=True)
        with pq.ParquetFile(arguments.file, page_checksum_verification=True) as file:
            metadata = {
                name.decode(): value.decode("utf-8", "replace")
                for name, value in (file.metadata.metadata or {}).items()
                if name.startswith(b"waypost.")
            }
            total = file.metadata.num_rows
            if not arguments.json:
                for line in rows_to_lines([("events", total), *sorted(metadata.items())]):
                    say(line)
            for row in _rows(file, arguments.kind, arguments.id):
                if lines.count >= arguments.limit:
                    more = True
                    break
                if arguments.json:
                    lines.item(row)
                else:
                    lines.count += 1
                    _say_event(row)
    except pa.ArrowInvalid as error:
        fault = Fault(Code.INVALID, f"{arguments.file} is not an event file: {error}")
    except ChecksumError as error:
        fault = Fault(Code.INTERNAL, f"{arguments.file} is damaged: {error}")
    except BrokenPipeError:
        raise
    except OSError as error:
        fault = fault_of(error, str(arguments.file))
    else:
        if arguments.json:
            lines.end(more=more, file=str(arguments.file), events=total, metadata=metadata)
        elif more:
            say(f"\n-- {counted(lines.count, 'event')}; more with --limit")
        return DONE
    if arguments.json:
        lines.end(complete=False, error=fault, file=str(arguments.file))
    complain_fault(fault)
    return NOT_DONE


def _say_event(row: dict[str, Any]) -> None:
    say("")
    at = datetime.fromtimestamp(row.pop("at"), UTC).isoformat(" ", "milliseconds")
    place = f"{row.pop('lane')}:{row.pop('offset')}.{row.pop('part')}"
    say(f"{at} {row.pop('kind')} {plain(row.pop('queue_id'))} ({plain(place)})".replace("  ", " "))
    for line in rows_to_lines([(f"  {name}", _shown(value)) for name, value in row.items()]):
        say(line)


def _rows(file: pq.ParquetFile, kind: str | None, queue_id: str | None) -> Iterator[dict[str, Any]]:
    """Yields the events that match; columns without a value are left out."""
    for batch in file.iter_batches(BATCH_ROWS):
        for row in batch.to_pylist():
            if (kind is None or row["kind"] == kind) and (queue_id is None or row["queue_id"] == queue_id):
                yield {name: value for name, value in row.items() if value is not None}


def _shown(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
