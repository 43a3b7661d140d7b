"""Reception: writes the messages that the SMTP sessions of a receiver hand over into its lane and the spool.

Laws
1. ``done(b"")``, which is the client's 250, comes only after the group commit that holds the envelope; a spooled message's
   file is complete, its names included, before its envelope is appended. Another 250 says that a next hop has the message
   (``cut_through``).
8. A failed sync is 451 for every client that waited; the lane continues in a new segment. If that fails as well, no mail is
   accepted, the log says so, and the receiver tries again every RETRY_S.
- The manager gets a report only of what is durable, and after the mail log has it; else a delivery might be logged before
  its arrival.
- No mail is accepted while queue or spool is another directory than at the start (law: one-identity).
- Neither a full disk nor a lane that the manager does not read is filled further: 452 before that.

Keeps law: durable-before-250, law: passed-on-before-250, law: no-sync-retry, law: report-only-synced,
law: bounded-intake, law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from mailcore.config.settings import Settings
from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Recipient
from mailcore.frames import Fate
from mailcore.log.commit import GroupCommit
from mailcore.log.lane import LaneFailed, LaneWriter
from mailcore.log.positions import PositionsDamaged, read_positions
from mailcore.maillog import MailLog
from mailcore.queue.ballast import INTAKE_BYTES, INTAKE_INODES
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope, append_recipients
from mailcore.queue.reserved_time import NAME as IDS
from mailcore.queue.spool import Spool
from mailcore.receiver import stored
from mailcore.receiver.cut_through import UNCERTAIN, CutThrough, passed_on_reply
from mailcore.receiver.incoming import INTERNAL_ERROR
from mailcore.receiver.intake import Done, MilterEvent
from mailcore.receiver.manager_link import ManagerLink
from mailcore.receiver.refusals import Allowance, Refusals
from mailcore.receiver.scratch import ScratchFile
from mailcore.receiver.spool_upload import NO_SPACE, WRITE_ERROR, SpoolUpload, storage_reply
from mailcore.receiver.stored import CommitWait, ReceiverStores

if TYPE_CHECKING:  # a receiver without [rewriting] does not load it
    from mailcore.config.live_maps import LiveMaps

__all__ = ["Reception"]

DISK_LOOK_S = (
    1.0  # how often free space is asked for; a second of the fastest reception is far below the default reserve
)
LAG_LOOK_S = 3.0  # how often the restart positions are read; they are written every second
RETRY_S = 5.0  # between tries to write the lane again
FAILURES_LOGGED_S = 0.1  # a second: one traceback in ten seconds, after a burst
FAILURES_BURST = 20
TLS_LOGGED_S = 0.2  # a second, after a burst: programs that look for open ports fail all the time
TLS_LOGGED_BURST = 50
MILTERS_LOGGED_S = 1.0  # a second, after a burst: a milter that is down fails in each session
MILTERS_LOGGED_BURST = 100
REFUSED = b"451 4.3.0 Error: the recipients cannot be determined; try again later"
CLOSED = b"452 4.3.1 Mail system storage failure"

_log = logging.getLogger("waypost.receiver")


class Reception:
    """The ``Intake`` of one receiver process. ``clock`` is wall-clock seconds."""

    def __init__(
        self,
        settings: Settings,
        writer: LaneWriter,
        commit: GroupCommit,
        ids: QueueIds,
        link: ManagerLink,
        log: MailLog,
        loop: asyncio.AbstractEventLoop,
        threads: ThreadPoolExecutor,
        clock: Callable[[], float] = time.time,
        stores: ReceiverStores | None = None,
    ) -> None:
        self._wait = None if stores is None else CommitWait(stores, loop)
        self._settings = settings
        self._writer = writer
        self._commit = commit
        self._link = link
        self._log = log
        self._loop = loop
        self._threads = threads
        self._disk = writer.disk
        self._spool = Spool(writer.disk, str(settings.spool_directory), None if stores is None else stores.uploads)
        self._ids = ids
        self.rewriting: LiveMaps | None = None  # None: addresses are final as the client gave them
        self.cut_through: CutThrough | None = None  # None: no transport has it
        self.refusals = Refusals(commit, log, loop, clock, self._refusals_synced, self._lane_failed)
        self.refused = self.refusals.record
        self._failures = Allowance(FAILURES_LOGGED_S, FAILURES_BURST, loop.time())
        self._proxies_logged = Allowance(FAILURES_LOGGED_S, FAILURES_BURST, loop.time())
        self._tls_logged = Allowance(TLS_LOGGED_S, TLS_LOGGED_BURST, loop.time())
        self._milters_logged = Allowance(MILTERS_LOGGED_S, MILTERS_LOGGED_BURST, loop.time())
        self._accepted: list[Envelope] = []  # durable, not yet logged and reported
        self._durable_end = writer.durable  # of what was confirmed to us
        # The disk
        self._suspect = False  # the lane failed, and nothing was synced since
        self._recovering = False  # a reopening is due in this turn
        self._closed = False  # reopening did not help
        self._complained = False
        self._look_at = 0.0
        self._lag_look_at = 0.0
        self._room_bytes = 0  # for one message, beyond the reserve
        self._full = False
        self._lagging = False
        self._away = False  # queue or spool is not the directory any more that it was at the start

    # -- Intake

    def unavailable(self, size_bytes: int) -> bytes:
        """Returns the reply that refuses MAIL while the disk is full, the lane lags or the log fails; b"" otherwise."""
        self._ids.prepare()
        now = self._loop.time()
        if now >= self._look_at:
            self._look_at = now + DISK_LOOK_S
            self._look_at_disk()
            if now >= self._lag_look_at:
                self._lag_look_at = now + LAG_LOOK_S
                self._look_at_lag()
        if self._closed or self._away:
            return CLOSED
        if self._wait is not None and self._wait.is_long:
            return stored.BUSY
        if self._full or self._lagging or size_bytes > self._room_bytes:
            return NO_SPACE
        return b""

    def closed(self) -> bytes:
        """Returns the reply that refuses a connection while the log cannot be written; b"" otherwise."""
        self._ids.prepare()  # long before the DATA of this client
        if self._wait is not None and self._wait.is_long:
            return stored.CLOSED
        return b"421 4.3.0 Mail system storage failure" if self._closed else b""

    def next_id(self) -> str:
        """Returns a new queue id. Raises OSError if no time can be reserved for it."""
        try:
            return self._ids.next()
        except OSError as error:
            self._spool_failed(f"{self._writer.directory}/{IDS}", error)
            raise

    def upload(self, queue_id: str) -> SpoolUpload:
        """Begins a spool file for data beyond the inline limit."""
        return SpoolUpload(self._spool, queue_id, self._loop, self._threads, self._spool_failed, self._wait)

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        """Appends the message to the lane; calls ``done`` once the group commit has synced it, or has failed."""
        if self.rewriting is not None:
            envelope, more, why = self.rewriting.apply(envelope, more)
            if why:
                self._log.rewriting_failed(envelope.queue_id, why)
                self._lost(envelope)
                done(REFUSED)
                return
        if self.cut_through is not None and self.cut_through.takes(envelope, more):
            self.cut_through.offer(envelope, data, functools.partial(self._offered, envelope, data, done))
            return
        self._append(envelope, more, data, done)

    def _offered(self, envelope: Envelope, data: bytes, done: Done, fate: Fate, reply: str) -> None:
        """Answers the client whose message was offered to the manager, or stores the message (law: passed-on-before-250)."""
        if fate is Fate.REFUSED:
            try:
                self._append(envelope, (), data, done)
            except Exception as error:  # no session would hear of it, and its client would wait until it gives up
                self.session_failed(envelope.client_address, error)
                self._answer(envelope, done, INTERNAL_ERROR)
            return
        self._answer(envelope, done, UNCERTAIN if fate is Fate.UNCERTAIN else passed_on_reply(envelope.queue_id, reply))

    def _append(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        writer = self._writer
        if self._wait is not None:
            done = self._wait.limited(done)
        try:
            if more:
                batches = [
                    append_recipients(writer, list(more[start : start + RECIPIENTS_PER_RECORD]))
                    for start in range(0, len(more), RECIPIENTS_PER_RECORD)
                ]
                envelope = msgspec.structs.replace(envelope, batches=tuple(batches))
            append_envelope(writer, envelope, data)
        except LaneFailed:
            self._lost(envelope)
            done(WRITE_ERROR)
            return
        self._commit.then(functools.partial(self._synced, envelope, writer.end, done))

    def session_failed(self, client_address: str, error: BaseException) -> None:
        """Logs an exception of a session, with its traceback as long as there are few of them."""
        if self._failures.taken(self._loop.time()):
            self._log.session_failed(client_address, repr(error))
            self._log.flush()
            _log.error("session with %s failed", client_address, exc_info=error)

    def stressed(self, begun: bool, connections: int) -> None:
        """Logs the beginning or the end of stress."""
        self._log.stress(begun, connections)
        self._log.flush()

    def scratch(self, queue_id: str) -> ScratchFile:
        """Returns a file for the data of a message while milters work."""
        return ScratchFile(self._disk, self._spool.path(queue_id), self._loop, self._threads)

    def milter_failed(self, event: MilterEvent) -> None:
        """Logs that a milter failed, unless there are too many such lines."""
        if self._milters_logged.taken(self._loop.time()):
            self._log.milter_failed(
                event.milter, event.stage, event.what, event.action, event.client_address, event.queue_id
            )
            self._log.flush()

    def milter_acted(self, event: MilterEvent) -> None:
        """Logs that a milter discards or holds a message."""
        self._log.milter_acted(
            event.milter,
            event.stage,
            event.action,
            event.what,
            event.client_address,
            event.queue_id,
            event.sender,
            event.recipients,
        )
        self._log.flush()

    def proxy_refused(self, balancer: str, why: str) -> None:
        """Logs a connection that was closed because of its PROXY header, unless there are too many of them."""
        if self._proxies_logged.taken(self._loop.time()):
            self._log.proxy_refused(balancer, why)
            self._log.flush()

    def tls_failed(self, client_address: str, client_name: str, why: str) -> None:
        """Logs that TLS with a client failed, unless that happens too often."""
        if self._tls_logged.taken(self._loop.time()):
            self._log.tls_failed(client_address, client_name, why)
            self._log.flush()

    def accept_paused(self, error: OSError, pause_s: float) -> None:
        """Logs that no connection can be accepted for now."""
        self._log.accepting_paused(error.strerror or str(error), pause_s)
        self._log.flush()

    # -- the sync

    def _synced(self, envelope: Envelope, end: int, done: Done, error: LaneFailed | None) -> None:
        reply = b""
        if error is None:
            if not self._accepted:
                self._loop.call_soon(self._tell)  # after the 250s of this sync
            self._accepted.append(envelope)
            self._durable_end = end
            self._suspect = False
            if self._complained:
                self._complained = False
                self._log.accepting_again()
        else:
            reply = storage_reply(error)
            self._lost(envelope)
            self._lane_failed(error)
        self._answer(envelope, done, reply)

    def _answer(self, envelope: Envelope, done: Done, reply: bytes) -> None:
        try:
            done(reply)
        except Exception as failure:  # of one session; others wait for the same sync, or for their own answers
            self.session_failed(envelope.client_address, failure)

    def _refusals_synced(self, end: int) -> None:
        if end > self._durable_end:
            self._durable_end = end
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        accepted, self._accepted = self._accepted, []
        recipients = 0
        for envelope in accepted:
            self._log.accepted(envelope)
            recipients += envelope.recipient_count
        self._log.flush()
        self._link.durable(self._durable_end, len(accepted), recipients)

    def _lost(self, envelope: Envelope) -> None:
        """Removes the spool file of a message that was not accepted: the client keeps the message."""
        if envelope.data is DataPlace.SPOOL:
            self._threads.submit(self._spool.remove, envelope.queue_id)

    def _lane_failed(self, error: LaneFailed) -> None:
        if not self._recovering:
            self._recovering = True
            self._log.sync_failed(self._writer.lane, str(error), service="smtpd")
            # When all who waited know: until then nothing can be appended.
            self._loop.call_soon(self._recover, str(error))

    def _recover(self, why: str) -> None:
        self._recovering = False
        self._log.flush()
        if self._suspect:  # that was the new segment
            self._stop_accepting(why)
            return
        self._suspect = True
        self._reopen()

    def _reopen(self) -> None:
        try:
            self._writer.reopen()
        except OSError as error:
            self._stop_accepting(error.strerror or str(error))
        else:
            self._closed = False

    def _stop_accepting(self, why: str) -> None:
        self._closed = True
        if not self._complained:  # until a sync succeeds
            self._complained = True
            self._log.stopped_accepting(why)
        self._log.flush()
        self._loop.call_later(RETRY_S, self._reopen)

    def _spool_failed(self, path: str, error: BaseException) -> None:
        if self._failures.taken(self._loop.time()):
            self._log.sync_failed(path, str(error), service="smtpd")

    # -- room

    def _look_at_disk(self) -> None:
        directories = (self._settings.queue_directory, self._settings.spool_directory)
        try:
            for directory in directories:
                self._disk.check(str(directory))
        except OSError as error:
            if not self._away:
                self._log.stopped_accepting(error.strerror or str(error))
            self._away = True
            return
        if self._away:
            self._away = False
            self._log.accepting_again()
        try:
            disk = self._disk
            free = [(disk.free_bytes(each), disk.free_inodes(each), each) for each in map(str, directories)]
        except OSError:  # it says so when something is written
            return
        least_bytes = max(self._settings.queue.reserve_bytes, INTAKE_BYTES)
        least_inodes = max(self._settings.queue.reserve_inodes, INTAKE_INODES)
        self._room_bytes = min(free)[0] - least_bytes
        short = [each for each in free if each[0] < least_bytes or each[1] < least_inodes]
        full = bool(short)
        if full and not self._full:
            free_bytes, free_inodes, where = short[0]
            self._log.disk_full(where, free_bytes, least_bytes, free_inodes, least_inodes)
        self._full = self.refusals.disk_full = full

    def _look_at_lag(self) -> None:
        try:
            positions = read_positions(self._disk, str(self._settings.queue_directory))
        except (OSError, PositionsDamaged):  # the manager's affair; what was known stays
            return
        lane = positions.lanes.get(self._writer.lane) if positions is not None else None
        lag_bytes = self._durable_end - (lane.runner if lane is not None else 0)
        lagging = lag_bytes > self._settings.queue.lag_bytes_max
        if lagging and not self._lagging:
            self._log.lane_lags(self._writer.lane, lag_bytes)
        self._lagging = lagging

    def close(self) -> None:
        """Stops the timers, for tests; the process itself just ends."""
        self.refusals.close()
