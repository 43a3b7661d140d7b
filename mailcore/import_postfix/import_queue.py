"""``waypost import-postfix DIR --queue``: imports Postfix's queue, each recipient once, even if a process is killed.

Messages go through the control socket, several at a time. Before a message is completed, the ledger records its queue ID,
synced; if the result is missing there, the next run asks the history of the queue. Law: a message whose result is uncertain is
not imported again, but reported. Nothing in Postfix's directories is changed.

Keeps law: import-hands-in-once (docs/laws.md).
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.config.load import ConfigError, load
from mailcore.config.settings import Receiver
from mailcore.control.client import ControlClient, Refused
from mailcore.control.protocol.injection import Injected
from mailcore.control.protocol.messages import HistoryPart
from mailcore.control.protocol.operation import CHUNK_BYTES_MAX, Nothing
from mailcore.counted import counted
from mailcore.envelope import RECIPIENTS_PER_RECORD
from mailcore.faults import Code
from mailcore.import_postfix.draft import Draft
from mailcore.import_postfix.dropped import cleaned, origin, qualified
from mailcore.import_postfix.ledger import Begun, Ledger, LedgerInUse
from mailcore.import_postfix.machine import open_machine
from mailcore.import_postfix.queue_directory import (
    MasterRuns,
    aside,
    message_files,
    other_files,
    postfix_stopped,
    queue_directory,
)
from mailcore.import_postfix.queue_file import QueuedMessage, content, read_message
from mailcore.import_postfix.records import FileFault
from mailcore.import_postfix.relaying import local_domains
from mailcore.terminal.command import DONE, NOT_DONE, UsageError, config_path, control_client
from mailcore.terminal.output import complain, plain, print_json, say

__all__ = ["configure", "run"]

LEDGER = "import-postfix.ledger"  # below home
AT_ONCE = 16  # messages: they share syncs and checkpoints; control takes 20
NAMES_SHOWN = 100  # messages listed by name; the rest is counted
SETTLED_S = 90.0  # control answers or gives up within this time: it waits 60 s for the manager
ASK_AGAIN_S = 1.0
ASKS_WITHOUT_JOURNAL, ASK_JOURNAL_AGAIN_S = 5, 0.2  # a checkpoint writes to the journal each second
HELD_BECAUSE = "it was held in Postfix's queue"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the queue import to ``parser``."""
    group = parser.add_argument_group("queue import (Waypost must be running, Postfix must be stopped)")
    group.add_argument("--queue", action="store_true", help="import the messages of Postfix's queue, each once")
    group.add_argument("--dry-run", action="store_true", help="only report what --queue would import")
    group.add_argument(
        "--queue-directory",
        metavar="DIR",
        type=Path,
        help="queue directory or a copy of it; default: queue_directory of main.cf, below the copy if DIR is one",
    )
    group.add_argument(
        "--ledger", metavar="FILE", type=Path, help=f"record of imported messages; default: {LEDGER} in the home"
    )
    group.add_argument(
        "--list-done", action="store_true", help="list queue IDs that are imported completely, for postsuper -d -"
    )


class _Stay(NamedTuple):
    """Describes a file that stays in Postfix's queue."""

    queue_id: str
    why: str
    code: Code | None = None  # of Waypost's refusal; None: it was not asked


@dataclass
class _Tally:
    """The result of an import."""

    messages: int = 0
    recipients: int = 0
    held: int = 0
    before: int = 0  # messages imported completely by an earlier run
    finished: int = 0  # messages without undelivered recipients
    done_before: int = 0  # recipients that Postfix has finished
    notes: dict[str, int] = field(default_factory=dict)
    stays: list[_Stay] = field(default_factory=list)
    done_ids: list[str] = field(default_factory=list)


def run(arguments: argparse.Namespace) -> int:
    """Imports the queue and returns the exit status. Raises UsageError, ConfigError, ControlError, OSError."""
    try:
        machine = open_machine(arguments.directory, arguments.hostname)
    except UnicodeDecodeError:
        raise UsageError(f"import-postfix: {arguments.directory}/main.cf is not UTF-8") from None
    directory = queue_directory(machine, arguments.queue_directory)
    if not machine.has_name and not arguments.list_done:
        raise UsageError(
            f"import-postfix: {arguments.directory}/main.cf sets no myhostname, and the name of its host is not known, because "
            "this is not its own directory; give it with --hostname NAME: addresses without a domain are completed with it"
        )
    only_read = arguments.dry_run or arguments.list_done
    home, recipients_max = _home_and_limit(arguments, only_read)
    ledger_path: Path = arguments.ledger or home / LEDGER
    if not only_read and not ledger_path.parent.is_dir():
        raise UsageError(
            f"import-postfix: {ledger_path.parent} does not exist; start Waypost, which creates its home, or use --dry-run"
        )
    size = min(RECIPIENTS_PER_RECORD, recipients_max)
    names = (origin(machine), machine.cf.value("myhostname"))
    try:
        with postfix_stopped(directory), contextlib.closing(Ledger(ledger_path, only_read=only_read)) as ledger:
            work = _Import(arguments, directory, ledger, names, size, local_domains(machine, Draft()))
            if arguments.list_done:
                return work.list_done()
            if not arguments.dry_run:
                work.settle()
            work.all_messages()
            return work.report(machine.other_instances())
    except (MasterRuns, LedgerInUse) as refused:
        complain(refused)
        return NOT_DONE


def _home_and_limit(arguments: argparse.Namespace, only_read: bool) -> tuple[Path, int]:
    """Returns Waypost's home, and its limit of recipients. Raises ConfigError.

    A report needs no configuration: without one, they are those of a new Waypost.
    """
    try:
        path = config_path(arguments)
    except ConfigError:
        if not only_read:
            raise
        return Path(arguments.home), Receiver().recipient_limit
    settings = load(path)
    return settings.home, settings.receiver.recipient_limit


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
        self._doubtful: dict[str, str] = {}  # key -> why it is not imported

    # Entries without a result from an earlier run

    def settle(self) -> None:
        """Asks the queue for the result of entries that were begun. Raises ControlError."""
        for entry in self._ledger.open_ends():
            while (found := self._found(entry)) is None and time.time() < entry.at + SETTLED_S:
                complain(f"{entry.queue_id} was in progress when the last import ended; waiting for it to arrive")
                time.sleep(ASK_AGAIN_S)
            if found:
                self._ledger.done(entry)
            elif found is False:
                self._doubtful[entry.key] = (
                    f"may be in the queue as {entry.queue_id}; its journal no longer exists. If it was not delivered, "
                    f'remove the line "begun {entry.key}" from {self._ledger.path}'
                )
            else:
                self._ledger.void(entry)

    def _found(self, entry: Begun) -> bool | None:
        """Tells whether an entry was imported. None: it was not. False: unknown, its journal no longer exists."""
        for _ in range(ASKS_WITHOUT_JOURNAL):
            history = self._client().ask("history", HistoryPart, {"queue_id": entry.queue_id})
            if history.events:
                return True
            if history.since is not None:
                return False if history.since > entry.at else None
            time.sleep(ASK_JOURNAL_AGAIN_S)  # its only segment with a time may have been deleted just now
        return None  # nothing was ever recorded

    # The messages

    def all_messages(self) -> None:
        """Imports all messages. Raises ControlError if Waypost stops; the ledger holds everything imported until then."""
        pending: set[Future[None]] = set()
        pool = ThreadPoolExecutor(AT_ONCE)
        self._tally.stays += [
            _Stay(name, "is not a message, by its name; Postfix ignores it, too")
            for name in other_files(self._directory)
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
        """Reads a message; None if it needs no import, which is counted or reported."""
        tally = self._tally
        try:
            with path.open("rb") as file:
                message = read_message(queue, path, file)
        except (FileFault, OSError) as fault:
            tally.stays.append(_Stay(path.name, str(fault)))
            return None
        if message.key in self._doubtful:
            tally.stays.append(_Stay(path.name, self._doubtful[message.key]))
            return None
        tally.done_before += message.done
        if not message.recipients:
            tally.finished += 1
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
            code = error.code if isinstance(error, Refused) else None
            tally.stays.append(_Stay(message.queue_id, str(error), code))
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
            "rewrite": False,  # Postfix did it before it queued the message
        }
        try:
            queue_id = client.ask("inject_begin", Injected, begin, why=why).queue_id
            with message.path.open("rb") as file:
                for piece in self._pieces(message, file):
                    client.ask("inject_data", Nothing, {"data": piece})
            entry = Begun(message.key, part[0][0], part[-1][0], queue_id, int(time.time()))
            self._ledger.begun(entry)
            client.ask("inject_end", Injected, why=why)
        except (Refused, FileFault, OSError):
            client.close()  # closing the connection discards an incomplete message
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
        """Returns the client of this thread."""
        client: ControlClient | None = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = control_client(self._arguments)
            self._clients.append(client)
        return client

    # Output

    def list_done(self) -> int:
        """Prints the queue IDs of messages that are imported completely."""
        for queue, path in message_files(self._directory):
            self._read(queue, path)
        for queue_id in self._tally.done_ids:
            say(queue_id)
        return DONE

    def report(self, others: list[str]) -> int:
        """Prints the result. ``others``: Postfix instances that were not imported."""
        tally = self._tally
        bounces = sorted(aside(self._directory, "bounce"))
        corrupt = sorted(aside(self._directory, "corrupt"))
        status = NOT_DONE if tally.stays else DONE
        if self._arguments.json:
            print_json(
                {
                    "messages": tally.messages, "recipients": tally.recipients, "held": tally.held, "before": tally.before,
                    "nobody": tally.finished, "done_before": tally.done_before, "notes": tally.notes,  # lang: quoted
                    "stays": [stay._asdict() for stay in tally.stays],
                    "unsent_bounces": bounces, "corrupt": corrupt, "other_instances": others,
                    "ledger": str(self._ledger.path), "queue_directory": str(self._directory),
                }
            )  # fmt: skip
            return status
        say(f"queue directory: {plain(str(self._directory))}")
        verb = "would be imported" if self._arguments.dry_run else "imported"
        recipients = counted(tally.recipients, "recipient")
        say(f"{counted(tally.messages, 'message')} with {recipients} {verb}, {tally.held} of them held")
        for count, one, many in (
            (tally.before, "message was imported before", "messages were imported before"),
            (tally.finished, "message has no undelivered recipients", "messages have no undelivered recipients"),
            (
                tally.done_before,
                "recipient was already finished by Postfix and gets no second copy",
                "recipients were already finished by Postfix; they get no second copy",
            ),
        ):
            if count:
                say(f"{count} {one if count == 1 else many}")
        for note, count in sorted(tally.notes.items()):
            say(f"{counted(count, 'message')}: {note}; not supported by Waypost")
        unreported = "failures that Postfix has not reported to their senders (its directory bounce):"
        for names, one, many in (
            (bounces, f"message has {unreported}", f"messages have {unreported}"),
            (
                corrupt,
                "file in Postfix's directory corrupt was not read:",
                "files in Postfix's directory corrupt were not read:",
            ),
            (
                [f"{stay.queue_id}: {stay.why}" for stay in tally.stays],
                "file stays in Postfix's queue:",
                "files stay in Postfix's queue:",
            ),
            (
                others,
                "other Postfix instance on its host was not imported; import it separately:",
                "other Postfix instances on its host were not imported; import each separately:",
            ),
        ):
            if names:
                say(f"{len(names)} {one if len(names) == 1 else many}")
            for name in names[:NAMES_SHOWN]:
                say(f"  {plain(name)}")
        if not self._arguments.dry_run:
            self._afterwards()
        return status

    def _afterwards(self) -> None:
        """Prints the remaining steps for the operator."""
        directory = shlex.quote(str(self._arguments.directory))
        options = [("--queue-directory", self._arguments.queue_directory), ("--ledger", self._arguments.ledger)]
        more = "".join(f" {name} {shlex.quote(str(value))}" for name, value in options if value is not None)
        say(
            "Messages keep their age. Do not start Postfix with this queue again: it would deliver every message twice."
        )
        say("After checking the result, delete the imported messages from Postfix's queue; keep the ledger until then:")
        say(f"  waypost import-postfix {directory} --queue --list-done{more} | postsuper -c {directory} -d -")
        say(f"  ledger: {self._ledger.path}")


def _stretches(message: QueuedMessage, left: list[tuple[int, str]], size: int) -> Iterator[list[tuple[int, str]]]:
    """Yields stretches of at most ``size`` recipients; a stretch contains no positions that the ledger has already."""
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
