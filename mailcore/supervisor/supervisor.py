"""``waypost mailcore``: starts the processes of the core and restarts any that exit.

The supervisor holds the lock of the home, so only one Waypost runs on it. Children end with the supervisor
(PR_SET_PDEATHSIG), so no orphan can block the next start. There is no shutdown: SIGTERM has the same effect as SIGKILL.

It opens the receivers' listening sockets, unless systemd does, so that they stay open over a reload (``reloading``).

Keeps law: reload-is-checked-first, law: reload-refuses-no-client (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.config.known_shards import forget_known, name_of
from mailcore.config.settings import Settings
from mailcore.config.values import listen_address
from mailcore.config.waiting import read_words
from mailcore.counted import counted
from mailcore.log.disk import Disk, is_full
from mailcore.maillog.maillog import MailLog
from mailcore.queue.exported import EXPORTED
from mailcore.queue.identity import Held, IdentityError
from mailcore.queue.shard_copy import refuse_copy
from mailcore.queue.versions import NotOurs, look_at_versions
from mailcore.supervisor.child import IDENTITY, SETTINGS_NAME, identity_variable, store_settings
from mailcore.supervisor.ending import END, SHARD_BACK, SHARD_GONE, SHARD_LOST, SHARD_MOVED
from mailcore.supervisor.fresh_addresses import SOCKETS_GIVEN
from mailcore.supervisor.kept_pairs import KEPT, make_kept
from mailcore.supervisor.listen import listen
from mailcore.supervisor.preparation import (
    HomeError,
    identify,
    prepare,
    prepare_home,
    refuse_fresh_addresses,
    refuse_shared_ports,
)
from mailcore.supervisor.pulse import PULSE, Pulse, until_begun
from mailcore.supervisor.refused import refuse_start, rest_under_systemd
from mailcore.supervisor.reloading import (
    RELOAD,
    Plan,
    Reload,
    end_unfinished,
    last_result,
    plan_of,
    write_result,
)
from mailcore.supervisor.room import DiskFull, refuse_without_room
from mailcore.supervisor.service import HANDED, Service, given_listeners, unlike
from mailcore.supervisor.shared_counts import COUNTS, make_counts
from mailcore.supervisor.start import Order, Process, Role, prepare_role, start
from mailcore.supervisor.users import ALONE, Users

__all__ = ["Shared", "Supervisor", "both_clocks", "main", "say"]

BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 5.0
HEALTHY_S = 10.0  # a child that ran this long is restarted at once
LOOK_S = 1.0  # between two looks at the children; systemd's watchdog is notified as often
STUCK = 2  # times silent_s: a child that was killed after silent_s has ended by then, or does not end at all
DELIVERING = ("manager", "deliverer")  # started before the others
ASKED_TO_END = ("receiver", "manager", "deliverer")  # by a reload; the others have nothing that may not be broken off
BEGIN_S = 30.0  # a process that has not begun its work by then is named in the result of a reload
RELOAD_LOOK_S = 0.02  # between two looks at the children while a reload is under way
RECEIVERS_FIRST_S = 5.0  # the other processes start at the latest then; until then receivers have the processor
SHARD = "WAYPOST_SHARD_LOST"  # for the owner step: how the shard was lost
# Exit status of a child -> how the shard was lost; "": it is still ours, and the owner step hands it over.
LOST = {SHARD_LOST: "lost", SHARD_BACK: "back", SHARD_MOVED: ""}
CLIENTS_S = 3.0  # for what clients have begun, when the shard is handed over


@dataclass(slots=True)
class Child:
    """One process to keep running: its role, its number within the role, and its state."""

    role: str
    number: int
    process: Process | None = None
    pulse: Pulse | None = None
    hung_s: float = 0.0  # it sent no pulse for this long and was killed; 0.0 if it was not
    started: float = 0.0
    started_at: float = 0.0  # wall clock, for people
    since_boot_s: float = 0.0  # at the same moment
    restarts: int = -1  # since the supervisor began
    backoff_s: float = BACKOFF_S_MIN
    due: float = field(default=0.0)

    @property
    def name(self) -> str:
        """Returns the name in logs and files: receiver.0, manager."""
        return f"{self.role}.{self.number}" if self.role in ("receiver", "deliverer") else self.role


def say(message: str) -> None:
    """Prints a line on stderr, if it is still open."""
    with contextlib.suppress(OSError):
        print(f"waypost: {message}", file=sys.stderr, flush=True)


def both_clocks() -> tuple[float, float]:
    """Returns the wall clock and the seconds since the boot: a change of their difference is a jump of the wall clock."""
    return time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Shared:
    """The descriptors of what all receivers share: ``shared_counts`` and ``kept_pairs``; empty: not made yet."""

    counts: Sequence[int] = ()
    kept: Sequence[int] = ()


class Supervisor:
    """Starts the processes of one home and restarts those that end.

    ``roles`` say what the children of each role run. ``listeners`` are the receivers' sockets if systemd keeps them; without
    them each receiver gets sockets of its own. ``read`` reads the configuration file again; None: there is no reload.
    """

    def __init__(
        self,
        settings: Settings,
        roles: Mapping[str, Role],
        stored: Path,
        users: Users = ALONE,
        listeners: Sequence[socket.socket] = (),
        service: Service | None = None,
        held: Held | None = None,
        read: Callable[[], Settings] | None = None,
        of_receivers: Shared | None = None,
    ) -> None:
        """``of_receivers``: what all receivers of the node share; None: it is made here. In one of several shards the process
        above has checked the addresses of a reload."""
        self.settings = settings
        self.roles = roles
        self.stored = stored
        self.users = users
        self.listeners = listeners
        self.service = service or Service()
        self._identity = {IDENTITY: identity_variable(held.identity)} if held is not None else {}
        self._read = read
        self._reload: Reload | None = None
        self._killed: list[str] = []  # by the reload that is under way
        self._wanted = False  # a reload was asked for
        self._untold: dict[str, Any] | None = None  # the result of a reload that could not be written
        self._sockets: dict[int, dict[str, socket.socket]] = {}  # by the receiver's number and the address
        shared = of_receivers or Shared()
        self._counts = list(shared.counts)
        self._kept = list(shared.kept)
        self._share()
        self.log = MailLog(settings.log_directory)
        self.started_at, self.since_boot_s = both_clocks()
        self._unpublished = False
        self.children: list[Child] = []
        self._set_children()

    def _share(self) -> None:
        """Makes what all receivers share, if these settings need it."""
        settings = self.settings
        has_logins = any(each.auth != "off" for each in settings.all_listeners)
        if not self._counts and (has_logins or settings.clients.has_rates):
            self._counts = [make_counts()]
        if not self._kept and settings.certificate_pairs:
            self._kept = make_kept()

    def _set_children(self) -> None:
        """Makes the list of children that these settings ask for; those that are there stay as they are."""
        settings = self.settings
        known = {child.name: child for child in self.children}
        wanted = [
            *(Child("receiver", n) for n in range(settings.receiver.processes)),
            Child("manager", 0),
            Child("control", 0),
            *(Child("deliverer", n) for n in range(settings.deliverer.processes)),
            *([Child("exporter", 0)] if settings.export.enabled else []),
        ]
        names = {child.name for child in wanted}
        self.children = [known.get(child.name, child) for child in wanted]
        self.children += [child for child in known.values() if child.name not in names and child.process is not None]

    def run(self) -> None:
        """Starts the receivers, then the other processes, and restarts those that end. Does not return."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler makes sigtimedwait below return
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, RELOAD})
        if not self.settings.nodes.is_on:
            self._run()
        lost = ""
        while True:  # a database keeps the queue, and another node may take it over
            self._own(lost)
            lost = self._run()
            if not lost:
                self._end_receivers()
            self._end_all()

    def _run(self) -> str:
        """Starts the processes and restarts them. Returns what became of the shard when it is lost, and never without one."""
        if self.settings.nodes.is_on:  # the lease that the owner step kept must not run out before the manager has it
            for child in self.children:
                if child.role == "manager":
                    self._start(child)
        receivers = [child for child in self.children if child.role == "receiver"]
        for child in receivers:
            self._start(child)
        until_begun([child.pulse for child in receivers if child.pulse is not None], RECEIVERS_FIRST_S)
        others = [child for child in self.children if child.role != "receiver" and child.process is None]
        for child in sorted(others, key=lambda child: child.role not in DELIVERING):
            with contextlib.suppress(Exception):  # _start says it
                prepare_role(self.roles[child.role])
            self._start(child)  # at once: it recovers while the next room is loaded
        self._publish()
        with contextlib.suppress(OSError):
            end_unfinished(self.settings.run_directory, time.time())
        self.service.ready()  # receivers accept mail; a recovery may take longer
        while True:
            if not self._has_stuck_child():
                self.service.alive()
            now = time.monotonic()
            waits = [child.due - now for child in self.children if child.process is None]
            look_s = LOOK_S if self._reload is None else RELOAD_LOOK_S
            came = signal.sigtimedwait({signal.SIGCHLD, RELOAD}, max(0.0, min([*waits, look_s])))
            self._wanted = self._wanted or (came is not None and came.si_signo == RELOAD)
            if self._wanted and self._reload is None:
                self._wanted = False
                self._begin_reload()
            changed = False
            for child in list(self.children):
                self._feel(child)
                if child.process is not None and (status := child.process.poll()) is not None:
                    self._ended(child)
                    if status in LOST:
                        return LOST[status]
                    changed = True
                if child.process is None and child.due <= time.monotonic():
                    self._start(child)
                    changed = True
            if self._reload is not None:
                self._go_on_with(self._reload)
            if changed or self._unpublished:
                self._publish()
            if self._untold is not None:
                self._tell(self._untold)
            self.log.flush()

    def _own(self, lost: str) -> None:
        """Returns when the shard is ours: a child does it, and a spare waits in it for days. ``lost``: how it was lost."""
        owner = Child("owner", 0)
        self.children, children = [owner], self.children
        while True:
            if owner.process is None and owner.due <= time.monotonic():
                self._start(owner, {SHARD: lost} if lost else {})
                self._publish()
                self.service.ready()  # systemd would end a spare that is not
                for name in ("manager", "receiver"):  # so that they start within the lease that the owner step leaves
                    with contextlib.suppress(Exception):  # _start says it
                        prepare_role(self.roles[name])
            with contextlib.suppress(OSError):
                self.service.status(read_words(self.settings.run_directory))
            self.service.alive()
            signal.sigtimedwait({signal.SIGCHLD}, LOOK_S)
            if owner.process is not None and (status := owner.process.poll()) is not None:
                if not status:
                    break
                if status == SHARD_GONE:  # another node has what was adopted: the process above starts it no more
                    raise SystemExit(SHARD_GONE)
                self._ended(owner)
            self.log.flush()
        if owner.pulse is not None:
            owner.pulse.close()
        self.children = children

    def _end_receivers(self) -> None:
        """Lets receivers come to the end of what clients have begun; new clients go to another node."""
        receivers = [child for child in self.children if child.role == "receiver" and child.process is not None]
        for child in receivers:
            self._close_sockets(child.number)
            self._ask_to_end(child)
        until = time.monotonic() + CLIENTS_S
        while time.monotonic() < until and any(child.process and child.process.poll() is None for child in receivers):
            signal.sigtimedwait({signal.SIGCHLD}, RELOAD_LOOK_S)
            self.service.alive()

    def _end_all(self) -> None:
        """Ends all processes of a shard that is lost. Nothing of them counts any more."""
        if self._reload is not None:
            self._tell(self._reload.result(time.time(), self._killed))
            self._reload = None
        for child in self.children:
            if child.process is not None:
                child.process.kill()
        for child in self.children:
            while child.process is not None and child.process.poll() is None:  # systemd sees one that the kernel keeps
                signal.sigtimedwait({signal.SIGCHLD}, LOOK_S)
            if child.pulse is not None:
                child.pulse.close()
            child.process, child.pulse, child.due, child.backoff_s = None, None, 0.0, BACKOFF_S_MIN
        for number in list(self._sockets):
            self._close_sockets(number)  # clients go to another node
        self._set_children()

    def _start(self, child: Child, more: Mapping[str, str] = {}) -> None:
        is_receiver = child.role == "receiver"
        counts, kept = (self._counts, self._kept) if is_receiver else ([], [])
        child.started = time.monotonic()
        self.log.flush()  # or a forked child would have its lines, too
        pulse = None
        try:
            handed = [listener.fileno() for listener in self._listeners_of(child)] if is_receiver else []
            pulse = Pulse()
            variables = {HANDED: ",".join(map(str, handed)), PULSE: str(pulse.writer), **more}
            if counts:
                variables[COUNTS] = str(counts[0])
            if kept:
                variables[KEPT] = ",".join(map(str, kept))
            order = Order(
                self._named(child), child.role, child.number, str(self.stored),
                handed=[*handed, *counts, *kept, pulse.writer],
                variables={**self.users.environment(child.role), **self._identity, **variables},
                user=self.users.of(child.role),
            )  # fmt: skip
            child.process = start(self.roles[child.role], order)
        except (
            Exception
        ) as error:  # no memory, no free process, a package that can't be loaded; the other children continue
            if pulse is not None:
                pulse.close()
            if not isinstance(error, OSError):
                traceback.print_exc()
            why = error.strerror if isinstance(error, OSError) else repr(error)
            say(f"{self._named(child)} can't be started: {why}; retrying every {BACKOFF_S_MAX:.0f} s")
            child.due = child.started + BACKOFF_S_MAX
            return
        pulse.started()
        child.pulse = pulse
        child.started_at, child.since_boot_s = both_clocks()
        child.restarts += 1
        self.log.started(self._named(child), str(child.process.pid))

    def _named(self, child: Child) -> str:
        """Returns the name of a child for people and for the log, which all shards of a node share."""
        return name_of(child.name, self.settings.shard or 0)

    def _has_stuck_child(self) -> bool:
        """Returns True if a child that was killed because it hung is still there: the kernel does not end it.

        Only systemd can do more then: it ends and starts the whole service when its watchdog hears nothing.
        """
        longest_s = STUCK * self.settings.supervisor.silent_s
        return any(child.process is not None and child.hung_s > longest_s for child in self.children)

    def _feel(self, child: Child) -> None:
        """Kills a child that has sent no pulse for ``supervisor.silent_s``; its restart recovers its work."""
        if child.process is None or child.pulse is None or child.process.poll() is not None:
            return
        if (silent_s := child.pulse.silent_s()) > self.settings.supervisor.silent_s:
            child.hung_s = silent_s
            child.process.kill()

    def _ended(self, child: Child) -> None:
        assert child.process is not None
        if child.pulse is not None:
            child.pulse.close()
            child.pulse = None
        code = child.process.returncode
        assert code is not None
        if self._reload is not None and child.name in self._reload.ending:
            self._ended_for(self._reload, child)
            return
        if child.role == "receiver":
            self._close_sockets(child.number)  # else clients would wait there, and not go to the other receivers
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if child.hung_s:
            how, child.hung_s = f"{how}, as it had hung for {child.hung_s:.0f} s", 0.0
        self.log.child_ended(self._named(child), child.process.pid, how)
        say(f"{self._named(child)} (process {child.process.pid}) ended with {how}")
        now = time.monotonic()
        killed = code < 0
        if killed or now - child.started > HEALTHY_S:
            child.backoff_s = BACKOFF_S_MIN
        else:
            child.backoff_s = min(child.backoff_s * 2, BACKOFF_S_MAX)
        child.process = None
        child.due = now if killed else now + child.backoff_s

    def _listeners_of(self, child: Child) -> Sequence[socket.socket]:
        """Returns the sockets that a receiver gets, and opens those that are not open. Raises OSError."""
        if self.listeners:
            return self.listeners
        mine = self._sockets.setdefault(child.number, {})
        addresses = [each.address for each in self.settings.all_listeners]
        for address in mine.keys() - set(addresses):
            mine.pop(address).close()
        for address in addresses:
            if address not in mine:
                try:
                    mine[address] = listen(address)
                except OSError as error:
                    raise OSError(error.errno, f"{address}: {error.strerror}") from error
        return [mine[address] for address in addresses]

    def _close_sockets(self, number: int) -> None:
        for each in self._sockets.pop(number, {}).values():
            each.close()

    # -- a reload

    def _begin_reload(self) -> None:
        """Reads the file again; with a fault in it, nothing changes."""
        if self._read is None:
            return
        plan = plan_of(self.settings, self._read, sockets_are_given=bool(self.listeners))
        number = last_result(self.settings.run_directory).get("number", 0) + 1
        self._killed = []
        reload = self._reload = Reload(plan, number, time.monotonic() + self.settings.supervisor.reload_s)
        if not plan.refused:
            self._tell(reload.result(None))  # before the settings are stored, or they would seem to be in force
            if why := self._take_over(plan):
                plan = reload.plan = Plan(self.settings, frozenset(), plan.keys, (why,))
        if plan.refused:
            self.log.reload_refused(plan.refused)
            for each in plan.refused:
                say(f"not reloaded: {each}")
            return
        self.log.reload_began(plan.keys, sorted(plan.roles))
        for child in self.children:
            if child.role in plan.roles and child.process is not None:
                if child.role == "deliverer" and "manager" in plan.roles:
                    reload.waiting.add(child.name)  # it answers the manager, which is given nothing new meanwhile
                    continue
                reload.ending.add(child.name)
                self._ask_to_end(child)
        self._set_children()  # more of them are started at once

    def _take_over(self, plan: Plan) -> str:
        """Stores the new settings for the children; returns why that is impossible, or ""."""
        try:
            if self.settings.shard is None:
                refuse_fresh_addresses(self.settings, plan.settings)
            self.users.prepare(plan.settings)
            store_settings(plan.settings, self.stored)
        except OSError as error:
            return str(error)
        self.settings = plan.settings
        self._share()
        return ""

    def _ask_to_end(self, child: Child) -> None:
        assert child.process is not None
        if child.role in ASKED_TO_END and child.process.poll() is None:
            os.kill(child.process.pid, END)
        else:
            child.process.kill()

    def _ended_for(self, reload: Reload, child: Child) -> None:
        """Notes that a child has ended as the reload wanted, and lets those end that waited for it."""
        assert child.process is not None
        reload.ending.discard(child.name)
        child.process, child.due, child.backoff_s = None, time.monotonic(), BACKOFF_S_MIN
        self._set_children()
        if child in self.children:
            reload.beginning.add(child.name)
        elif child.role == "receiver":
            self._close_sockets(child.number)
        if child.role == "manager":
            for other in self.children:
                if other.name in reload.waiting and other.process is not None:
                    reload.waiting.discard(other.name)
                    reload.ending.add(other.name)
                    other.process.kill()  # it has nothing to deliver

    def _go_on_with(self, reload: Reload) -> None:
        """Kills what does not end in time; writes the result when all work again, or should."""
        now = time.monotonic()
        by_name = {child.name: child for child in self.children}
        for name in reload.ending if now > reload.until else ():
            child = by_name.get(name)
            if child is not None and child.process is not None and name not in self._killed:
                self._killed.append(name)
                child.process.kill()
        for name in list(reload.beginning):
            child = by_name.get(name)
            if child is None or (child.pulse is not None and child.pulse.has_begun):
                reload.beginning.discard(name)
        late = sorted(reload.beginning) if now > reload.until + BEGIN_S else []
        if not (reload.is_done or late):
            return
        self._reload = None
        if not reload.plan.refused:
            self.log.reload_ended(time.time() - reload.began_at, self._killed, late)
        self._tell(reload.result(time.time(), self._killed, late))

    def _tell(self, result: dict[str, Any]) -> None:
        """Writes what is known of a reload, for those who wait for it; an error is reported and retried: without the end, the
        reload would seem to continue."""
        try:
            write_result(self.settings.run_directory, result)
        except OSError as error:
            if self._untold is None:
                say(f"the result of the reload can't be written: {error.strerror}")
            self._untold = result
        else:
            self._untold = None

    def _publish(self) -> None:
        """Writes ``processes.json``, the process ids by name, and ``children.json``, with start times and restarts as well.

        An error is reported and retried: a full disk must not stop the processes that deliver mail from it.
        """
        pids = {"supervisor": os.getpid()}
        pids |= {child.name: child.process.pid for child in self.children if child.process is not None}
        children = {
            "supervisor": {
                "pid": os.getpid(), "started_at": self.started_at, "since_boot_s": self.since_boot_s, "restarts": 0,
                SOCKETS_GIVEN: bool(self.listeners),
            }
        } | {
            child.name: {
                "pid": child.process.pid if child.process is not None else None,
                "started_at": child.started_at,
                "since_boot_s": child.since_boot_s,
                "restarts": max(0, child.restarts),
            }
            for child in self.children
        }  # fmt: skip
        missing = [child.name for child in self.children if child.process is None]
        self.service.status(
            f"not running: {', '.join(missing)}" if missing else f"{counted(len(self.children), 'process')} running"
        )
        path = self.settings.run_directory / "processes.json"
        try:
            for name, content in (("processes.json", pids), ("children.json", children)):
                path = self.settings.run_directory / name
                new = path.with_suffix(".new")
                new.write_text(json.dumps(content))
                new.chmod(0o644)
                new.replace(path)
            self._unpublished = False
        except OSError as error:
            if not self._unpublished:
                say(f"{path} can't be written: {error.strerror}; mail is not affected")
            self._unpublished = True


def main(
    settings: Settings,
    roles: Mapping[str, Role],
    users: Users = ALONE,
    read: Callable[[], Settings] | None = None,
) -> int:
    """Runs until it is killed; returns an exit status only if it can't start.

    ``roles`` say what the children run. ``read`` reads the configuration file again, for a reload.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {RELOAD})  # it waits until there is something to reload
    stored = settings.run_directory / SETTINGS_NAME
    service, listeners = Service(), given_listeners()
    configured = [listen_address(each.address) for each in settings.all_listeners]
    if listeners and (difference := unlike(listeners, configured)):
        say(f"[receiver] listen and [[listener]] differ from the sockets of systemd: {difference}")
        return 1
    users.begin()
    try:
        lock = prepare_home(settings)
        forget_known(settings.run_directory)
        if not listeners:
            refuse_shared_ports(settings)
        look_at_versions(
            Disk(), str(settings.home), str(settings.queue_directory), str(settings.events_directory / EXPORTED)
        )
        held = identify(settings)
        refuse_copy(Disk(), str(settings.queue_directory))  # with [nodes] there is a process of the node
        refuse_without_room(settings)
        prepare(settings, users, stored)
    except (DiskFull, HomeError, IdentityError, NotOurs, OSError) as error:
        full = isinstance(error, DiskFull) or is_full(error)
        say(f"{error}; free disk space and inodes" if full else str(error))
        if full:  # the log cannot be written either
            rest_under_systemd(service, str(error))
        elif isinstance(error, IdentityError):
            refuse_start(settings, service, error.fault.message)
        return 1
    try:
        Supervisor(settings, roles, stored, users, listeners, service, held, read).run()
    finally:
        for each in (lock, *held.locks):
            os.close(each)
    return 0
