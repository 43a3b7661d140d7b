"""``waypost restore``: restores a backup into an empty home and an empty database; restored mail is held."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

from mailcore.backup.archive import Archive, BackupDamaged, BackupTooNew
from mailcore.backup.database import database_url, portal_environment
from mailcore.backup.postgresql import DatabaseFailed
from mailcore.backup.restore import Restore, RestoreRefused
from mailcore.cli.backup import head_fields
from mailcore.config.load import load_text
from mailcore.config.settings import DIRECTORIES, Settings
from mailcore.counted import counted
from mailcore.queue.versions import RESTORING
from mailcore.terminal.command import DONE, NOT_DONE, add_common, first_configuration
from mailcore.terminal.output import complain, print_json, rows_to_lines, say

__all__ = ["configure", "moved_home"]

CONFIG = "config/waypost.toml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="file made by waypost backup")
    parser.add_argument(
        "--into", type=Path, metavar="HOME", help="restore into this home instead of the configured one"
    )
    parser.add_argument("--without-queue", action="store_true", help="do not restore the queue")
    parser.add_argument("--move-aside", action="store_true", help="rename an existing home instead of failing")
    parser.add_argument(
        "--dump-only",
        action="store_true",
        help="PostgreSQL: write the dump to home/portal, but do not load it",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        with Archive(arguments.file) as archive:
            head = archive.head
            text = _configuration_of(archive)
        config, settings, changed = _target(arguments.config, arguments.into, Path(head.config), text)
    except (BackupDamaged, BackupTooNew, RestoreRefused) as error:
        complain(f"nothing was restored: {error}")
        return NOT_DONE
    try:
        restore = Restore(
            settings,
            config,
            time.time(),
            with_queue=not arguments.without_queue,
            aside=arguments.move_aside,
            config_text=changed,
            database_url=database_url(settings, portal_environment(config, os.environ)),
            dump_only=arguments.dump_only,
        )
        done = restore.run(arguments.file)
    except (BackupDamaged, BackupTooNew, DatabaseFailed, RestoreRefused) as error:
        complain(f"nothing was restored: {error}")
        return NOT_DONE
    except OSError as error:
        why = f"{error.filename}: {error.strerror}" if error.filename else error
        if (settings.home / RESTORING).exists():
            complain(
                f"the restore is incomplete, and Waypost cannot start in {settings.home}; repeat the restore: {why}"
            )
        else:
            complain(f"nothing was restored: {why}")
        return NOT_DONE
    if arguments.json:
        aside = [str(path) for path in done.moved]
        result = {"home": str(settings.home), "config": str(config), "files": done.files, "parts": done.parts}
        print_json({**head_fields(head), **result, "moved_aside": aside, "notes": done.notes})
        return DONE
    pairs: list[tuple[str, object]] = [
        ("restored", f"{', '.join(done.parts)}: {counted(done.files, 'file')}"),
        ("into", settings.home),
        ("as of", datetime.fromtimestamp(head.made_at, UTC).isoformat(" ", "seconds")),
        ("configuration", config),
    ]
    pairs += [("renamed to", path) for path in done.moved]
    pairs += [("note", note) for note in done.notes]
    if "queue" in done.parts and not settings.nodes.is_on:
        pairs.append(
            (
                "held",
                "Waypost starts with all restored mail on hold; it may have been delivered since the backup",
            )
        )
    for line in rows_to_lines(pairs):
        say(line)
    return DONE


def _configuration_of(archive: Archive) -> str:
    for info, content in archive.files():
        if info.name == CONFIG:
            try:
                return content.everything().decode()
            except UnicodeDecodeError as error:
                raise BackupDamaged(f"{CONFIG}: {error}") from error
        content.member()
    raise BackupDamaged(f"{CONFIG} is missing")


def _target(given: Path | None, into: Path | None, was: Path, text: str) -> tuple[Path, Settings, str]:
    """Returns the path of the configuration, its settings, and its text if that differs from the backup.

    An existing file is kept: it belongs to this host. Raises ConfigError, RestoreRefused.
    """
    changed = ""
    if into is not None:
        config = given or into.absolute() / "waypost.toml"
        changed = text = moved_home(text, into.absolute())
    else:
        config = given or first_configuration() or was
    if config.exists():
        settings = load_text(config, config.read_text(encoding="utf-8"))
        if into is not None and settings.home != into.absolute():
            raise RestoreRefused(f"home is {settings.home} in {config}, but --into is {into}")
        return config, settings, ""
    return config, load_text(config, text), changed


def moved_home(text: str, home: Path) -> str:
    """Returns the text of a configuration with another home and all directories below it."""
    top, section, rest = text.partition("\n[") if not text.startswith("[") else ("", "[", text[1:])
    names = "|".join(("home", *DIRECTORIES))
    kept = re.sub(
        rf"""^[ \t]*["']?({names})["']?[ \t]*=.*\n?""", "", top if not section else f"{top}\n", flags=re.MULTILINE
    )
    return f"home = {json.dumps(str(home))}\n{kept}{section.removeprefix(chr(10))}{rest}"
