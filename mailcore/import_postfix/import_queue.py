"""``waypost import-postfix DIR --queue``: Postfix's mail into ours, each recipient once, whatever is killed in between.

Each message goes through the control socket, several at a time. Before one is complete the ledger says which it will be,
synced; where it does not say how that ended, the queue's history is asked the next time. Law: what is not known for certain is
not handed in again, but told. Nothing below Postfix's directories is changed.

Keeps law: import-hands-in-once (docs/laws.md).
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.control.arguments import CHUNK_BYTES_MAX
from mailcore.control.client import ControlClient, Refused
from mailcore.envelope import RECIPIENTS_PER_RECORD
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.dropped import cleaned, origin, qualified
from mailcore.import_postfix.ledger import Begun, Ledger, LedgerInUse
from mailcore.import_postfix.machine import open_machine
from mailcore.import_postfix.queue_directory import MasterRuns, aside, message_files, nobody_else, strangers
from mailcore.import_postfix.queue_file import QueuedMessage, content, read_message
from mailcore.import_postfix.records import FileFault
from mailcore.import_postfix.relaying import local_domains
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, control_client, settings_of
from mailcore.terminal.output import complain, plain, print_json, say

__all__ = ["configure", "run"]

LEDGER = "import-postfix.ledger"  # below home
AT_ONCE = 16  # messages: they share syncs and checkpoints; control takes 20
TOLD_MAX = 100  # messages that stay are named, the rest is counted
SETTLED_S = 90.0  # after which control has answered or given up: it waits 60 s for the manager
ASK_AGAIN_S = 1.0
HELD_BECAUSE = "it was held in Postfix's queue"


def configure(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the queue (Waypost runs, Postfix does not)")
    group.add_argument("--queue", action="store_true", help="hand in what is in Postfix's queue, each message once")
    group.add_argument("--dry-run", action="store_true", help="only say what --queue would hand in")
    group.add_argument(
        "--queue-directory", metavar="DIR", type=Path, help="a copy of it; default: main.cf's queue_directory"
    )
    group.add_argument("--ledger", metavar="FILE", type=Path, help=f"what is in already; default: {LEDGER} below home")
    group.add_argument("--list-done", action="store_true", help="queue ids that are wholly in, for postsuper -d -")


@dataclass
class _Tally:
    """What came of it. ``stays``: queue id and why."""

    messages: int = 0
    recipients: int = 0
    held: int = 0
    before: int = 0  # messages wholly in since an earlier run
    nobody: int = 0  # messages that nobody is waiting for: all delivered
    done_before: int = 0  # recipients Postfix delivered to
    notes: dict[str, int] = field(default_factory=dict)
    stays: list[tuple[str, str]] = field(default_factory=list)
    done_ids: list[str] = field(default_factory=list)


def run(arguments: argparse.Namespace) -> int:
    try:
        machine = open_machine(arguments.directory, socket.gethostname())
    except UnicodeDecodeError:
        raise UsageError(f"import-postfix: {arguments.directory}/main.cf is not UTF-8") from None
    directory: Path = arguments.queue_directory or Path(machine.cf.value("queue_directory"))
    if not directory.is_dir():
        raise UsageError(f"import-postfix: {directory} is no directory; give the queue with --queue-directory DIR")
    settings = settings_of(arguments)
    ledger_path = arguments.ledger or settings.home / LEDGER
    size = min(RECIPIENTS_PER_RECORD, settings.receiver.recipient_limit)
    names = (origin(machine), machine.cf.value("myhostname"))
    try:
        with nobody_else(directory), contextlib.closing(Ledger(ledger_path)) as ledger:
            work = _Import(arguments, directory, ledger, names, size, local_domains(machine, Draft()))
            if arguments.list_done:
                return work.list_done()
            if not arguments.dry_run:
                work.settle()
            work.all_messages()
            return work.told(machine.other_instances())
    except (MasterRuns, LedgerInUse) as refused:
        complain(refused)
        return NOT_DONE


class _Import:
    def __init__(
        self,
        arguments: argparse.Namespace,
        directory: Path,
        ledger: Ledger,
        names: tuple[str, str],
        size: int,
        at_home: set[str],
    ) -> None:
        self._arguments = arguments
        self._directory = directory
        self._ledger = ledger
        self._domain, self._hostname = names
        self._size = size
        self._at_home = at_home
        self._tally = _Tally()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._clients: list[ControlClient] = []
        self._doubtful: dict[str, str] = {}  # key -> why nothing more is done about it

    # What an earlier run left open

    def settle(self) -> None:
        """Asks the queue about what was begun. Raises ControlError."""
        for entry in self._ledger.open_ends():
            while (found := self._found(entry)) is None and time.time() < entry.at + SETTLED_S:
                complain(f"{entry.queue_id} was under way when the last import ended: waiting whether it arrives")
                time.sleep(ASK_AGAIN_S)
            if found:
                self._ledger.done(entry)
            elif found is False:
                self._doubtful[entry.key] = (
                    f"may be in the queue as {entry.queue_id}: the journal of that time is gone. Look for it; when it was not "
                    f'delivered, remove the line "begun {entry.key}" from {self._ledger.path}'
                )
            else:
                self._ledger.void(entry)

    def _found(self, entry: Begun) -> bool | None:
        """None: it did not get in. False: nobody knows any more."""
        told = self._client().call("history", {"queue_id": entry.queue_id})
        if told["events"]:
            return True
        since = told["since"]
        return False if since is not None and since > entry.at else None

    # The messages

    def all_messages(self) -> None:
        """Raises ControlError when nobody takes mail any more; what was handed in until then is in the ledger."""
        pending: set[Future[None]] = set()
        pool = ThreadPoolExecutor(AT_ONCE)
        self._tally.stays += [
            (name, "is no message by its name: Postfix passes it over, too") for name in strangers(self._directory)
        ]
        try:
            for queue, path in message_files(self._directory):
                message = self._read(queue, path)
                if message is not None:
                    pending.add(pool.submit(self._hand_in, message))
                if len(pending) >= 4 * AT_ONCE:
                    pending = self._collect(pending, FIRST_COMPLETED)
            self._collect(pending, "ALL_COMPLETED")
        finally:
            pool.shutdown(cancel_futures=True)
            for client in self._clients:
                client.close()

    def _collect(self, pending: set[Future[None]], until: str) -> set[Future[None]]:
        done, rest = wait(pending, return_when=until)
        for each in done:
            each.result()
        return rest

    def _read(self, queue: str, path: Path) -> QueuedMessage | None:
        """None: nothing is to be done about it."""
        tally = self._tally
        try:
            with path.open("rb") as file:
                message = read_message(queue, path, file)
        except (FileFault, OSError) as fault:
            tally.stays.append((path.name, str(fault)))
            return None
        if message.key in self._doubtful:
            tally.stays.append((path.name, self._doubtful[message.key]))
            return None
        tally.done_before += message.done
        if not message.recipients:
            tally.nobody += 1
            tally.done_ids.append(path.name)
            return None
        if all(self._ledger.is_done(message.key, place) for place, _ in message.recipients):
            tally.before += 1
            tally.done_ids.append(path.name)
            return None
        if any(
            qualified(address, self._domain).rpartition("@")[2].lower() in self._at_home
            for _, address in message.recipients
        ):
            message.notes.add("a recipient's domain had mailboxes or aliases on the old host")
        for note in message.notes:
            tally.notes[note] = tally.notes.get(note, 0) + 1
        return message

    def _hand_in(self, message: QueuedMessage) -> None:
        left = [each for each in message.recipients if not self._ledger.is_done(message.key, each[0])]
        tally = self._tally
        try:
            for part in _stretches(message, left, self._size):
                if not self._arguments.dry_run:
                    self._hand_in_part(message, part)
                with self._lock:
                    tally.recipients += len(part)
        except (FileFault, Refused, OSError) as error:
            tally.stays.append((message.queue_id, str(error)))
            return
        with self._lock:
            tally.messages += 1
            tally.held += message.held
        tally.done_ids.append(message.queue_id)

    def _hand_in_part(self, message: QueuedMessage, part: list[tuple[int, str]]) -> None:
        client = self._client()
        why = f"from Postfix, where it was {message.queue_id}"
        begin = {
            "sender": qualified(message.sender, self._domain),
            "recipients": [qualified(address, self._domain) for _, address in part],
            "age_s": min(max(time.time() - message.arrived_at, 0.0), 3e9),
            "held_because": HELD_BECAUSE if message.held else "",
        }
        try:
            queue_id = client.call("inject_begin", begin, why=why)["queue_id"]
            with message.path.open("rb") as file:
                for piece in self._pieces(message, file):
                    client.call("inject_data", {"data": piece})
            entry = Begun(message.key, part[0][0], part[-1][0], queue_id, int(time.time()))
            self._ledger.begun(entry)
            client.call("inject_end", why=why)
        except (Refused, FileFault, OSError):
            client.close()  # a message half handed in goes with its connection
            raise
        self._ledger.done(entry)

    def _pieces(self, message: QueuedMessage, file: Any) -> Iterator[bytes]:
        pieces = content(file, CHUNK_BYTES_MAX)
        if message.queue == "maildrop":
            pieces = cleaned(message, pieces, self._domain, self._hostname)
        for piece in pieces:
            for at in range(0, len(piece), CHUNK_BYTES_MAX):
                yield piece[at : at + CHUNK_BYTES_MAX]

    def _client(self) -> ControlClient:
        """Each thread has its own."""
        client: ControlClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = control_client(self._arguments)
            self._clients.append(client)
        return client

    # What is said

    def list_done(self) -> int:
        for queue, path in message_files(self._directory):
            self._read(queue, path)
        for queue_id in self._tally.done_ids:
            say(queue_id)
        return DONE

    def told(self, others: list[str]) -> int:
        """``others``: Postfixes that were not looked at."""
        tally = self._tally
        bounces = sorted(aside(self._directory, "bounce"))
        corrupt = sorted(aside(self._directory, "corrupt"))
        status = NOT_DONE if tally.stays else DONE
        if self._arguments.json:
            print_json(
                {
                    "messages": tally.messages, "recipients": tally.recipients, "held": tally.held, "before": tally.before,
                    "nobody": tally.nobody, "done_before": tally.done_before, "notes": tally.notes,
                    "stays": [{"queue_id": queue_id, "why": why} for queue_id, why in tally.stays],
                    "unsent_bounces": bounces, "corrupt": corrupt, "other_instances": others,
                    "ledger": str(self._ledger.path),
                }
            )  # fmt: skip
            return status
        verb = "would be handed in" if self._arguments.dry_run else "handed in"
        say(f"{tally.messages} messages with {tally.recipients} recipients {verb}, {tally.held} of them held")
        for count, what in (
            (tally.before, "messages were in already"),
            (tally.nobody, "messages have nobody left to be delivered to"),
            (tally.done_before, "recipients Postfix had delivered to or refused; they get nothing again"),
            *((count, f"messages: {note}, which Waypost does not do") for note, count in sorted(tally.notes.items())),
        ):
            if count:
                say(f"{count} {what}")
        for names, what in (
            (bounces, "messages have refusals that Postfix has not told their senders (its directory bounce):"),
            (corrupt, "files in Postfix's directory corrupt, which were not looked at:"),
            ([f"{queue_id}: {why}" for queue_id, why in tally.stays], "files stay in Postfix's queue:"),
            (others, "more Postfixes on this host, whose queues were not looked at; import each by itself:"),
        ):
            if names:
                say(f"{len(names)} {what}")
            for name in names[:TOLD_MAX]:
                say(f"  {plain(name)}")
        if not self._arguments.dry_run:
            self._afterwards()
        return status

    def _afterwards(self) -> None:
        """What only the operator may do."""
        directory = self._arguments.directory
        say(
            "Ages and lifetimes count on from Postfix. Do not start Postfix on this queue again: it would send all once more."
        )
        say("When all is well, delete there what is in here, and keep the ledger until then:")
        say(f"  waypost import-postfix {directory} --queue --list-done | postsuper -c {directory} -d -")
        say(f"  ledger: {self._ledger.path}")


def _stretches(message: QueuedMessage, left: list[tuple[int, str]], size: int) -> Iterator[list[tuple[int, str]]]:
    """At most ``size`` recipients each; one is not to reach over places that the ledger has already."""
    todo = {place for place, _ in left}
    there = {place for place, _ in message.recipients}
    part: list[tuple[int, str]] = []
    for place, address in left:
        gap = part and any(each in there and each not in todo for each in range(part[-1][0] + 1, place))
        if len(part) >= size or gap:
            yield part
            part = []
        part.append((place, address))
    if part:
        yield part
