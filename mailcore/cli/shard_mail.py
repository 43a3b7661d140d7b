"""``waypost shard import|rebuild|give-up|close``: the mail of a disk becomes a shard, and a shard that has drained ends."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from mailcore.cli.database import asked
from mailcore.config.settings import Settings, shard_place
from mailcore.config.shards import adopted, of_shard
from mailcore.control.drained import left_in
from mailcore.counted import counted
from mailcore.faults import FaultError
from mailcore.log.disk import Disk, Locked
from mailcore.log.segment import SegmentTooNew
from mailcore.nodes import kept
from mailcore.nodes.closing import close
from mailcore.nodes.giving_up import give_up_held, held_shard
from mailcore.nodes.opening import open_or_make
from mailcore.nodes.parameters import parameters_of, shard_of
from mailcore.nodes.taking_in import Source, Taken, abandon, aside_source, copied_shard, take_in
from mailcore.queue.reserved_time import ReservedTooNew
from mailcore.queue.restored import RestoredDamaged, read_restored
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.shard import ShardRow
from mailcore.supervisor.preparation import HomeError, prepare_home
from mailcore.terminal.command import DONE, NOT_DONE, NOT_RUNNING, UsageError, add_common, settings_of
from mailcore.terminal.output import complain, complain_fault, plain, print_json, say

__all__ = ["add_mail_commands"]

IMPORT_HELP = "take the queue and the spool on this disk into the database, as this home's shard"
REBUILD_HELP = "make a shard from the files of this node, when its database is lost; its mail is held"
GIVE_UP_HELP = "give up a shard that was being taken in from a disk which is gone"
CLOSE_HELP = "close a shard for good that another node has adopted and that has drained"
_UNREADABLE = (HomeError, ReservedTooNew, RestoredDamaged, SegmentTooNew, msgspec.MsgspecError)

_Result = TypeVar("_Result")


def add_mail_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommands of this file."""
    importing = commands.add_parser(
        "import",
        help=IMPORT_HELP,
        description=f"{_sentence(IMPORT_HELP)} Stop Waypost first. It may be interrupted and given again: until it ends the"
        " mail is that of the disk, and waits; then it is that of the shard.",
    )
    importing.add_argument(
        "--abandon", action="store_true", help="give up what was begun: the mail is the disk's again"
    )
    add_common(importing)
    importing.set_defaults(run=_import)
    rebuilding = commands.add_parser(
        "rebuild",
        help=REBUILD_HELP,
        description=f"{_sentence(REBUILD_HELP)} It may have been delivered since. Stop Waypost first, unless --from is given."
        " It may be interrupted and given again.",
    )
    rebuilding.add_argument(
        "shard", metavar="SHARD", help="name of the shard; with --from, one that the database does not have"
    )
    rebuilding.add_argument(
        "--from",
        dest="aside",
        metavar="ASIDE",
        help="name of a directory aside-… in the queue and the spool: files put aside; or one of several queue directories"
        " that are a copy of the shard",
    )
    rebuilding.add_argument("--abandon", action="store_true", help="give up what was begun")
    add_common(rebuilding)
    rebuilding.set_defaults(run=_rebuild)
    giving_up = commands.add_parser(
        "give-up",
        help=GIVE_UP_HELP,
        description=f"{_sentence(GIVE_UP_HELP)} Mail that only that disk has is lost with it. If the disk is there, give"
        " waypost shard import --abandon at it instead. The name of the shard is not used again.",
    )
    giving_up.add_argument("shard", metavar="SHARD", help="name of the shard, which waypost shard list shows as held")
    giving_up.add_argument("--yes", action="store_true", help="skip the confirmation prompt")
    add_common(giving_up)
    giving_up.set_defaults(run=_give_up)
    closing = commands.add_parser(
        "close",
        help=CLOSE_HELP,
        description=f"{_sentence(CLOSE_HELP)} Give it on the node that has the shard. Its processes end, and its number is not"
        " used again. A home that comes back needs a shard of another name.",
    )
    closing.add_argument("shard", metavar="SHARD", help="name of the shard")
    add_common(closing)
    closing.set_defaults(run=_close)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


# -- taking in


def _import(arguments: argparse.Namespace) -> int:
    settings = _home(arguments)
    source = Source(settings, shard_of(settings))
    if not arguments.abandon:
        _refuse_empty(Disk(), settings)
    return _run(arguments, source, locked=True)


def _rebuild(arguments: argparse.Namespace) -> int:
    settings, disk = _home(arguments), Disk()
    command = f"waypost shard rebuild {arguments.shard}"
    if arguments.aside and "/" not in arguments.aside:
        if not re.fullmatch(r"aside-.+", arguments.aside):
            raise UsageError(
                "shard rebuild: argument --from: must be the name of a directory aside-… in the queue directory, or a queue"
                " directory"
            )
        source = aside_source(
            Source(settings, arguments.shard, is_held=True, command=f"{command} --from {arguments.aside}"),
            arguments.aside,
        )
        if not arguments.abandon:
            _refuse_empty(disk, source.settings)
        return _run(arguments, source, locked=False)
    places = [settings, *_adopted_places(settings, arguments.shard)]
    found = [each for each in places if copied_shard(disk, each) == arguments.shard]
    if not found:
        raise UsageError(f"shard rebuild: no files here are the copy of a shard {arguments.shard}; waypost shard import takes a"
                         " queue in that was on the disk alone")  # fmt: skip
    if arguments.aside:
        found = [each for each in found if str(each.queue_directory) == arguments.aside]
        command += f" --from {arguments.aside}"
        if not found:
            raise UsageError(f"shard rebuild: argument --from: is not a copy of shard {arguments.shard} on this node")
    if len(found) > 1:
        copies = ", ".join(f"{each.queue_directory} (written {_written(disk, each)})" for each in found)
        raise UsageError(
            f"shard rebuild: {len(found)} copies of shard {arguments.shard} are here: {copies}; name the one of its last owner"
            " with --from"
        )
    if not arguments.abandon:
        _refuse_empty(disk, found[0])
    return _run(arguments, Source(found[0], arguments.shard, is_held=True, command=command), locked=True)


def _written(disk: Disk, settings: Settings) -> str:
    """Returns when a file of the queue was last written, for people."""
    paths = [Path(directory, name) for directory, name in kept.kept_files(disk, settings)]
    if not paths:
        return "never"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(max(path.stat().st_mtime for path in paths)))


def _home(arguments: argparse.Namespace) -> Settings:
    settings = settings_of(arguments)
    if not settings.nodes.is_on:
        raise UsageError("shard: no database keeps this queue; set database in [nodes]")
    return of_shard(settings, 0)


def _adopted_places(settings: Settings, shard: str) -> list[Settings]:
    """Returns the settings of the places in which shards of other nodes were."""
    directory = settings.home / shard_place(Path(), 1).parent
    names = [each.name for each in directory.iterdir()] if directory.is_dir() else []
    return [adopted(settings, int(name), shard) for name in sorted(names) if re.fullmatch("[0-9]{2}", name)]


def _refuse_empty(disk: Disk, settings: Settings) -> None:
    if next(kept.kept_files(disk, settings), None) is None:
        raise UsageError(f"shard: {settings.queue_directory} has no queue")


@contextlib.contextmanager
def _stopped(settings: Settings, locked: bool) -> Iterator[None]:
    """Holds the lock of the home, so that no Waypost runs or starts meanwhile, or that of files put aside. Raises HomeError."""
    lock = prepare_home(settings) if locked else _lock_aside(settings)
    try:
        yield
    finally:
        _give_to_owner(settings)
        os.close(lock)


def _lock_aside(settings: Settings) -> int:
    """Locks files put aside: Waypost may run, but no other command takes them in."""
    try:
        return Disk().lock(str(settings.queue_directory / "lock"))
    except Locked as error:
        raise HomeError(f"another command takes {settings.queue_directory} in at this moment") from error


def _give_to_owner(settings: Settings) -> None:
    """Gives what root has made to the owner of the home."""
    if os.geteuid() != 0:
        return
    owner = settings.home.stat()
    for directory in (settings.home, settings.place, settings.queue_directory, settings.run_directory):
        for path in [directory, *directory.iterdir()] if directory.is_dir() else []:
            if not path.is_symlink() and path.stat().st_uid == 0 and owner.st_uid:
                shutil.chown(path, owner.st_uid, owner.st_gid)


def _run(arguments: argparse.Namespace, source: Source, *, locked: bool) -> int:
    is_restored = False  # the queue comes from a backup, whose mail is held

    def tell(words: str) -> None:
        if not arguments.json:
            say(plain(words))

    def work(connection: Connection, system: int) -> Taken | None:
        if arguments.abandon:
            abandon(source.settings, connection, system)
            return None
        nonlocal is_restored
        is_restored = bool(read_restored(Disk(), source.queue).backup_at)
        return take_in(source, connection, system, say=tell)

    status, taken = _with_database(source.settings, locked, work)
    if status != DONE:
        return status
    if taken is None:
        if arguments.json:
            print_json({"shard": source.shard, "abandoned": True})
        else:
            say("the mail is that of this disk again")
        return DONE
    if arguments.json:
        print_json(
            {
                "shard": taken.shard.name, "number": taken.shard.number, "files": taken.files, "bytes": taken.bytes,
                "held": source.is_held, "restored": is_restored, "was_there": taken.was_there,
                "damaged": taken.lost_count, "damages": taken.lost,
            }
        )  # fmt: skip
        return DONE
    if taken.was_there:
        say(plain(f"shard {taken.shard.name} has the mail already"))
    else:
        held = (
            ", and its mail is held"
            if source.is_held
            else ", and what a backup brought back is held"
            if is_restored
            else ""
        )
        say(plain(f"shard {taken.shard.name} has {counted(taken.files, 'file')} of {taken.bytes} bytes{held}"))
    for each in taken.lost:
        say(plain(f"damaged: {each}"))
    if taken.lost_count > len(taken.lost):
        say(f"damaged: {taken.lost_count - len(taken.lost)} more")
    return DONE


def _with_database(
    settings: Settings, locked: bool, work: Callable[[Connection, int], _Result]
) -> tuple[int, _Result | None]:
    """Returns the exit status, and what ``work`` returned. A database without tables gets them."""
    try:
        with _stopped(settings, locked):
            connection, findings = open_or_make(parameters_of(settings))
            try:
                return DONE, work(connection, findings.system)
            finally:
                connection.close()
    except StoreError as error:
        complain_fault(error.fault)
        return NOT_RUNNING, None
    except FaultError as error:
        complain_fault(error.fault)
        return NOT_DONE, None
    except OSError as error:
        complain(
            f"{error.filename or settings.place}: {error.strerror or error}; when that is mended, give the command again"
        )
        return NOT_DONE, None
    except _UNREADABLE as error:
        complain(f"{error}; nothing was taken in")
        return NOT_DONE, None


# -- giving up


def _give_up(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    status, held = asked(settings, "shard", lambda connection: held_shard(connection, arguments.shard))
    if held is None:
        return status
    if not arguments.yes and not _confirmed(held, arguments.json):
        return NOT_DONE
    status, row = asked(settings, "shard", lambda connection: give_up_held(connection, arguments.shard))
    if row is None:
        return status
    if arguments.json:
        print_json({"shard": row.name, "number": row.number, "state": row.state})
    else:
        say(
            plain(
                f"shard {row.name} is given up: nothing of it is left in the database, and its name is not used again"
            )
        )
    return DONE


def _confirmed(row: ShardRow, json: bool) -> bool:
    """Asks for confirmation. Raises UsageError if stdin is not a terminal."""
    question = (
        f"give up shard {plain(row.name)}, which {plain(row.node)} takes in from its disk; that saves no mail of it"
    )
    if not sys.stdin.isatty() or json:
        raise UsageError(f"this would {question}; nothing was changed. Confirm with --yes")
    return input(f"{question}? [y/N] ").strip().lower() in ("y", "yes")


# -- closing


def _close(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)

    def work(connection: Connection) -> ShardRow:
        return close(connection, settings, arguments.shard, lambda shard: left_in(shard, exports=True))

    status, row = asked(settings, "shard", work)
    if row is None:
        return status
    if arguments.json:
        print_json({"shard": row.name, "number": row.number, "state": row.state})
    else:
        say(plain(f"shard {row.name} is closed; its events stay for as long as keep_days of [export] says"))
    return DONE
