"""Takes messages out of the maildrop into a lane of its own, each exactly once.

The order is the law (law: taken-once):

1. The message is appended to the lane ``incoming.1021``, with a name of the maildrop in it, and the lane is synced.
2. The file is removed from the maildrop, and the names there are synced.
3. Only then the manager hears that the lane reaches so far. It reads no message before that (law: read-only-durable).

A process that starts finds in the end of its lane what it has not reported, removes the files that are named there, and then
does step 3. So a message in the maildrop is in no part of the lane that the manager reads, and a kill or a power failure at any
point neither loses a message nor takes it twice. A user who chooses the name of a file reaches no other message with it: queue
ids are given out here.

Blocks; runs in a thread. Errors of the disk are raised as OSError or LaneFailed; the next call begins where this ended.

Keeps law: taken-once (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mailcore.config.settings import Settings
from mailcore.control.local_filter import LocalFilter
from mailcore.control.local_stores import LocalStores
from mailcore.envelope import RECIPIENTS_PER_RECORD, Envelope
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.positions import PositionsDamaged, read_positions
from mailcore.pickup.composing import Composer, NotYet
from mailcore.pickup.dropped import ASIDE, Dropped, DroppedDamaged, is_unfinished
from mailcore.queue.ballast import INTAKE_BYTES, INTAKE_INODES
from mailcore.queue.from_maildrop import DIRECTORY, names_of, names_taken
from mailcore.queue.lanes import incoming
from mailcore.queue.named import named_end
from mailcore.queue.queue_id import PICKUP, QueueIds
from mailcore.queue.records import append_envelope, append_recipients
from mailcore.queue.reserved_time import NAME as IDS
from mailcore.queue.reserved_time import OF_CONTROL, ReservedFile, ReservedTime
from mailcore.queue.segment_time import segment_clock
from mailcore.queue.spool import Spool

if TYPE_CHECKING:  # a process without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps
    from mailcore.pickup.verification import Verifier
    from mailcore.rewriting.header_section import Note

__all__ = ["Checked", "Taken", "Taking"]

BATCH = 100  # messages that share a sync of the lane and one of the names
BATCH_S = 2.0  # after which a batch ends that milters make slow: what is taken must not wait for the rest
UNFINISHED_S_MAX = 86_400.0  # as Postfix's pickup: a program that was killed leaves a part of a message
ASIDE_MAX = 1_000  # files set aside; further damaged ones stay where they are and are not looked at again
PUT_OFF_S = 60.0  # until the next look at a message whose recipients cannot be determined
PUT_OFF_MAX = 100_000  # such messages that are known; further ones are looked at again at once


class Checked(NamedTuple):
    """The findings of header checks about a message. Its addresses are those that the author used."""

    queue_id: str
    sender: str
    recipient: str  # the first
    notes: list[Note]


@dataclass(slots=True)
class Taken:
    """The result of one look. ``end``: up to where the manager may read the lane."""

    end: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    uids: list[int] = field(default_factory=list)  # the authors of ``envelopes``
    damaged: list[tuple[str, str]] = field(default_factory=list)  # (file, why): set aside
    failed: list[tuple[str, str]] = field(
        default_factory=list
    )  # (file, why): tried again with the next look, or after PUT_OFF_S
    put_off: list[tuple[str, str]] = field(default_factory=list)  # (file, why): tried again after PUT_OFF_S
    waiting: list[tuple[str, str]] = field(default_factory=list)  # the same, for milters, which is logged already
    checks: list[Checked] = field(default_factory=list)
    is_full: bool = False  # nothing was taken, since the disk has less than the reserve
    more: bool = False  # there are more files than one batch
    shut_fault: str = ""  # why users could not be kept out of the maildrop, or let in again


class Taking:
    """The lane of the pickup, and the maildrop. One process at a time: the lane has a lock. Raises Locked, OSError."""

    def __init__(
        self,
        disk: Disk,
        settings: Settings,
        *,
        hostname: str,
        clock: Callable[[], float],
        salt: Callable[[], int],
        written: Callable[[str], float],
        rewriting: LiveMaps | None = None,
        local_filter: LocalFilter | None = None,
        verifier: Callable[[], Verifier] | None = None,
        stores: LocalStores | None = None,
    ) -> None:
        """``written`` returns when a file of the maildrop was written last, ``verifier`` the one of ``Composer``."""
        self._batch_s = math.inf if local_filter is None else BATCH_S
        self._put_off: dict[str, float] = {}  # file -> when it is looked at again
        self._disk = disk
        self._settings = settings
        self._clock = clock
        self._written = written
        self._directory = str(settings.home / DIRECTORY)
        store = None if stores is None else stores.pickup
        spool = Spool(disk, str(settings.spool_directory), store)
        self._composer = Composer(settings, hostname, spool, rewriting, local_filter, verifier)
        queue = str(settings.queue_directory)
        lane = incoming(PICKUP)
        ids = os.path.join(queue, lane, IDS)
        of_segments = [ids] if stores is None else [os.path.join(queue, OF_CONTROL)]
        self._writer = LaneWriter(
            disk,
            os.path.join(queue, lane),
            segment_bytes=settings.queue.segment_bytes,
            clock=segment_clock(clock, disk, lambda: of_segments),
            salt=salt,
            floor=named_end(disk, queue, lane),
            end_at=None if stores is None else stores.end_at,
            store=store,
        )
        reserved = ReservedTime(ReservedFile(disk, ids) if stores is None else stores.reserved)
        self._ids = QueueIds(PICKUP, clock, reserved, shard=settings.shard or 0 if stores is None else stores.number)
        self._to_remove = self._unreported(queue, lane)
        self._ignored: set[str] = set()  # damaged ones that could not be set aside
        self._names_unsynced = True  # the process before may have removed names and not synced them
        self._failed = False

    @property
    def lane(self) -> str:
        """Returns the name of the lane."""
        return self._writer.lane

    def _unreported(self, queue: str, lane: str) -> list[str]:
        """Returns the names of the maildrop that messages in the end of the lane came from: the manager may not know them."""
        known = None
        with contextlib.suppress(OSError, PositionsDamaged):
            positions = read_positions(self._disk, queue)
            known = positions.lanes.get(lane) if positions is not None else None
        start = known.end if known is not None else 0
        return names_taken(self._disk, os.path.join(queue, lane), start, self._writer.durable)

    def recover(self) -> int:
        """Removes the files of what was taken before; returns up to where the manager may read. Raises OSError."""
        self._remove()
        return self._writer.durable

    def look(self) -> Taken:
        """Takes what is in the maildrop, a batch at most. Raises LaneFailed, OSError."""
        taken = Taken()
        self._remove()  # of a look before that failed half-way: until they are gone, nothing more is taken
        names = names_of(self._disk.list(self._directory))
        waiting: Sequence[str] = [name for name in names if name not in self._ignored]
        self._composer.keep(waiting)
        if self._put_off:
            waiting = self._composer.due(self._due(waiting))
        if waiting and self._is_full():
            taken.is_full = True
        elif waiting:
            self._reopen()
            self._take_batch(waiting[:BATCH], taken)
            taken.more = len(waiting) > BATCH
        taken.end = self._writer.durable
        return taken

    def remove_unfinished(self) -> int:
        """Removes what programs that were killed have left; returns how many files. Raises OSError."""
        removed = 0
        for name in filter(is_unfinished, self._disk.list(self._directory)):
            path = os.path.join(self._directory, name)
            if self._clock() - self._written(path) > UNFINISHED_S_MAX:
                with contextlib.suppress(FileNotFoundError):
                    self._disk.unlink(path)
                    removed += 1
        return removed

    def close(self) -> None:
        """Closes the lane, for tests; the process itself just ends."""
        self._writer.close()

    # -- inside

    def _due(self, names: Sequence[str]) -> list[str]:
        """Returns the names that are due: first those that were never tried, then what was put off the longest ago.

        Otherwise many messages that are put off would keep others waiting, by their names.
        """
        now, there = self._clock(), set(names)
        self._put_off = {name: until for name, until in self._put_off.items() if name in there}
        # A clock that was set back does not put anything off for longer.
        due = [name for name in names if not 0 < self._put_off.get(name, 0.0) - now <= PUT_OFF_S]
        return sorted(due, key=lambda name: self._put_off.get(name, 0.0))

    def _reopen(self) -> None:
        if self._failed:  # a failed sync is not tried again on the same file (law: no-sync-retry)
            self._writer.reopen()
            self._failed = False

    def _take_batch(self, names: Sequence[str], taken: Taken) -> None:
        appended: list[tuple[str, Envelope, int]] = []
        self._failed = True  # until the end of this: what is appended and not synced must not stay in the writer
        until = self._clock() + self._batch_s if self._batch_s < math.inf else math.inf
        for name in names:
            if appended and until < math.inf and self._clock() > until:
                taken.more = True
                break
            try:
                dropped = Dropped(self._disk, self._directory, name)
            except FileNotFoundError:
                continue
            except (DroppedDamaged, OSError) as error:
                self._set_aside(name, str(error), taken)
                continue
            try:
                appended.append((name, self._append(dropped, taken), dropped.uid))
            except NotYet as error:
                self._wait(name, error, taken)
                if error.is_failure:  # the next message would wait for it, too
                    break
            except OSError as error:  # the disk; this message stays where it is, and does not keep others waiting
                taken.failed.append((name, error.strerror or str(error)))
            except LaneFailed:
                raise
            except Exception as error:  # one bad message must not keep others waiting
                self._set_aside(name, str(error) or repr(error), taken)
            finally:
                dropped.close()
        if appended:
            self._writer.sync()
            self._to_remove = [name for name, _, _ in appended]
        self._failed = False
        self._remove()
        taken.envelopes = [envelope for _, envelope, _ in appended]
        taken.uids = [uid for _, _, uid in appended]

    def _wait(self, name: str, why: NotYet, taken: Taken) -> None:
        """Puts a message off."""
        kind = taken.failed if why.is_fault else taken.waiting if why.is_logged else taken.put_off
        kind.append((name, str(why)))
        if name in self._put_off or len(self._put_off) < PUT_OFF_MAX:
            self._put_off[name] = self._clock() + (why.again_s or PUT_OFF_S)

    def _remove(self) -> None:
        """Removes the files of messages that are in the lane, and syncs the names (law: taken-once)."""
        for name in self._to_remove:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(os.path.join(self._directory, name))
        if self._to_remove or self._names_unsynced:
            self._disk.sync_directory(self._directory)
        self._to_remove = []
        self._names_unsynced = False

    def _set_aside(self, name: str, why: str, taken: Taken) -> None:
        """Gives a damaged file another name: it is never deleted and never looked at again (law: damage-set-aside)."""
        taken.damaged.append((os.path.join(self._directory, ASIDE + name), why))
        aside = [each for each in self._disk.list(self._directory) if each.startswith(ASIDE)]
        try:
            if len(aside) < ASIDE_MAX:
                self._disk.replace(os.path.join(self._directory, name), os.path.join(self._directory, ASIDE + name))
                return
        except OSError:
            pass
        self._ignored.add(name)

    def _is_full(self) -> bool:
        disk, queue = self._disk, self._settings.queue
        for directory in (str(self._settings.queue_directory), str(self._settings.spool_directory)):
            disk.check(directory)
            if disk.free_bytes(directory) < max(queue.reserve_bytes, INTAKE_BYTES):
                return True
            if disk.free_inodes(directory) < max(queue.reserve_inodes, INTAKE_INODES):
                return True
        return False

    def _append(self, dropped: Dropped, taken: Taken) -> Envelope:
        """Appends one message to the lane, unsynced. Raises DroppedDamaged, NotYet."""
        envelope, final, inline, notes = self._composer.compose(dropped, self._ids.next(), self._clock())
        if notes:
            submission = dropped.submission
            taken.checks.append(Checked(envelope.queue_id, submission.sender, submission.recipients[0], notes))
        batches = [
            append_recipients(self._writer, list(final[at : at + RECIPIENTS_PER_RECORD]))
            for at in range(RECIPIENTS_PER_RECORD, len(final), RECIPIENTS_PER_RECORD)
        ]
        if batches:
            first = final[:RECIPIENTS_PER_RECORD]
            envelope = msgspec.structs.replace(envelope, recipients=first, batches=tuple(batches))
        append_envelope(self._writer, envelope, inline)
        return envelope
