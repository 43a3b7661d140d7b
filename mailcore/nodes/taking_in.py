"""Takes the files of a queue on this disk into the database, as the first state of a shard.

They are those of a queue that was on the disk alone (``import``), or the copy of a shard whose database is lost (``rebuild``);
the mail of a copy is held, because it may have been delivered since.

- law: disk-or-shard. One row says whose the mail is. Until the shard's row is opened it is the disk's, and no node takes a held
  shard; behind that it is the shard's, and no process starts with the files on their own. A note beside the files, which is
  there before the row, keeps a start from believing either.

The row is opened when everything has been read back from the database and is what the disk has. It may be killed anywhere and
run again: then it begins another epoch, so that nothing of before is still under way, and puts all files again. Nothing here
changes or deletes a file of the queue.

Keeps law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from mailcore.config.settings import Settings
from mailcore.faults import Code, FaultError
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage, Segment, SegmentDamaged, base_of, name_of, read_what_is_there
from mailcore.nodes import kept
from mailcore.nodes.held_mail import marker_of
from mailcore.nodes.names import new_owner
from mailcore.nodes.owned import write_owned
from mailcore.nodes.parameters import node_of, parameters_of, shard_of
from mailcore.nodes.stored_events import local_events
from mailcore.nodes.writing import MANAGER, PICKUPS
from mailcore.queue.lanes import incoming, is_incoming
from mailcore.queue.queue_id import PICKUP
from mailcore.queue.queue_id import shard_of as number_in
from mailcore.queue.records import decode_envelope
from mailcore.queue.reserved_time import NAME as IDS
from mailcore.queue.reserved_time import OF_CONTROL, read_reserved
from mailcore.queue.restored import NAME as RESTORED
from mailcore.queue.restored import encode_restored
from mailcore.queue.shard_copy import (
    ShardCopy,
    TakingIn,
    forget_taking_in,
    read_copy,
    read_taking_in,
    write_copy,
    write_taking_in,
)
from mailcore.replication.batch import CHUNK_BYTES_MAX, Batch, Ends
from mailcore.replication.confirmed import ConfirmedNumbers
from mailcore.replication.connection import Connection
from mailcore.replication.ending import CLOSED, HELD, begin_again, free_files, free_writers, give_up
from mailcore.replication.faults import Lost, ServerError
from mailcore.replication.node_row import beat_node
from mailcore.replication.shard import ShardRow, confirm_owner, place, read_shard, register, reserve_ids, set_state
from mailcore.replication.snapshot import Snapshot, StoredFile, snapshot
from mailcore.replication.writer import StoreWriter

__all__ = ["PROOF", "CannotTakeIn", "Source", "Taken", "abandon", "is_taken_in", "settle", "take_in"]

WRITER = "i"
PROOF = "import"  # a small file of the shard: whose files these are
BATCH_BYTES = 4 << 20
BATCH_FILES = 500
DAMAGES_NAMED = 20

Step = Callable[[str], None]


class CannotTakeIn(FaultError):
    """Raised if files are not taken in. The words say why, and whose the mail is."""

    default = Code.CONFLICT


@dataclass(frozen=True)
class Source:
    """Files to take in as a shard. ``settings`` are those of the place where they are; ``is_held``: their mail is held."""

    settings: Settings
    shard: str
    is_held: bool = False
    has_events: bool = True
    command: str = "waypost shard import"

    @property
    def queue(self) -> str:
        """Returns the queue directory."""
        return str(self.settings.queue_directory)

    @property
    def is_own(self) -> bool:
        """Returns whether it becomes the shard of this home, which takes mail; another one drains."""
        return self.shard == shard_of(self.settings) and not self.settings.shard


@dataclass
class Taken:
    """The result. ``lost`` names the damage in the files that were taken in, as far as it is named."""

    shard: ShardRow
    files: int = 0
    bytes: int = 0
    lost: list[str] = field(default_factory=list)
    lost_count: int = 0
    was_there: bool = False  # an earlier command had done it


def take_in(
    source: Source,
    connection: Connection,
    system: int,
    *,
    disk: Disk | None = None,
    step: Step = lambda _: None,
    say: Step = lambda _: None,
) -> Taken:
    """Takes the files in, and returns when the shard is open and has them. The caller holds the lock of the home.

    ``step`` is called in front of each thing that counts. Raises CannotTakeIn, StoreError, OSError.
    """
    return _TakingIn(source, connection, system, disk or Disk(), step, say).run()


def is_taken_in(connection: Connection, note: TakingIn) -> ShardRow | None:
    """Returns the row if a shard was opened with the files of this note; None if it was not, and may be later.

    The caller has written to the database before, and that has returned.
    """
    with snapshot(connection, note.shard) as shown:
        if shown is None or shown.shard.state == HELD or shown.states.get(PROOF) != note.owner.encode():
            return None
        return shown.shard


def settle(disk: Disk, settings: Settings, connection: Connection, system: int) -> None:
    """Ends what a command has begun here, if the shard has the files. Raises CannotTakeIn if it has not."""
    queue = str(settings.queue_directory)
    note = read_taking_in(disk, queue)
    if note is None:
        return
    _refuse_other_database(queue, note, system)
    beat_node(connection, node_of(settings))  # all that is read behind it is on two servers
    row = is_taken_in(connection, note)
    if row is None:
        raise CannotTakeIn(
            f"{queue} was being taken into the database as shard {note.shard}, which has not ended: stop Waypost and give"
            f" {note.command} again. Until then the mail is that of this disk, and waits."
        )
    _finish(disk, settings, connection, row, system)


def abandon(
    settings: Settings,
    connection: Connection,
    system: int,
    *,
    disk: Disk | None = None,
    step: Step = lambda _: None,
) -> None:
    """Gives up what was not ended: the mail is the disk's again. Raises CannotTakeIn if the shard has it already."""
    disk = disk or Disk()
    queue = str(settings.queue_directory)
    note = read_taking_in(disk, queue)
    if note is None:
        raise CannotTakeIn(f"{queue} is not being taken into a database.", code=Code.NOT_FOUND)
    _refuse_other_database(queue, note, system)
    beat_node(connection, node_of(settings))
    row = read_shard(connection, note.shard)
    if row is not None and row.owner == note.owner and row.state == HELD:
        step("begin again")
        row = begin_again(connection, row)  # a statement of an earlier command finds another epoch
        if row is None:
            raise CannotTakeIn(f"Shard {note.shard} has changed at this moment. Give the command again.")
        step("free writers")
        free_writers(
            connection, row
        )  # a commit of an earlier command that is under way is waited for, a later one finds none
        step("free")
        free_files(connection, row)
        step("give up")
        if not give_up(connection, row):
            raise CannotTakeIn(f"Shard {note.shard} has changed at this moment. Give the command again.")
    elif is_taken_in(connection, note) is not None:
        raise CannotTakeIn(
            f"Shard {note.shard} has all of the mail already, and another node may deliver it. Start Waypost with [nodes]."
        )
    step("forget")
    forget_taking_in(disk, queue)


def _refuse_other_database(queue: str, note: TakingIn, system: int) -> None:
    """Raises CannotTakeIn if another database may have the mail, and let any node deliver it."""
    if note.system != system:
        raise CannotTakeIn(
            f"{queue} was being taken into another database (system {note.system}) as shard {note.shard}, which may have all of"
            f" it: name that one in [nodes], and end it with {note.command}. If that database is lost, waypost shard rebuild"
            f" {note.shard} takes the mail in here, and holds it."
        )


class _TakingIn:
    def __init__(self, source: Source, connection: Connection, system: int, disk: Disk, step: Step, say: Step) -> None:
        self._source = source
        self._settings = source.settings
        self._connection = connection
        self._system = system
        self._disk = disk
        self._step = step
        self._say = say
        self._changed: dict[str, bytes] = {}  # small files that the shard has in another form than the disk

    def run(self) -> Taken:
        source, disk = self._source, self._disk
        note = read_taking_in(disk, source.queue)
        if note is not None and note.system != self._system:
            if not source.is_held:
                _refuse_other_database(source.queue, note, self._system)
            note = None  # that one is lost, as this command says: the mail may have been delivered since, and is held
        if note is not None and (note.shard, note.is_held) != (source.shard, source.is_held):
            held = ", with its mail held" if note.is_held else ""
            raise CannotTakeIn(
                f"{source.queue} is being taken in as shard {note.shard}{held}: end that first with {note.command}, or give it"
                f" up with {note.command} --abandon."
            )
        beat_node(self._connection, node_of(self._settings))
        if note is not None and (row := is_taken_in(self._connection, note)) is not None:
            self._place(row, note)
            self._step("finish")
            _finish(disk, self._settings, self._connection, row, self._system)
            return Taken(row, was_there=True)
        copy = read_copy(disk, source.queue)
        there = read_shard(self._connection, source.shard) if note is None else None
        if there is not None and there.state != HELD and copy == ShardCopy(source.shard, self._system):
            forget_taking_in(disk, source.queue)  # of another database
            return Taken(there, was_there=True)
        if copy is not None and not source.is_held:
            raise CannotTakeIn(
                f"{source.queue} is the copy of shard {copy.shard}. If its database is lost, run waypost shard rebuild"
                f" {copy.shard}."
            )
        if note is None:
            if there is not None:
                raise CannotTakeIn(
                    f"The database has a shard {source.shard} already (number {there.number}, {there.state}). The mail of this"
                    " disk was not taken in. Choose a name that no shard has.",
                    argument="shard",
                )
            note = TakingIn(source.shard, new_owner(self._settings, disk), self._system, source.is_held, source.command)
            self._step("note")
            write_taking_in(disk, source.queue, note)
        row = self._held(note)
        taken = Taken(row)
        ends = self._ends()
        if source.is_held:
            self._look_for_damage(taken)
            marker = marker_of(disk, source.queue, {lane: end for lane, (_, end) in ends.items()})
            self._changed[f"{kept.QUEUE}/{RESTORED}"] = encode_restored(marker)
        self._put(row, note, taken)
        self._put_ends(row, ends)
        self._step("reserve")
        reserve_ids(self._connection, row.name, row.epoch, self._reserved())
        self._say("reading all of it back")
        self._verify(row, taken)
        self._step("open")
        set_state(self._connection, row, "open" if source.is_own else "draining")
        self._place(row, note)
        self._step("finish")
        _finish(disk, self._settings, self._connection, row, self._system)
        return taken

    def _place(self, row: ShardRow, note: TakingIn) -> None:
        """Lets this node take a shard that is not its own, also if it leaves the shards of others to others."""
        if self._source.is_own or row.owner != note.owner or row.placed:
            return
        self._step("place")
        node = node_of(self._settings)
        if place(self._connection, row, node, node):
            return
        there = read_shard(self._connection, row.name)
        if there is None or there.owner == note.owner:  # another owner delivers it
            raise CannotTakeIn(f"Shard {row.name} has changed at this moment. Give {note.command} again.")

    def _held(self, note: TakingIn) -> ShardRow:
        """Returns the row, in an epoch in which nothing else writes."""
        self._step("register")
        row = read_shard(self._connection, note.shard)
        if row is None:
            least = self._number_in_ids() if self._source.is_held else 1
            return register(self._connection, note.shard, note.owner, state=HELD, least=max(1, least))
        if row.state == CLOSED and not row.owner:
            raise CannotTakeIn(
                f"Shard {note.shard} was given up at another node (waypost shard give-up), and its name is not used again. Give"
                f" {note.command} --abandon, name another shard in [nodes], and take the mail in under that name.",
                argument="shard",
            )
        if row.owner != note.owner:
            raise CannotTakeIn(
                f"Shard {note.shard} belongs to {row.owner}, and not to what was begun here. Choose a name that no shard has;"
                f" {note.command} --abandon gives up what was begun.",
                argument="shard",
            )
        self._step("begin again")
        again = begin_again(self._connection, row)
        if again is None:
            raise CannotTakeIn(f"Shard {note.shard} has changed at this moment. Give the command again.")
        return again

    # -- the files

    def _files(self) -> Iterator[tuple[str, str, bool]]:
        """Yields (name in the store, path, whether it is a small one)."""
        directories = kept.directories_of(self._settings)
        for directory, name in kept.kept_files(self._disk, self._settings):
            yield f"{directories[directory]}/{name}", os.path.join(directory, name), "/" not in name
        if self._source.has_events:
            directory = str(self._settings.events_directory)
            for name in local_events(self._disk, directory):
                small = name == kept.EXPORTED_POSITIONS
                yield f"{directories[directory]}/{name}", os.path.join(directory, name), small

    def _pieces(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yields (offset, bytes) of a file. A copy is read as far as it can be; a queue that is in use must be readable."""
        fd = self._disk.open_read(path)
        try:
            size = self._disk.size(fd)
            for at in range(0, size, CHUNK_BYTES_MAX):
                length = min(CHUNK_BYTES_MAX, size - at)
                if self._source.is_held:
                    yield at, read_what_is_there(self._disk, fd, length, at)
                else:
                    yield at, self._disk.read(fd, length, at)
        finally:
            self._disk.close(fd)

    def _put(self, row: ShardRow, note: TakingIn, taken: Taken) -> None:
        self._step("begin")
        writer = StoreWriter(parameters_of(self._settings), row.name, WRITER, row.epoch)
        try:
            writer.begin()
            self._step("free")
            free_files(self._connection, row)
            batch, files = Batch(), 0
            batch.put(PROOF, note.owner.encode())
            for name, data in self._changed.items():
                batch.put(name, data)
            for name, path, is_small in self._files():
                if name in self._changed:
                    continue
                taken.files, files = taken.files + 1, files + 1
                if is_small:
                    batch.put(name, self._disk.read_whole(path))
                    continue
                for at, data in self._pieces(path):
                    verb = batch.blob if name.startswith(f"{kept.SPOOL}/") else batch.append
                    verb(name, at, [data])
                    if batch.bytes >= BATCH_BYTES:
                        taken.bytes += self._commit(writer, batch)
                        batch, files = Batch(), 0
                if files >= BATCH_FILES:
                    taken.bytes += self._commit(writer, batch)
                    batch, files = Batch(), 0
            taken.bytes += self._commit(writer, batch)
        finally:
            writer.close()

    def _commit(self, writer: StoreWriter, batch: Batch) -> int:
        self._step("commit")
        try:
            writer.commit(batch, {})
        except ServerError as error:
            raise CannotTakeIn(
                f"The database refused it: {error.fault.message}. The mail is still that of this disk, and nothing here has"
                f" changed. When the database has room, give {self._source.command} again; with --abandon it gives up and"
                " frees the space in the database.",
                code=Code.UNAVAILABLE,
            ) from None
        return batch.bytes

    def _lanes(self) -> list[str]:
        return [name for name in self._disk.list(self._source.queue) if kept.is_lane(name)]

    def _ends(self) -> Ends:
        """Returns where the records of each lane end, as a start would find it."""
        ends: Ends = {}
        for lane in self._lanes():
            directory = os.path.join(self._source.queue, lane)
            bases = [base for base in map(base_of, self._disk.list(directory)) if base is not None]
            for base in reversed(bases):
                try:
                    segment = Segment(self._disk, os.path.join(directory, name_of(base)))
                except SegmentDamaged:
                    continue
                try:
                    ends[lane] = base, segment.end_of_records()
                    break
                finally:
                    segment.close()
        return ends

    def _put_ends(self, row: ShardRow, ends: Ends) -> None:
        by_writer: dict[str, Ends] = {}
        for lane, end in ends.items():
            by_writer.setdefault(_writer_of(lane), {})[lane] = end
        for name, its in by_writer.items():
            self._step("ends")
            writer = StoreWriter(parameters_of(self._settings), row.name, name, row.epoch)
            try:
                writer.begin()
                writer.commit(Batch(), its)
            finally:
                writer.close()

    def _reserved(self) -> int:
        """Returns the time up to which queue ids may have been given out."""
        queue = self._source.queue
        paths = [os.path.join(queue, OF_CONTROL), *(os.path.join(queue, lane, IDS) for lane in self._lanes())]
        return max(int(time.time() * 1e6), *(read_reserved(self._disk, path) for path in paths))

    def _number_in_ids(self) -> int:
        """Returns the highest number in the id of a message; 0 if there is none. No lower one is lent.

        The mail may have begun in several databases, which lent different numbers.
        """
        highest = 0
        for lane in self._lanes():
            reader = LaneReader(self._disk, os.path.join(self._source.queue, lane), lambda _: None)
            try:
                for record in reader.records(0):
                    if record.type == RecordType.ENVELOPE:
                        with contextlib.suppress(msgspec.MsgspecError, struct.error, ValueError):
                            highest = max(highest, number_in(decode_envelope(record.body).queue_id))
            finally:
                reader.close()
        return highest

    def _look_for_damage(self, taken: Taken) -> None:
        """Names what cannot be read of a copy. A hole at the very end of a lane is a write that was cut short."""

        def note(damage: Damage) -> None:
            taken.lost_count += 1
            if len(taken.lost) < DAMAGES_NAMED:
                taken.lost.append(
                    f"{damage.path}: {damage.end - damage.offset} bytes at {damage.offset}: {damage.what}"
                )

        for lane in self._lanes():
            reader = LaneReader(self._disk, os.path.join(self._source.queue, lane), note)
            try:
                for _ in reader.records(0):
                    pass
            finally:
                reader.close()

    # -- reading back

    def _verify(self, row: ShardRow, taken: Taken) -> None:
        """Compares every byte. Raises CannotTakeIn, ChunkDamaged."""
        here = {name: path for name, path, _ in self._files()}
        wanted = {name for name, path in here.items() if name in self._changed or self._disk.size_of(path)}
        wanted |= self._changed.keys()
        with snapshot(self._connection, row.name) as shown:
            if shown is None or (shown.shard.epoch, shown.shard.owner) != (row.epoch, row.owner):
                raise Lost(f"Shard {row.name} was changed meanwhile.")
            for stored in shown.files():
                if stored.name == PROOF:
                    continue
                if stored.name not in wanted or not self._is_equal(shown, stored, here.get(stored.name, "")):
                    raise self._differs(stored.name)
                wanted.discard(stored.name)
        if wanted:
            raise self._differs(min(wanted))

    def _is_equal(self, shown: Snapshot, stored: StoredFile, path: str) -> bool:
        if stored.data is not None:
            changed = self._changed.get(stored.name)
            return stored.data == (self._disk.read_whole(path) if changed is None else changed)
        fetched = shown.fetch(stored.chunks)
        for at, data in self._pieces(path):
            place, there = next(fetched, (None, b""))
            if place is None or place.at != at or there != data:
                return False
        return next(fetched, None) is None

    def _differs(self, name: str) -> CannotTakeIn:
        return CannotTakeIn(
            f"The database has something else for {name} than this disk. The mail is still that of this disk, and nothing here"
            f" has changed. Give {self._source.command} again."
        )


def _finish(disk: Disk, settings: Settings, connection: Connection, row: ShardRow, system: int) -> None:
    """Makes the files the copy of the shard: the mail is not the disk's any more. It may be repeated."""
    queue = str(settings.queue_directory)
    confirmed = ConfirmedNumbers(disk, str(settings.place))
    with snapshot(connection, row.name) as shown:
        if shown is not None:
            numbers = {each.writer: each.n for each in shown.writers.values()}
            confirmed.accept(system, row.name, shown.shard.epoch, numbers)
    confirmed.save()
    write_copy(disk, queue, ShardCopy(row.name, system))
    ours = confirm_owner(connection, row.name, row.epoch, row.owner)
    if ours is not None and row.name == shard_of(settings) and not settings.shard:
        disk.make_directory(str(settings.run_directory))
        write_owned(disk, settings, ours, system)  # the next start of this home need not wait
    forget_taking_in(disk, queue)


def _writer_of(lane: str) -> str:
    """Returns the name of the process that writes a lane."""
    if lane == incoming(PICKUP):
        return PICKUPS
    return f"r{lane.rpartition('.')[2]}" if is_incoming(lane) else MANAGER


def aside_source(source: Source, directory: str) -> Source:
    """Returns the source for files that were put aside in ``directory`` of the queue and of the spool."""
    settings = source.settings
    moved = replace(
        settings,
        queue_directory=settings.queue_directory / directory,
        spool_directory=settings.spool_directory / directory,
    )
    return replace(source, settings=moved, has_events=False)


def copied_shard(disk: Disk, settings: Settings) -> str:
    """Returns the name of the shard of which the files in this place are a copy, or may be one; "" if they are none."""
    queue = str(settings.queue_directory)
    copy = read_copy(disk, queue) or read_taking_in(disk, queue)
    return "" if copy is None else copy.shard
