"""``waypost backup``: saves configuration, keys and the portal's database to one file while Waypost runs.

Reports and the queue are included on request. ``--verify`` checks that a backup is complete and undamaged.
"""

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
from mailcore.counted import counted
from mailcore.log.positions import PositionsDamaged, PositionsTooNew
from mailcore.log.segment import SegmentTooNew
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, add_common, config_path, file_name
from mailcore.terminal.output import complain, print_json, rows_to_lines, say, size_shown

__all__ = ["configure", "head_fields"]

ENDING = ".tar.zst"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.add_argument(
        "place", type=file_name, metavar="FILE", help=f"new file; in a directory, the name is waypost-HOST-TIME{ENDING}"
    )
    parser.add_argument("--queue", action="store_true", help="include the queue; its mail is held after a restore")
    parser.add_argument("--reports", action="store_true", help="include events and reports")
    parser.add_argument(
        "--verify", action="store_true", help="check that the existing backup FILE is complete and undamaged"
    )
    parser.set_defaults(run=_run)


def _place(given: str) -> Path:
    """Returns FILE as a path. Raises UsageError if its directory does not exist."""
    path = Path(given)
    if not (path if given.endswith("/") else path.parent).is_dir():
        missing = path if given.endswith("/") else path.parent
        raise UsageError(f"backup: argument FILE: no such directory: {missing}", argument="FILE")
    return path


def _run(arguments: argparse.Namespace) -> int:
    place = _place(arguments.place)
    if arguments.verify:
        if arguments.queue or arguments.reports:
            raise UsageError("backup: --verify cannot be combined with --queue or --reports")
        return _verify(place, arguments.json)
    config = config_path(arguments)
    settings = load(config, look_at_certificate=False)
    now, host = time.time(), settings.receiver.hostname or socket.gethostname()
    path = place
    if path.is_dir():
        path /= f"waypost-{host}-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}{ENDING}"
    if path.exists():
        raise UsageError(f"backup: {path} already exists; give another name")
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
        complain(f"no backup was made: another process has created {path} meanwhile")
        return NOT_DONE
    except OSError as error:
        complain(f"no backup was made: {error.filename or path}: {error.strerror or error}")
        return NOT_DONE
    if arguments.json:
        document = {"file": str(made.path), "parts": made.parts, "files": made.files}
        print_json({**document, "bytes": made.bytes_read, "bytes_written": made.bytes_written, "notes": made.notes})
        return DONE
    pairs: list[tuple[str, object]] = [
        ("backup", made.path),
        ("contents", ", ".join(made.parts)),
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
        print_json({"file": str(path), "whole": True, **head_fields(head), "files": files, "bytes": size})
        return DONE
    made = datetime.fromtimestamp(head.made_at, UTC).isoformat(" ", "seconds")
    for line in rows_to_lines(
        [
            ("undamaged", f"{counted(files, 'file')}, {size_shown(size)}"),
            ("made", f"{made} on {head.host} by Waypost {head.waypost}"),
            ("contents", ", ".join(head.parts)),
            *([("shards", ", ".join(map(str, head.shards)))] if head.shards else []),
        ]
    ):
        say(line)
    return DONE


def head_fields(head: Head) -> dict[str, object]:
    """Returns the head of a backup for JSON output."""
    fields: dict[str, object] = {
        "made_at": head.made_at,
        "host": head.host,
        "waypost": head.waypost,
        "parts": head.parts,
    }
    return fields | ({"shards": head.shards} if head.shards else {})
