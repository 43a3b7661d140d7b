"""``waypost mailcore`` with several shards: a process that keeps a supervisor for each, which keeps the processes of its queue.

It holds the lock of the home, and the sockets that systemd passes; it checks a reload before any shard takes it over, writes
what is the same for all shards into the run directory, and speaks to systemd. A supervisor that ends is started again; the
others do not notice. All end with this process (PR_SET_PDEATHSIG). There is no shutdown.

- A shard beyond ``[core] shards`` drains: it has no receivers. When no mail is left in it, DRAINED says so, and it is not
  started with the next start; until then its history and events can be asked for.
- With [nodes], a child watches the shards of other nodes (``mailcore/nodes/spare``), and names those that it has taken over.
  Each has a supervisor here until another node has it. With an address for the others, another child passes questions on
  to them, and takes in theirs (``mailcore/peers``).
- systemd hears from this process while it works and any shard does: a shard that does not get up again must not end others.

Must not know: what a process does.

Keeps law: shards-stand-alone, law: drained-before-forgotten, law: reload-is-checked-first (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import setproctitle

from mailcore.config.document import ConfigError
from mailcore.config.known_shards import DRAINED, KnownShard, doubt_others, forget_others, name_of, write_known
from mailcore.config.settings import Settings, shard_place, shares_in
from mailcore.config.shards import adopted, of_shard, shards_of
from mailcore.config.values import listen_address
from mailcore.counted import counted
from mailcore.log.disk import Disk, is_full
from mailcore.maillog.maillog import MailLog
from mailcore.supervisor.adopted import TakenOver, forget_taken, number_lent, read_taken, shard_waits
from mailcore.supervisor.beside import Beside, beside_of
from mailcore.supervisor.child import SETTINGS_NAME, store_settings, stored_settings
from mailcore.supervisor.ending import SHARD_GONE
from mailcore.supervisor.forked import end_with
from mailcore.supervisor.fresh_addresses import SOCKETS_GIVEN
from mailcore.supervisor.kept_pairs import make_kept
from mailcore.supervisor.preparation import HomeError, prepare_home, refuse_fresh_addresses, refuse_shared_ports
from mailcore.supervisor.pulse import Pulse
from mailcore.supervisor.refused import rest_under_systemd
from mailcore.supervisor.reloading import RELOAD, Plan, Reload, end_unfinished, last_result, plan_of, write_result
from mailcore.supervisor.service import Service, given_listeners, unlike
from mailcore.supervisor.shard import NodeService, OfNode, supervise
from mailcore.supervisor.shared_counts import make_counts
from mailcore.supervisor.start import TITLE, Process, Role, close_all_but, forked
from mailcore.supervisor.supervisor import (
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    BEGIN_S,
    HEALTHY_S,
    LOOK_S,
    RECEIVERS_FIRST_S,
    RELOAD_LOOK_S,
    Shared,
    both_clocks,
    say,
)
from mailcore.supervisor.users import ALONE, Users

__all__ = ["Node", "Shard", "main"]

DRAIN_LOOK_S = 5.0  # between two questions whether a shard that drains is empty
QUESTION_S_MAX = 60.0  # then the question has no answer
# The parts of an alone start that a reader of the run directory could take for those of this one.
_OF_A_QUEUE_ALONE = ("control.sock", "manager.sock", "exporter.sock")

Derive = Callable[[Settings], Settings]


@dataclass(slots=True)
class Shard:
    """One shard to keep running. ``derive`` makes its settings of those of the node; ``is_open``: it takes mail."""

    number: int
    derive: Derive
    is_open: bool = True
    adopted: TakenOver | None = None  # of another node: whose it was
    process: Process | None = None
    pulse: Pulse | None = None
    hung_s: float = 0.0  # it sent no pulse for this long and was killed; 0.0 if it was not
    started: float = 0.0
    started_at: float = 0.0  # wall clock, for people
    since_boot_s: float = 0.0  # at the same moment
    restarts: int = -1
    backoff_s: float = BACKOFF_S_MIN
    due: float = 0.0
    has_begun: bool = False  # once: its receivers accepted mail
    published: int = 0  # when its processes changed last, of what is published
    question: Process | None = None  # whether it is empty
    asked: float = 0.0  # monotonic
    is_drained: bool = False

    @property
    def name(self) -> str:
        """Returns the name of its supervisor in logs and files."""
        return name_of("supervisor", self.number)


@dataclass(slots=True)
class _Passed:
    """A reload that was passed on to the shards."""

    reload: Reload
    until: float  # a shard that has not ended it by then is named
    before: dict[int, tuple[int, int]]  # shard -> process and number of its last reload, of those that are still to end
    refused: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)


class Node:
    """Keeps the supervisors of the shards of one home.

    ``add`` and ``remove`` also serve shards that come from other nodes and go there: their supervisors are started and ended
    while the others work.
    """

    def __init__(
        self,
        settings: Settings,
        roles: Mapping[str, Role],
        is_empty: Callable[[Settings], bool],
        users: Users = ALONE,
        listeners: Sequence[socket.socket] = (),
        service: Service | None = None,
        read: Callable[[], Settings] | None = None,
        kept: Sequence[int] = (),
    ) -> None:
        """``is_empty``: whether a shard has no mail, asked in a process of its own. ``kept``: descriptors that all
        supervisors have, too, such as the lock of the home."""
        self.settings = settings
        self.stored = settings.run_directory / SETTINGS_NAME
        self.shards: dict[int, Shard] = {}
        self.service = service or Service()
        shared = Shared((make_counts(),), tuple(make_kept()))
        self._of_node = OfNode(roles, users, listeners, shared)
        self._kept = [*kept, *shared.counts, *shared.kept, *(each.fileno() for each in listeners)]
        self._is_empty = is_empty
        self._read = read
        self._wanted = False  # a reload was asked for
        self._passed: _Passed | None = None
        self._untold: dict[str, Any] | None = None  # the result of a reload that could not be written
        self._beside = [Beside(name, roles[name]) for name in beside_of(settings)]
        self._had: dict[int, int] = {}  # shards that were adopted and are gone -> their last epoch
        self._status = self._told_status = ""
        self._is_ready = False
        self._unpublished = True
        self._complained = False
        self.log = MailLog(settings.log_directory)
        self.started_at, self.since_boot_s, self._started = *both_clocks(), time.monotonic()

    def add(self, shard: Shard) -> None:
        """Keeps the supervisor of a shard from now on; it starts with the next look."""
        assert shard.number not in self.shards
        self.shards[shard.number] = shard
        self._unpublished = True

    def remove(self, number: int) -> None:
        """Ends the supervisor of a shard and its processes, and keeps it no more. It is gone when this returns."""
        shard = self.shards.pop(number)
        if shard.process is not None:
            shard.process.kill()
            while shard.process.poll() is None:
                time.sleep(RELOAD_LOOK_S)
        self._forget(shard)
        self._unpublished = True

    def run(self) -> None:
        """Starts the supervisors and restarts those that end. Does not return."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler makes sigtimedwait below return
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, RELOAD})
        with contextlib.suppress(OSError):
            end_unfinished(self.settings.run_directory, time.time())
        while True:
            self._look()
            now = time.monotonic()
            kept: list[Shard | Beside] = [*self.shards.values(), *self._beside]
            waits = [shard.due - now for shard in kept if shard.process is None]
            look_s = LOOK_S if self._passed is None and self._is_ready else RELOAD_LOOK_S
            came = signal.sigtimedwait({signal.SIGCHLD, RELOAD}, max(0.0, min([*waits, look_s])))
            self._wanted = self._wanted or (came is not None and came.si_signo == RELOAD)

    def _look(self) -> None:
        """Does once what ``run`` does all the time."""
        if self.settings.nodes.is_on:
            self._look_at_others()
        for shard in list(self.shards.values()):
            self._feel(shard)
            if shard.process is not None and shard.process.poll() is not None:
                self._ended(shard)
            if shard.process is None and shard.due <= time.monotonic():
                self._start(shard)
            self._ask_whether_drained(shard)
        if self._wanted and self._passed is None:
            self._wanted = False
            self._begin_reload()
        if self._passed is not None:
            self._go_on_with(self._passed)
        self._publish()
        self._say_status()
        if self._untold is not None:
            self._tell(self._untold)
        self._notify()
        self.log.flush()

    def _notify(self) -> None:
        """Tells systemd that all shards have begun, and that something works."""
        shards = self.shards.values()
        if not self._is_ready and (
            all(shard.has_begun for shard in shards) or time.monotonic() > self._started + 2 * RECEIVERS_FIRST_S
        ):
            self._is_ready = True
            self.service.ready()
        silent_s = self.settings.supervisor.silent_s
        if self._is_ready and any(
            shard.process is not None and shard.pulse is not None and shard.pulse.silent_s() <= silent_s
            for shard in shards
        ):
            self.service.alive()

    # -- the supervisors

    def _start(self, shard: Shard) -> None:
        shard.started = time.monotonic()
        self.log.flush()  # or the copy would have its lines, too
        pulse = None
        try:
            pulse = Pulse()
            writer, parent = pulse.writer, os.getpid()
            shard.process = forked(lambda: self._supervise(shard, writer, parent))
        except OSError as error:  # no memory, no free process or descriptor
            if pulse is not None:
                pulse.close()
            say(f"{shard.name} can't be started: {error.strerror}; retrying every {BACKOFF_S_MAX:.0f} s")
            shard.due = shard.started + BACKOFF_S_MAX
            return
        pulse.started()
        shard.pulse = pulse
        shard.started_at, shard.since_boot_s = both_clocks()
        shard.restarts += 1
        self.log.started(shard.name, str(shard.process.pid))
        self._unpublished = True

    def _supervise(self, shard: Shard, writer: int, parent: int) -> int:
        """Runs in the copy of this process that becomes the supervisor of a shard; returns its exit status."""
        close_all_but([*self._kept, writer])
        if not end_with(parent):
            return 1
        setproctitle.setproctitle(f"{TITLE}{shard.name} {self.settings.home}")
        stored, derive = self.stored, shard.derive
        return supervise(
            derive(self.settings), self._of_node, NodeService(writer), lambda: derive(stored_settings(stored))
        )

    # -- shards of other nodes

    def _look_at_others(self) -> None:
        """Keeps the processes for other nodes; starts the shards of these that one of them has taken over."""
        for beside in self._beside:
            self._unpublished |= beside.keep(self.settings, self.log)
        named = read_taken(self.settings.run_directory)
        for shard in list(self.shards.values()):
            if shard.adopted is not None and shard.process is None and shard.adopted not in named:
                self.remove(shard.number)  # it cannot be started here, and another node has it
        for taken in named:
            if taken.number not in self.shards and taken.epoch > self._had.get(taken.number, 0):
                self._had[taken.number] = taken.epoch
                derive = partial(adopted, number=taken.number, name=taken.name)
                self.add(Shard(taken.number, derive, is_open=False, adopted=taken))

    def _feel(self, shard: Shard) -> None:
        """Kills a supervisor that has sent no pulse for ``supervisor.silent_s``: it hangs, or one of its children does."""
        if shard.process is None or shard.pulse is None or shard.process.poll() is not None:
            return
        silent_s = shard.pulse.silent_s()
        shard.has_begun = shard.has_begun or shard.pulse.has_begun
        if silent_s > self.settings.supervisor.silent_s and not shard.hung_s:
            shard.hung_s = silent_s
            shard.process.kill()

    def _ended(self, shard: Shard) -> None:
        assert shard.process is not None
        code = shard.process.returncode
        assert code is not None
        if shard.adopted is not None and code == SHARD_GONE:
            self.log.child_ended(shard.name, shard.process.pid, "another node has the shard")
            say(f"shard {shard.adopted.name} is another node's again")
            self.remove(shard.number)
            return
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if shard.hung_s:
            how, shard.hung_s = f"{how}, as it had hung for {shard.hung_s:.0f} s", 0.0
        self.log.child_ended(shard.name, shard.process.pid, how)
        say(f"{shard.name} (process {shard.process.pid}) ended with {how}")
        now = time.monotonic()
        killed = code < 0
        if killed or now - shard.started > HEALTHY_S:
            shard.backoff_s = BACKOFF_S_MIN
        else:
            shard.backoff_s = min(shard.backoff_s * 2, BACKOFF_S_MAX)
        shard.due = now if killed else now + shard.backoff_s
        self._forget(shard)
        self._unpublished = True

    def _forget(self, shard: Shard) -> None:
        if shard.pulse is not None:
            shard.pulse.close()
        shard.pulse = shard.process = None

    # -- shards that drain

    def _ask_whether_drained(self, shard: Shard) -> None:
        """Asks from time to time whether a shard without receivers is empty, in a process that may take its time."""
        if shard.is_open or shard.is_drained or shard.adopted is not None:
            return
        now = time.monotonic()
        if shard.question is None:
            if shard.process is not None and now >= max(shard.asked, shard.started) + DRAIN_LOOK_S:
                shard.asked = now
                settings, parent = shard.derive(self.settings), os.getpid()
                with contextlib.suppress(OSError):
                    shard.question = forked(lambda: self._answer(settings, parent))
            return
        if shard.question.poll() is None:
            if now > shard.asked + QUESTION_S_MAX:
                shard.question.kill()
            return
        is_empty, shard.question, shard.asked = shard.question.returncode == 0, None, now
        if is_empty:
            self._note_drained(shard)

    def _answer(self, settings: Settings, parent: int) -> int:
        close_all_but(())
        return 0 if end_with(parent) and self._is_empty(settings) else 1

    def _note_drained(self, shard: Shard) -> None:
        """Writes down that a shard is empty. Without receivers, and with no injection, it stays so."""
        try:
            Disk().write_whole(str(shard.derive(self.settings).place / DRAINED), b"no mail was left\n")
        except OSError as error:
            say(f"shard {shard.number} has no mail any more, which can't be written down: {error.strerror}")
            return
        shard.is_drained = True
        say(f"shard {shard.number} has no mail any more; it is not started again with the next start")

    # -- a reload

    def _begin_reload(self) -> None:
        """Reads and checks the file once for all shards; with a fault in it, none hears of it."""
        if self._read is None:
            return
        plan = plan_of(self.settings, self._read, sockets_are_given=bool(self._of_node.listeners))
        number = last_result(self.settings.run_directory).get("number", 0) + 1
        until = time.monotonic() + self.settings.supervisor.reload_s
        reload = Reload(plan, number, until)
        if not plan.refused:
            self._tell(reload.result(None))  # before the settings are stored, or they would seem to be in force
            if why := self._take_over(plan):
                plan = reload.plan = Plan(self.settings, frozenset(), plan.keys, (why,))
        if plan.refused:
            self.log.reload_refused(plan.refused)
            for each in plan.refused:
                say(f"not reloaded: {each}")
            self._tell(reload.result(time.time()))
            return
        passed = _Passed(reload, until + BEGIN_S + RECEIVERS_FIRST_S, {})
        for shard in self.shards.values():
            if shard.process is not None and shard.process.poll() is None:
                passed.before[shard.number] = shard.process.pid, self._result_of(shard).get("number", 0)
                os.kill(shard.process.pid, RELOAD)
        self._passed = passed

    def _take_over(self, plan: Plan) -> str:
        """Stores the new settings for the shards; returns why that is impossible, or ""."""
        try:
            refuse_fresh_addresses(self.settings, plan.settings)
            store_settings(plan.settings, self.stored)
        except OSError as error:
            return str(error)
        self.settings = plan.settings
        return ""

    def _result_of(self, shard: Shard) -> dict[str, Any]:
        return last_result(shard.derive(self.settings).run_directory)

    def _go_on_with(self, passed: _Passed) -> None:
        """Gathers what became of the reload in each shard; writes the result when all work again, or should."""
        for number, (pid, before) in list(passed.before.items()):
            shard = self.shards.get(number)
            if shard is None or shard.process is None or shard.process.pid != pid:
                del passed.before[number]  # it starts again, with the new settings
                continue
            result = self._result_of(shard)
            if result.get("number", 0) > before and result.get("ended_at") is not None:
                del passed.before[number]
                passed.refused += [f"shard {number}: {each}" for each in result["refused"]]
                passed.killed += [name_of(each, number) for each in result["killed"]]
                passed.late += [name_of(each, number) for each in result["not_begun"]]
        if passed.before and time.monotonic() < passed.until:
            return
        self._passed = None
        passed.late += [name_of("supervisor", number) for number in passed.before]
        result = passed.reload.result(time.time(), passed.killed, passed.late)
        self._tell(result | {"refused": passed.refused})

    def _tell(self, result: dict[str, Any]) -> None:
        """Writes what is known of a reload, for those who wait for it; an error is reported and retried."""
        try:
            write_result(self.settings.run_directory, result)
        except OSError as error:
            if self._untold is None:
                say(f"the result of the reload can't be written: {error.strerror}")
            self._untold = result
        else:
            self._untold = None

    # -- what is published

    def _publish(self) -> None:
        """Writes the processes of all shards as one, and the list of shards, when anything has changed."""
        for shard in self.shards.values():
            changed = _changed_at(shard.derive(self.settings).run_directory / "children.json")
            self._unpublished = self._unpublished or changed != shard.published
            shard.published = changed
        if not self._unpublished:
            return
        children: dict[str, dict[str, Any]] = {
            "supervisor": {
                "pid": os.getpid(), "started_at": self.started_at, "since_boot_s": self.since_boot_s, "restarts": 0,
                SOCKETS_GIVEN: bool(self._of_node.listeners),
            }
        }  # fmt: skip
        children |= {beside.name: _entry(beside) for beside in self._beside}
        for shard in self.shards.values():
            children |= self._children_of(shard)
        pids = {name: child["pid"] for name, child in children.items() if child["pid"] is not None}
        missing = [name for name in children if name not in pids]
        self._status = (
            f"not running: {', '.join(missing)}"
            if missing
            else f"{counted(len(self.shards), 'shard')}, {counted(len(children) - 1, 'process')} running"
        )
        run = self.settings.run_directory
        try:
            for name, content in (("processes.json", pids), ("children.json", children)):
                new = run / f"{name}.new"
                new.write_text(json.dumps(content))
                new.chmod(0o644)
                new.replace(run / name)
            write_known(
                run,
                [
                    KnownShard(
                        shard.number,
                        shard.derive(self.settings).run_directory,
                        shard.is_open,
                        self._number_in_ids(shard),
                    )
                    for shard in self.shards.values()
                ],
            )
            self._unpublished = self._complained = False
        except OSError as error:
            if not self._complained:
                say(f"{run}: the list of processes can't be written: {error.strerror}; mail is not affected")
            self._complained = True

    def _number_in_ids(self, shard: Shard) -> int:
        """Returns the number that a database has lent to a shard; -1 if none has."""
        if shard.adopted is not None:
            return shard.number
        is_lent = self.settings.nodes.is_on and not shard.number
        return number_lent(shard.derive(self.settings).run_directory) if is_lent else -1

    def _say_status(self) -> None:
        """Tells systemd what runs; of a home that waits for its shard, what it waits for."""
        status = self._status
        if self.settings.nodes.is_on and 0 in self.shards:
            status = shard_waits(self.shards[0].derive(self.settings).run_directory) or status
        if status != self._told_status:
            self._told_status = status
            self.service.status(status)

    def _children_of(self, shard: Shard) -> dict[str, dict[str, Any]]:
        """Returns a shard's supervisor, and its children as that says; none runs if it does not."""
        pid = shard.process.pid if shard.process is not None else None
        found = {shard.name: _entry(shard)}
        with contextlib.suppress(OSError, ValueError):
            told = json.loads((shard.derive(self.settings).run_directory / "children.json").read_text())
            is_its = told.pop("supervisor")["pid"] == pid
            for name, child in told.items():
                found[name_of(name, shard.number)] = child if is_its else child | {"pid": None}
        return found


def _entry(shard: Shard | Beside) -> dict[str, Any]:
    """Returns what is published of a process of the node."""
    return {
        "pid": shard.process.pid if shard.process is not None else None,
        "started_at": shard.started_at,
        "since_boot_s": shard.since_boot_s,
        "restarts": max(0, shard.restarts),
    }


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _open_again(settings: Settings) -> None:
    """Removes the mark of shards that were drained and are wanted again, before they take mail. Raises OSError."""
    for number in range(settings.core.shards):
        place = shard_place(settings.home, number)
        with contextlib.suppress(FileNotFoundError):
            (place / DRAINED).unlink()
            Disk().sync_directory(str(place))


def main(
    settings: Settings,
    roles: Mapping[str, Role],
    is_empty: Callable[[Settings], bool],
    users: Users = ALONE,
    read: Callable[[], Settings] | None = None,
) -> int:
    """Runs until it is killed; returns an exit status only if it can't start. The arguments are those of ``Node``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {RELOAD})  # it waits until there is something to reload
    service, listeners = Service(), given_listeners()
    configured = [listen_address(each.address) for each in settings.all_listeners]
    if listeners and (difference := unlike(listeners, configured)):
        say(f"[receiver] listen and [[listener]] differ from the sockets of systemd: {difference}")
        return 1
    users.begin()
    try:
        lock = prepare_home(settings)
        if not listeners:
            refuse_shared_ports(settings)
        _open_again(settings)
        forget_taken(settings.run_directory)
        if settings.nodes.listen:
            doubt_others(settings.run_directory)
        else:
            forget_others(settings.run_directory)
        for name in _OF_A_QUEUE_ALONE:
            (settings.run_directory / name).unlink(missing_ok=True)
        users.prepare_run(settings)
        # Receivers and deliverers of other users do not enter it.
        shares_in(settings.run_directory).mkdir(mode=0o700, exist_ok=True)
        store_settings(settings, settings.run_directory / SETTINGS_NAME)
    except (HomeError, ConfigError, OSError) as error:
        say(f"{error}; free disk space and inodes" if isinstance(error, OSError) and is_full(error) else str(error))
        if isinstance(error, OSError) and is_full(error):
            rest_under_systemd(service, str(error))
        return 1
    node = Node(settings, roles, is_empty, users, listeners, service, read, [lock])
    for number in shards_of(settings):
        node.add(Shard(number, partial(of_shard, number=number), number < settings.core.shards))
    node.run()
    return 0
