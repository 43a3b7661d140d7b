"""The exporter process: writes events from the records of the log, with a lower priority (nice) than the mail processes.

It exports at intervals and answers requests on its socket, ``exporter.sock``: ``export`` (everything up to now), ``cut`` (the
same, with a count of the queue) and ``zone`` (the time zone in which a day of the reports begins); on a node of several also
``gather`` and ``letter``, for reports over all of them (``mailcore/nodes/for_reports``). It is crash-only: the
exported positions say what is done, and a kill costs the work of one stretch. It waits while the disk is full or the manager
is not running. Files are written by a child, so that this process never has the memory that pyarrow takes (``apart``).

Law: at midnight, in UTC, in the zone of [reports] and in the one that the portal named last, there is a cut. So a day of the
reports balances from midnight to midnight, whether the portal runs then or not.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import zoneinfo
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from mailcore.config.known_shards import DRAINED
from mailcore.config.settings import Settings
from mailcore.control.access import group_id, peer_of
from mailcore.control.client import ControlClient, ControlError
from mailcore.control.protocol.operation import Access
from mailcore.events.apart import ChildFailed, at_once, in_a_child
from mailcore.events.beating_disk import BeatingDisk, beating
from mailcore.events.write.cutoff import Cut, CutFailed, take_cut
from mailcore.events.write.export import Export, Exported, ends_of
from mailcore.events.write.retention import remove_old
from mailcore.events.write.windows import Windows
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import FrameDecoder, Request, Response, WireError, encode
from mailcore.log.disk import Disk, Locked, is_full
from mailcore.log.positions import PositionsTooNew
from mailcore.log.segment import Damage, SegmentTooNew
from mailcore.maillog.maillog import MailLog
from mailcore.manager_answers import Destinations
from mailcore.supervisor.listen import listen_on_path
from mailcore.supervisor.pulse import BEAT_S, Beats
from mailcore.supervisor.room import room_for_sockets

__all__ = ["EXPORTER_SOCKET", "Exporter", "main", "midnight_between"]

EXPORTER_SOCKET = "exporter.sock"  # in Settings.run_directory
NICE = 10  # mail goes first
WINDOWS_WRITTEN_S = 900.0  # samples that a kill may lose; it gives four files an hour
CLIENT_S = 5.0  # for a client to send its request
REQUEST_BYTES_MAX = 65_536
LOCK_WAIT_S = 60.0
SETTLE_S = 1.0  # after two checkpoints: both files of restart positions cover what happened before
COVERED_S_MAX = 20.0  # then the positions on disk are used: a manager that is not running writes no new ones
CUT_SHARE = 50  # a cut that takes t seconds is followed by a pause of 50 t, except at midnight
CONTROL_S = 5.0
EXPECTED = (OSError, CutFailed, PositionsTooNew, SegmentTooNew)  # of the work of a child; others are faults of ours
R = TypeVar("R")
OF_NODES = ("gather", "letter")  # operations that concern all nodes
OpenDisk = Callable[[Beats], Disk]
OfNodes = Callable[[str, Mapping[str, Any]], dict[str, Any] | Fault]  # answers one of OF_NODES; raises OSError


class Exporter:
    """Exports when it is due, samples windows, and answers requests on its socket.

    ``apart`` runs what writes and removes files; ``open_disk`` returns the disk with these files. ``of_nodes``: if a database
    keeps the queue.
    """

    def __init__(
        self,
        settings: Settings,
        apart: Callable[[Callable[[], Any], tuple[type[Exception], ...]], Any] = at_once,
        open_disk: OpenDisk = BeatingDisk,
        of_nodes: OfNodes | None = None,
    ) -> None:
        self.settings = settings
        self._nodes = of_nodes
        self._apart = apart
        self.log = MailLog(settings.log_directory)
        self._beats = Beats()
        disk = open_disk(self._beats)
        events = str(settings.events_directory)
        self.disk, self.events = disk, events
        # A shard that a database keeps has other places on other nodes, so its files do not say where it is.
        shard = 0 if settings.nodes.is_on else settings.shard or 0
        self.export = Export(disk, str(settings.queue_directory), events, self._damaged, self._lost, shard=shard)
        self.windows = Windows(disk, events, WINDOWS_WRITTEN_S, shard)
        self.group = group_id(settings.control.group)
        self._complaint = ""
        self._sample_at = self._look_at = 0.0  # monotonic
        self._cut_rest_until = 0.0  # wall clock
        self._settled_s = 2 * settings.queue.checkpoint_interval_s + SETTLE_S

    def run(self) -> None:
        """Serves and exports until it is killed. Raises OSError if the socket can't be opened."""
        server = listen_on_path(self.settings.run_directory / EXPORTER_SOCKET, room_for_sockets(self.settings))
        if self.group is not None:
            with contextlib.suppress(OSError):
                os.chown(self.settings.run_directory / EXPORTER_SOCKET, -1, self.group)
        while True:
            self._beats.now()
            wait_s = min(max(0.0, min(self._look_at, self._sample_at) - time.monotonic()), BEAT_S)
            if select.select([server], [], [], wait_s)[0]:
                client, _ = server.accept()
                with client:
                    self._serve(client)
            self.turn()
            self.log.flush()

    def turn(self) -> None:
        """Samples windows and exports, as far as they are due."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._sample_at = now + self.settings.export.window_interval_s
            self._sample()
        if now >= self._look_at:
            self._look_at = now + self.settings.export.interval_s
            try:
                self._look()
                self._complaint = ""
            except (OSError, CutFailed, ChildFailed) as error:  # a full disk; it is retried at the next interval
                words = self._words(error)
                if words != self._complaint:
                    self.log.failed("exporter", words)
                self._complaint = words

    def _words(self, error: Exception) -> str:
        """Returns the error; of a full disk with the directory, which an error of writing to an open file lacks."""
        if isinstance(error, OSError) and is_full(error):
            return f"{error.strerror}: {error.filename or self.events}"
        return str(error) or type(error).__name__

    def _look(self) -> None:
        now = time.time()
        with contextlib.suppress(Locked), self.export.locked(0):
            if self._cut_is_due(now - self._settled_s):
                began = time.monotonic()
                settled = now - self._settled_s
                cut, _ = self._cut(now, settled)
                self._cut_rest_until = now + CUT_SHARE * (time.monotonic() - began)
                # The positions of a slow manager may be of before midnight: then another cut. One that is away writes no more.
                reached = cut.at if settled - COVERED_S_MAX < cut.at < settled else settled
                self._written(lambda: self._end_cut(reached, now))
            elif self.export.is_due():
                self._written(self.export.run)
        if self.windows.due(now):
            self._write_windows()

    def _cut(self, now: float, settled: float, *, ids: bool = False, closing: bool = False) -> tuple[Cut, Exported]:
        """Takes a cut. ``closing``: the shard is drained; once the node has written that down, all its cuts say so."""
        closing = closing or (self.settings.shard is not None and (self.settings.place / DRAINED).exists())
        return self._written(lambda: take_cut(self.export, now, ids, settled=settled, closing=closing))

    def _end_cut(self, reached: float, now: float) -> None:
        self.export.save(msgspec.structs.replace(self.export.state(), cut_at=reached))
        remove_old(self.disk, self.events, now, self.settings.export.keep_days)

    def _written(self, work: Callable[[], R]) -> R:
        """Does work that writes files, in a child. Raises its errors, and ChildFailed."""
        self.log.flush()  # or the child would have its lines, too

        def logged() -> R:
            try:
                return work()
            finally:
                self.log.flush()

        done: R = self._apart(logged, EXPECTED)
        return done

    def _write_windows(self) -> dict[str, int]:
        written = self._written(self.windows.write)
        self.windows.written()
        return written

    def _cut_is_due(self, now: float) -> bool:
        """Returns whether a cut is due; the first is due as soon as there is a queue. Everything before ``now`` is on
        disk."""
        if not self.export.positions():
            return False
        state = self.export.state()
        before = state.cut_at
        if midnight_between(before, now, ("UTC", self.settings.reports.zone, state.zone)):
            return True
        interval = self.settings.export.cut_interval_s
        return now // interval != before // interval and now >= self._cut_rest_until

    def _sample(self) -> None:
        with contextlib.suppress(ControlError):  # control is not running or busy: one sample is missing
            path = self.settings.run_directory / "control.sock"
            with ControlClient(path, who="exporter", timeout_s=CONTROL_S) as control:
                answer = control.ask("destinations", Destinations, {"limit": 1000})
            self.windows.sample(answer.destinations, time.time())

    # -- requests

    def _serve(self, client: socket.socket) -> None:
        """Answers one request of one client; an error of the connection ends only that connection."""
        try:
            client.settimeout(CLIENT_S)
            request = _request_of(client)
            if request is None:
                return
            client.settimeout(CLIENT_S)
            client.sendall(encode(self._answer(client, request)))
        except (OSError, WireError):
            return

    def _answer(self, client: socket.socket, request: Request) -> Response:
        try:
            if not peer_of(client.getsockopt).may(Access.CHANGE, self.group):
                message = "only root, the user Waypost runs as, and control.group may do this"
                return Response(request.number, None, Fault(Code.FORBIDDEN, message))
            if request.operation == "zone":
                return Response(request.number, {"zone": self._days_begin_in(request.arguments.get("zone"))})
            if request.operation in OF_NODES:
                answered = self._of_nodes(request)
                if isinstance(answered, Fault):
                    return Response(request.number, None, answered)
                return Response(request.number, answered)
            if request.operation not in ("export", "cut"):
                message = f"unknown operation of the exporter: {request.operation!r}"
                return Response(request.number, None, Fault(Code.INVALID, message))
            asked = time.time()
            if not request.arguments.get("closing"):  # then all there is must be covered already
                self._until_covered(asked)
            with self.export.locked(LOCK_WAIT_S):
                if request.operation == "cut":
                    ids, closing = (bool(request.arguments.get(name)) for name in ("ids", "closing"))
                    cut, exported = self._cut(time.time(), asked, ids=ids, closing=closing)
                    answer: dict[str, Any] = {"at": cut.at, "file": f"cuts/{cut.name}.json", "ids": cut.ids}
                    answer |= {
                        "messages": cut.messages,
                        "recipients": cut.recipients,
                        "lanes": cut.lanes,
                        "closed": cut.closed,
                    }
                else:
                    exported, answer = self._written(self._everything), {}
            written = exported.files | self._write_windows()
            return Response(request.number, {**answer, "rows": sum(written.values()), "files": sorted(written)})
        except FaultError as error:
            return Response(request.number, None, error.fault)
        except (Locked, ChildFailed, *EXPECTED) as error:
            code = Code.BUSY if isinstance(error, Locked) else Code.INTERNAL
            return Response(request.number, None, Fault(code, self._words(error)))

    def _of_nodes(self, request: Request) -> dict[str, Any] | Fault:
        """Answers what concerns all nodes, in a child, which waits for the database."""
        ask = self._nodes
        if ask is None:
            return Fault(Code.INVALID, "no database keeps the queue of this node")

        def work() -> dict[str, Any] | Fault:
            with beating(self._beats):
                return ask(request.operation, request.arguments)

        return self._written(work)

    def _days_begin_in(self, zone: object) -> str:
        """Stores the zone, so that its midnights get a cut too; returns its name. Raises CutFailed for an unknown zone."""
        try:
            zone = zoneinfo.ZoneInfo(str(zone)).key
        except (ValueError, OSError, LookupError):
            raise FaultError(f"{str(zone)[:64]!r} is not a time zone", code=Code.INVALID, argument="zone") from None
        with self.export.locked(LOCK_WAIT_S):
            state = self.export.state()
            if state.zone != zone:
                self._written(lambda: self.export.save(msgspec.structs.replace(state, zone=zone)))
        return zone

    def _everything(self) -> Exported:
        found = self.export.positions()
        return self.export.run(ends_of(found[0])) if found else Exported()

    def _until_covered(self, asked: float) -> None:
        """Waits until restart positions cover everything up to ``asked``, or nothing has happened since they were written."""
        settled = time.monotonic() + self._settled_s
        until = settled + COVERED_S_MAX
        while (now := time.monotonic()) < until:
            found = self.export.positions()
            if found and found[0].written_at >= asked:
                return
            if now >= settled and (not found or ends_of(found[0]) == ends_of(found[-1])):
                return
            time.sleep(0.05)

    # -- damage

    def _damaged(self, damage: Damage) -> None:
        self.log.record_set_aside(damage.path, damage.offset, damage.what)

    def _lost(self, lane: str, start: int, end: int) -> None:
        self.log.failed("exporter", f"{lane}: {start} to {end} was deleted before it was exported; reports lack it")


def midnight_between(before: float, now: float, zones: Iterable[str]) -> bool:
    """Returns whether a day of one of these zones began between the two times, in either order (the clock may be set back).

    A zone that this host does not know is ignored.
    """
    for zone in zones:
        with contextlib.suppress(ValueError, OSError, LookupError):
            there = zoneinfo.ZoneInfo(zone)
            if datetime.fromtimestamp(before, there).date() != datetime.fromtimestamp(now, there).date():
                return True
    return False


def _request_of(client: socket.socket) -> Request | None:
    """Returns the request that a client sends; None if it closes or is too slow. Raises OSError, WireError."""
    decoder = FrameDecoder(REQUEST_BYTES_MAX)
    until = time.monotonic() + CLIENT_S
    while time.monotonic() < until:
        data = client.recv(REQUEST_BYTES_MAX)
        if not data:
            return None
        for frame in decoder.feed(data):
            if not isinstance(frame, Request):
                raise WireError(f"{type(frame).__name__} is not for a client to send")
            return frame
    return None


def main(
    start_traces: Callable[[Settings], None],
    disk_of: Callable[[Settings], OpenDisk | None],
    nodes_of: Callable[[Settings], OfNodes | None],
    settings: Settings,
    number: int,
) -> None:
    """Runs until it is killed. There is one exporter, number 0.

    ``start_traces``: beside it, if the settings want them. ``disk_of``: returns what opens the disk of the event files, if a
    store keeps them; it waits until all that the store has is here. ``nodes_of``: returns what answers for all nodes.
    """
    os.nice(NICE)
    # The tracer is a thread, and a process with threads must not fork.
    apart = at_once if settings.traces.endpoint else in_a_child
    exporter = Exporter(settings, apart, disk_of(settings) or BeatingDisk, nodes_of(settings))
    try:
        start_traces(settings)
    except Exception as error:  # a fault of traces must not keep events from being exported
        exporter.log.traces_failed(f"{type(error).__name__}: {error}; no traces until Waypost is started again")
    exporter.run()
