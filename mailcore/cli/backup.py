"""``waypost backup``: configuration, keys and the portal's database in one file, on request the reports and the queue, while
everything runs; ``--verify`` reads one and says whether it is whole."""

from __future__ import annotations

import argparse
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

from mailcore.backup.archive import BackupDamaged, BackupTooNew, Head
from mailcore.backup.backup import make_backup
from mailcore.backup.postgresql import DatabaseFailed
from mailcore.backup.restore import verify
from mailcore.backup.snapshot import SnapshotFailed
from mailcore.config.load import load
from mailcore.log.positions import PositionsDamaged, PositionsTooNew
from mailcore.log.segment import SegmentTooNew
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, config_path
from mailcore.terminal.output import complain, print_json, rows_to_lines, say, size_shown

__all__ = ["configure", "told_of"]

ENDING = ".tar.zst"


def configure(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument(
        "place", type=_place, metavar="FILE", help=f"a file, or a directory for WAYPOST-HOST-TIME{ENDING}"
    )
    parser.add_argument("--queue", action="store_true", help="the queue as it is now, too; restored, its mail is held")
    parser.add_argument("--reports", action="store_true", help="events and reports, too")
    parser.add_argument("--verify", action="store_true", help="make none: read this one, and say whether it is whole")
    parser.set_defaults(run=_run)


def _place(given: str) -> Path:
    """Raises argparse.ArgumentTypeError: a directory that is not there is no file's name."""
    path = Path(given)
    if not (path if given.endswith("/") else path.parent).is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path if given.endswith('/') else path.parent}")
    return path


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verify:
        if arguments.queue or arguments.reports:
            raise UsageError("backup: --verify goes without --queue and --reports: it reads what is there")
        return _verify(arguments.place, arguments.json)
    config = config_path(arguments)
    settings = load(config)
    now, host = time.time(), settings.receiver.hostname or socket.gethostname()
    path: Path = arguments.place
    if path.is_dir():
        path /= f"waypost-{host}-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}{ENDING}"
    if path.exists():
        raise UsageError(f"backup: {path} is there already; give another name")
    try:
        made = make_backup(
            settings,
            config,
            path,
            queue=arguments.queue,
            reports=arguments.reports,
            now=now,
            host=host,
            environment=os.environ,
        )
    except (DatabaseFailed, SnapshotFailed, PositionsDamaged, PositionsTooNew, SegmentTooNew, ValueError) as error:
        complain(f"no backup was made: {error}")
        return NOT_DONE
    except FileExistsError:
        complain(f"no backup was made: {path} is there by now; another has made it")
        return NOT_DONE
    except OSError as error:
        complain(f"no backup was made: {error.filename or path}: {error.strerror or error}")
        return NOT_DONE
    if arguments.json:
        told = {"file": str(made.path), "parts": made.parts, "files": made.files}
        print_json({**told, "bytes": made.bytes_read, "bytes_written": made.bytes_written, "notes": made.notes})
        return DONE
    pairs: list[tuple[str, object]] = [
        ("backup", made.path),
        ("of", ", ".join(made.parts)),
        ("files", f"{made.files}, {size_shown(made.bytes_read)}, {size_shown(made.bytes_written)} written"),
        *(("note", note) for note in made.notes),
    ]
    for line in rows_to_lines(pairs):
        say(line)
    return DONE


def _verify(path: Path, as_json: bool) -> int:
    try:
        head, files, size = verify(path)
    except (BackupDamaged, BackupTooNew) as error:
        if as_json:
            print_json({"file": str(path), "whole": False, "fault": str(error)})
        complain(error)
        return NOT_DONE
    if as_json:
        print_json({"file": str(path), "whole": True, **told_of(head), "files": files, "bytes": size})
        return DONE
    made = datetime.fromtimestamp(head.made_at, UTC).isoformat(" ", "seconds")
    for line in rows_to_lines(
        [
            ("whole", f"{files} files, {size_shown(size)}"),
            ("made", f"{made} on {head.host} by Waypost {head.waypost}"),
            ("of", ", ".join(head.parts)),
        ]
    ):
        say(line)
    return DONE


def told_of(head: Head) -> dict[str, object]:
    """For JSON."""
    return {"made_at": head.made_at, "host": head.host, "waypost": head.waypost, "parts": head.parts}
