"""The mail log: one function per event, each writes one line in Postfix's form and one JSON object.

``mail.log`` is read by people and by pflogsumm (``--syslog-name=waypost``); ``mail.jsonl`` by programs, with the same
names for the same things. docs/log.md shows each line.

Laws
- The mail path never waits for the log and never fails by it (see ``Logfile``).
- Lines are buffered; the process calls ``flush`` once per turn of its loop. **A receiver flushes before it reports a
  message to the manager**, or else a delivery may be logged before its arrival, and a summary would miss the size.
- Text from outside goes through ``mailcore.maillog.text`` only.
- Must not know: queue, scheduler, processes. Their callers pass it what it writes.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mailcore.envelope import Envelope, Origin, Status, Verdict
from mailcore.maillog.have import Have
from mailcore.maillog.logfile import Logfile
from mailcore.maillog.milter_lines import MilterLines
from mailcore.maillog.text import free, inside, seconds, word

__all__ = ["MailLog"]

PROGRAM = "waypost"
# A recipient's status as Postfix names it; Postfix has no name for an operator's deletion.
_REPORTS = {  # event of mail.jsonl, and Postfix's words
    "": ("bounced", "sender non-delivery notification"),
    "postmaster": ("bounced", "postmaster non-delivery notification"),
    "delay": ("delay_warned", "sender delay notification"),
    "success": ("success_reported", "sender delivery status notification"),
}
STATUS = {
    Status.DELIVERED: "sent",
    Status.DEFERRED: "deferred",
    Status.BOUNCED: "bounced",
    Status.EXPIRED: "expired",
    Status.DELETED: "deleted",
}
# Not strftime's %b: the names in a log are English, in any locale.
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_encode = msgspec.json.Encoder().encode


class MailLog(MilterLines):
    """The log of one process. ``clock`` is wall-clock seconds, ``monotonic`` paces the look for rotation."""

    def __init__(
        self,
        directory: Path,
        hostname: str = "",
        program: str = PROGRAM,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hostname = word(hostname or socket.gethostname()) or "localhost"
        self._program = word(program)
        self._clock = clock
        self._monotonic = monotonic
        self._pid = os.getpid()
        self._second = -1
        self._stamps: dict[str, str] = {}  # service -> what a line of this second begins with
        self._date = ""
        self._have: Have | None = None
        self._syslog = Logfile(directory / "mail.log", self._lost_syslog)
        self._json = Logfile(directory / "mail.jsonl", self._lost_json)

    def begin_missing(self, lines: Iterable[bytes], objects: Iterable[bytes]) -> None:
        """Leaves out the lines that these ends of the two files have, until ``end_missing``."""
        self._have = Have(lines, objects)

    def end_missing(self) -> None:
        """Ends ``begin_missing``: everything is logged again."""
        self._have = None

    def flush(self) -> None:
        """Writes what was logged since the last flush. Never raises because of a disk."""
        now = self._monotonic()
        self._syslog.flush(now)
        self._json.flush(now)

    def close(self) -> None:
        """Writes what was logged and closes both files."""
        self._syslog.close()
        self._json.close()

    @property
    def lost(self) -> int:
        """Returns the number of lines that could not be written since the start."""
        return self._syslog.lost + self._json.lost

    # -- mail

    def accepted(self, envelope: Envelope, client_name: str = "", uid: int = 0) -> None:
        """Logs that a message is on disk: its client, its Message-ID, and that it is queued (three lines, as in Postfix)."""
        queue_id = envelope.queue_id
        client_name = client_name or envelope.client_name or "unknown"
        if envelope.origin is Origin.SMTP:
            login = ""
            if envelope.login:
                method = f", sasl_method={word(envelope.login_method)}" if envelope.login_method else ""
                login = f"{method}, sasl_username={word(envelope.login)}"
            client = _client(client_name, envelope.client_address)
            original = ""
            if envelope.original_client:  # as Postfix: what a content filter said with XFORWARD
                before = f", orig_queue_id={word(envelope.original_queue_id)}" if envelope.original_queue_id else ""
                original = f"{before}, orig_client={word(envelope.original_client)}"
            self._line("smtpd", f"{queue_id}: client={client}{original}{login}")
        elif envelope.origin is Origin.LOCAL:
            self._line("pickup", f"{queue_id}: uid={uid} from=<{inside(envelope.sender)}>")
        self._line("cleanup", f"{queue_id}: message-id=<{inside(envelope.message_id.strip().strip('<>'))}>")
        self._queue_active(envelope)
        self._object(
            "accepted",
            queue_id=queue_id,
            origin=envelope.origin.name.lower(),
            client_name=client_name,
            client_address=envelope.client_address,
            client_port=envelope.client_port,
            helo=envelope.helo,
            tls=envelope.tls,
            login=envelope.login,
            login_method=envelope.login_method,
            message_id=envelope.message_id,
            sender=envelope.sender,
            size_bytes=envelope.size_bytes,
            recipients=envelope.recipient_count,
            **_original(envelope),
        )

    def active(self, envelope: Envelope) -> None:
        """Logs that another attempt begins for a deferred message."""
        self._queue_active(envelope)
        self._object(
            "active",
            queue_id=envelope.queue_id,
            generation=envelope.generation,
            sender=envelope.sender,
            size_bytes=envelope.size_bytes,
            recipients=envelope.recipient_count,
            attempts=envelope.attempts,
        )

    def refused(
        self,
        stage: str,
        reply: str,
        client_address: str,
        *,
        client_name: str = "unknown",
        sender: str | None = None,
        recipient: str | None = None,
        helo: str = "",
        protocol: str = "ESMTP",
        queue_id: str = "NOQUEUE",
        milter: str = "",
    ) -> None:
        """Logs that a client was refused at ``stage`` (CONNECT, HELO, MAIL, RCPT, DATA, END-OF-MESSAGE) with ``reply``.

        ``milter``: the one that refused it.
        """
        client = _client(client_name, client_address)
        about = f" from=<{inside(sender)}>" if sender is not None else ""
        text = free(reply)
        if recipient is not None:
            about += f" to=<{inside(recipient)}>"
            code, text = _split_code(text)
            text = f"{code}<{inside(recipient)}>: {text}"
        self._line(
            "smtpd",
            f"{queue_id}: {'milter-' if milter else ''}reject: {word(stage)} from {client}: {text};{about} "
            f"proto={word(protocol)} helo=<{inside(helo)}>" + (f" milter={word(milter)}" if milter else ""),
        )
        self._object(
            "refused",
            queue_id="" if queue_id == "NOQUEUE" else queue_id,
            stage=stage,
            reply=reply,
            client_name=client_name,
            client_address=client_address,
            sender=sender,
            recipient=recipient,
            helo=helo,
            protocol=protocol,
            **({"milter": milter} if milter else {}),
        )

    def delivery(
        self,
        queue_id: str,
        recipient: str,
        relay: str,
        verdict: Verdict,
        delays_s: tuple[float, float, float, float],
        *,
        transport: str = "smtp",
        tls: str = "",
        tls_level: str = "",
    ) -> None:
        """Logs the result of one attempt for one recipient, once it is synced.

        ``relay`` is ``host[address]:port``, or "none". ``delays_s``: before the manager, in the queue, connecting,
        transmitting. ``tls_level`` is as ``Delivered.tls_level``; the line has the level alone.
        """
        status = STATUS[verdict.status]
        reply = verdict.reply
        text = free(reply)
        if status != "sent" and relay != "none" and reply[:3].isdigit():
            text = f"host {word(relay[: relay.rfind(']') + 1])} said: {text}"
        before, queued, connecting, transmitting = delays_s
        delay = before + queued + connecting + transmitting
        # Postfix 3.11 has ", tls=" here, which Debian's pflogsumm does not count yet; it takes what belongs to "delays=".
        level = f" tls={word(tls_level.partition(':')[0])}{'' if tls else '/cleartext'}" if tls_level else ""
        self._line(
            "smtp",
            f"{queue_id}: to=<{inside(recipient)}>, relay={word(relay)}, delay={seconds(delay)}, "
            f"delays={seconds(before)}/{seconds(queued)}/{seconds(connecting)}/{seconds(transmitting)}{level}, "
            f"dsn={word(verdict.dsn)}, status={status} ({text})",
        )
        # Written out: this is the event of which there are most.
        line = _json_line(
            {
                "event": "delivery",
                "time": self._clock(),
                "pid": self._pid,
                "queue_id": queue_id,
                "recipient": recipient,
                "relay": relay,
                "transport": transport,
                "tls": tls,
                "tls_level": tls_level,
                "delay_s": delay,
                "delays_s": delays_s,
                "dsn": verdict.dsn,
                "status": status,
                "reply": reply,
            }
        )
        if self._have is None or not self._have.has_object(line):
            self._json.append(line)

    def encrypted(
        self, queue_id: str, relay: str, tls: str, tls_level: str, verified: bool, connecting_s: float
    ) -> None:
        """Logs the encryption of a new connection, as Postfix does; and mail that was sent in the clear instead.

        ``connecting_s`` is 0 for a connection that was used before; its encryption is not logged again.
        """
        if not tls:
            text = f"{queue_id}: no TLS with {word(relay)}: {free(tls_level)}"
        elif connecting_s:
            protocol, _, cipher = tls.partition(" ")
            trust = "Verified" if verified else "Untrusted"
            made = f"{trust} TLS connection established to {word(relay)}: {word(protocol)} with cipher {word(cipher)}"
            text = f"{queue_id}: {made}; {free(tls_level)}"
        else:
            return
        self._line("smtp", text)

    def expired(self, queue_id: str, sender: str) -> None:
        """Logs that a message reached the queue lifetime; each recipient concerned has a delivery line of its own."""
        self._line("qmgr", f"{queue_id}: from=<{inside(sender)}>, status=expired, returned to sender")
        self._object("expired", queue_id=queue_id, sender=sender)

    def notified(self, queue_id: str, bounce_id: str, report: str = "") -> None:
        """Logs that a report was queued for the sender; ``bounce_id`` is its queue id.

        ``report`` is what it tells: "delay", "success", "postmaster" (it is for the postmaster), or "": failures.
        """
        event, kind = _REPORTS[report]
        self._line("bounce", f"{queue_id}: {kind}: {bounce_id}")
        self._object(event, queue_id=queue_id, bounce_id=bounce_id)

    def removed(self, queue_id: str) -> None:
        """Logs that a message left the queue."""
        self._line("qmgr", f"{queue_id}: removed")
        self._object("removed", queue_id=queue_id)

    def administered(self, queue_id: str, operation: str, who: str, why: str) -> None:
        """Logs an operator's change of a message: delete, undelete, hold, release, delay, reroute, bounce, add recipients."""
        self._line("postsuper", f"{queue_id}: {word(operation)} by {word(who) or 'unknown'} ({free(why)})")
        self._object("administered", queue_id=queue_id, operation=operation, who=who, why=why)

    def tuned(self, scope: str, parameter: str, value: object, who: str, why: str, until: float | None = None) -> None:
        """Logs that an operator set a parameter, for good or until a time, or suspended or resumed a destination."""
        name = f"{word(scope)} {word(parameter)}".strip()
        written = word(value) if isinstance(value, str) else value
        end = "" if until is None else f" until {until:.0f}"
        self._line("qmgr", f"tuned: {name} = {written}{end} by {word(who) or 'unknown'} ({free(why)})")
        self._object("tuned", scope=scope, parameter=parameter, value=value, until=until, who=who, why=why)

    def tuned_ended(self, scope: str, parameter: str, value: object, until: float | None, holds: object) -> None:
        """Logs that an override has expired; ``holds`` is the value in force now, None after a suspension."""
        name = f"{word(scope)} {word(parameter)}".strip()
        self._line("qmgr", f"tuned: {name} = {value} expired" + ("" if holds is None else f"; now {holds}"))
        self._object("tuned_ended", scope=scope, parameter=parameter, value=value, until=until, holds=holds)

    def tuned_ignored(self, place: str, what: str) -> None:
        """Logs a value of tuned.toml that is not in force. ``place``: the file and its line."""
        self._warning("qmgr", f"{word(place)}: {free(what)}")
        self._object("tuned_ignored", place=place, what=what)

    def window_changed(
        self, destination: str, limit: int, window: int, success: float, failure: float, fail_cohorts: float
    ) -> None:
        """Logs the feedback of a delivery (destination_concurrency_feedback_debug); a window of 0 is a dead destination."""
        counts = f"success {success:g} failure {failure:g} fail_cohorts {fail_cohorts:g}"
        self._line("qmgr", f"window: queue {word(destination)}: limit {limit} window {window} {counts}")
        self._object(
            "window_changed", destination=destination, limit=limit, window=window, success=success, failure=failure,
            fail_cohorts=fail_cohorts,
        )  # fmt: skip

    # -- processes and disks. "warning" and "fatal" are words pflogsumm gathers.

    def started(self, process: str, pid: int | str) -> None:
        """Logs that a process was started. ``process``: "receiver.0"."""
        self._line("master", f"process {word(process)} started, pid {int(pid)}")
        self._object("started", process=process, child_pid=int(pid))

    def start_refused(self, why: str) -> None:
        """Logs that nothing was started: a disk is missing or is another Waypost's."""
        self._line("master", f"fatal: not started: {free(why)}")
        self._object("start_refused", why=why)

    def adopted(self, name: str, directory: str, who: str) -> None:
        """Logs that an operator made a directory one of this home (``waypost identity adopt``)."""
        self._line("master", f"identity: {word(directory)} is the {word(name)} directory by order of {free(who)}")
        self._object("adopted", name=name, directory=directory, who=who)

    def recovered(self, messages: int, seconds_taken: float, held: str = "") -> None:
        """Logs a recovery: how many messages were being worked on. ``held``: why a queue from a backup is on hold."""
        self._line("qmgr", f"recovered: {messages} messages in {seconds(seconds_taken)} s")
        self._object("recovered", messages=messages, seconds=seconds_taken, **({"held": held} if held else {}))
        if held:
            self._warning("qmgr", f"all mail that was in this queue is on hold: {free(held)}")

    def child_ended(self, process: str, pid: int, how: str) -> None:
        """Logs that a process ended. ``how``: "exit status 1", "signal 9"."""
        self._warning("master", f"process {word(process)} pid {pid} ended: {free(how)}; restarting it")
        self._object("child_ended", process=process, child_pid=pid, how=how)

    def maildrop_damaged(self, file: str, what: str) -> None:
        """Logs that a file of the maildrop is not a message; it is kept under another name and not sent."""
        self._warning("pickup", f"{word(file)}: {free(what)}; set aside, not sent")
        self._object("maildrop_damaged", file=file, what=what)

    def record_set_aside(self, file: str, offset: int, what: str) -> None:
        """Logs a damaged record. It stays where it is, and what follows it is still read."""
        self._warning("qmgr", f"damaged record in {word(file)} at {offset}: {free(what)}; set aside")
        self._object("record_set_aside", file=file, offset=offset, what=what)

    def data_damaged(self, queue_id: str, what: str) -> None:
        """Logs that the data of a message is not what was received. It is not sent; the message is held."""
        self._warning("qmgr", f"{queue_id}: data is damaged: {free(what)}; not sent, held")
        self._object("data_damaged", queue_id=queue_id, what=what)

    def positions_damaged(self, files: Sequence[str], journal_bytes: int, seconds: float) -> None:
        """Logs that restart positions could not be believed, and what the start read instead. No mail is lost."""
        instead = "all files were read" if len(files) > 1 else "the others were used"
        self._warning(
            "qmgr",
            f"restart positions damaged: {word(' and '.join(files))}; {instead}: {journal_bytes} bytes of the journal, "
            f"{seconds:.1f} s",
        )
        self._object("positions_damaged", files=list(files), journal_bytes=journal_bytes, seconds=seconds)

    def swept(self, files: int) -> None:
        """Logs how many spool files without a message were removed; crashes leave them."""
        self._line("qmgr", f"swept: {files} spool files without a message removed")
        self._object("swept", files=files)

    def sync_failed(self, file: str, error: str) -> None:
        """Logs a failed sync: the segment is sealed at the last good one, and a new one begins."""
        self._warning("qmgr", f"sync of {word(file)} failed: {free(error)}; the segment is sealed, a new one begins")
        self._object("sync_failed", file=file, error=error)

    def disk_full(
        self, directory: str, free_bytes: int, reserve_bytes: int, free_inodes: int, reserve_inodes: int
    ) -> None:
        """Logs that new mail gets 452 because space or inodes are short; deliveries continue."""
        inodes = f", {free_inodes} inodes free, {reserve_inodes} needed" if free_inodes < reserve_inodes else ""
        sizes = f"{free_bytes} bytes free, {reserve_bytes} needed{inodes}"
        self._warning("smtpd", f"{word(directory)} is full: {sizes}; refusing new mail with 452")
        self._object(
            "disk_full",
            directory=directory,
            free_bytes=free_bytes,
            reserve_bytes=reserve_bytes,
            free_inodes=free_inodes,
            reserve_inodes=reserve_inodes,
        )

    def stopped_accepting(self, why: str) -> None:
        """Logs that mail is not accepted because the lane cannot be written at all."""
        self._warning("smtpd", f"not accepting mail, the queue cannot be written: {free(why)}")
        self._object("stopped_accepting", why=why)

    def accepting_again(self) -> None:
        """Logs that a sync succeeded after ``stopped_accepting``."""
        self._line("smtpd", "accepting mail again")
        self._object("accepting_again")

    def accepting_paused(self, why: str, pause_s: float) -> None:
        """Logs that no connection can be accepted because descriptors or memory are missing; once until one can."""
        self._warning("smtpd", f"cannot accept connections: {free(why)}; next try in {seconds(pause_s)} s")
        self._object("accepting_paused", why=why, pause_s=pause_s)

    def stress(self, begun: bool, connections: int) -> None:
        """Logs that clients outside our networks hold most connections, so that slow ones are ended; or that this is over."""
        if begun:
            self._warning("smtpd", f"{connections} connections of clients outside [relay] networks; ending slow ones")
        else:
            self._line(
                "smtpd", f"{connections} connections of clients outside [relay] networks; waiting for slow ones again"
            )
        self._object("stress" if begun else "stress_ended", connections=connections)

    def rate_exceeded(self, kind: str, count: float, client_address: str, network: str) -> None:
        """Logs that a client's network is beyond a limit of [clients]. ``kind``: "Connection", "Recipient address"."""
        client = f"[{word(client_address)}] of network {word(network)}"
        self._warning("smtpd", f"{kind} rate limit exceeded: {count:.0f} from {client}")
        self._object("rate_exceeded", kind=kind, count=count, client_address=client_address, network=network)

    def proxy_refused(self, balancer: str, why: str) -> None:
        """Logs a connection of a load balancer that was closed because its PROXY header cannot be believed."""
        self._warning("smtpd", f"PROXY header from balancer [{word(balancer)}]: {free(why)}; connection closed")
        self._object("proxy_refused", balancer=balancer, why=why)

    def lane_lags(self, lane: str, lag_bytes: int) -> None:
        """Logs that the manager does not read the lane as fast as it is written; new mail gets 452."""
        self._warning(
            "smtpd",
            f"lane {word(lane)} has {lag_bytes} bytes that the manager has not read; refusing new mail with 452",
        )
        self._object("lane_lags", lane=lane, lag_bytes=lag_bytes)

    def refusals_not_recorded(self, count: int) -> None:
        """Logs how many refusals were left out of log and lane, because there were too many per second."""
        self._warning("smtpd", f"{count} refusals were not recorded: too many per second")
        self._object("refusals_not_recorded", count=count)

    def maps_read(self, files: int) -> None:
        """Logs that the files of aliases and canonical addresses changed, and are in use."""
        self._line("cleanup", f"aliases and canonical addresses: {files} files are in use")
        self._object("maps_read", files=files)

    def maps_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs the faults of these files. ``in_use``: those that were read before; otherwise no mail is accepted."""
        then = "those read before stay in use" if in_use else "no mail is accepted"
        for fault in faults:
            self._warning("cleanup", f"aliases and canonical addresses: {free(fault)}; {then}")
        self._object("maps_refused", why="; ".join(faults), in_use=in_use)

    def rewriting_failed(self, queue_id: str, why: str) -> None:
        """Logs a message that gets 451 because its final recipients cannot be determined."""
        self._warning("cleanup", f"{queue_id}: {free(why)}; message not accepted, try again later")
        self._object("rewriting_failed", queue_id=queue_id, why=why)

    def login_failed(self, client_address: str, method: str, login: str, why: str) -> None:
        """Logs a login that was refused; ``login`` is "" unless a user has that name: it may be a password."""
        about = f", sasl_username={word(login)}" if login else ""
        client = _client("unknown", client_address)
        self._warning("smtpd", f"{client}: SASL {word(method)} authentication failed: {free(why)}{about}")
        self._object("login_failed", client_address=client_address, method=method, login=login, why=why)

    def users_read(self, path: str, users: int) -> None:
        """Logs that the file of the users who may log in was read."""
        self._line("smtpd", f"{word(path)}: {users} users")
        self._object("users_read", path=path, users=users)

    def users_refused(self, path: str, faults: Sequence[str], users: int, *, at_start: bool) -> None:
        """Logs each fault of the file of the users, and how many users can log in all the same."""
        for fault in faults:
            self._warning("smtpd", f"users: {free(fault)}")
        kept = f"{users} user{'' if users == 1 else 's'}"
        outcome = (
            f"the lines with a fault are left out; {kept} can log in"
            if at_start
            else f"it is not used; {kept} stay as they were before"
        )
        self._warning("smtpd", f"{word(path)}: {outcome}")
        self._object("users_refused", path=path, why="; ".join(faults), kept=users, at_start=at_start)

    def certificate_refused(self, path: str, why: str, instead: str) -> None:
        """Logs that a certificate cannot be used, and what is used instead."""
        self._warning("smtpd", f"certificate {word(path)}: {free(why)}; {free(instead)}")
        self._object("certificate_refused", path=path, why=why, instead=instead)

    def certificate_read(self, path: str, until: float) -> None:
        """Logs that another certificate is in use for new connections; ``until`` is the end of its validity."""
        day = time.strftime("%Y-%m-%d", time.gmtime(until))
        self._line("smtpd", f"certificate {word(path)}: in use, valid until {day}")
        self._object("certificate_read", path=path, until=until)

    def session_failed(self, client_address: str, error: str) -> None:
        """Logs an exception in a session; the client was asked to try again later."""
        self._warning("smtpd", f"session with [{word(client_address)}] failed: {free(error)}")
        self._object("session_failed", client_address=client_address, error=error)

    def failed(self, process: str, error: str) -> None:
        """Logs why a process ends itself."""
        self._line("master", f"fatal: process {word(process)}: {free(error)}")
        self._object("failed", process=process, error=error)

    # -- lines

    def _queue_active(self, envelope: Envelope) -> None:
        self._line(
            "qmgr",
            f"{envelope.queue_id}: from=<{inside(envelope.sender)}>, size={envelope.size_bytes}, "
            f"nrcpt={envelope.recipient_count} (queue active)",
        )

    def _warning(self, service: str, text: str) -> None:
        self._line(service, f"warning: {text}")

    def _line(self, service: str, text: str) -> None:
        if self._have is not None and self._have.has_line(text):
            return
        now = int(self._clock())
        if now != self._second:
            self._second = now
            self._stamps.clear()
        stamp = self._stamps.get(service)
        if stamp is None:
            stamp = self._stamps[service] = self._stamp(service, now)
        self._syslog.append(f"{stamp}{text}\n")

    def _stamp(self, service: str, now: int) -> str:
        local = time.localtime(now)
        when = (
            f"{MONTHS[local.tm_mon - 1]} {local.tm_mday:2d} {local.tm_hour:02d}:{local.tm_min:02d}:{local.tm_sec:02d}"
        )
        return f"{when} {self._hostname} {self._program}/{service}[{self._pid}]: "

    def _object(self, event: str, **fields: Any) -> None:
        line = _json_line({"event": event, "time": self._clock(), "pid": self._pid, **fields})
        if self._have is None or not self._have.has_object(line):
            self._json.append(line)

    def _lost_syslog(self, count: int, why: str) -> str:
        stamp = self._stamp("master", int(self._clock()))
        return f"{stamp}warning: {count} log lines were lost: {free(why)}\n"

    def _lost_json(self, count: int, why: str) -> str:
        return _json_line({"event": "lines_lost", "time": self._clock(), "pid": self._pid, "lines": count, "why": why})


def _json_line(fields: dict[str, Any]) -> str:
    """Returns a line of ASCII only, so that text from outside cannot control a terminal."""
    try:
        line = _encode(fields)
        if line.isascii():
            return line.decode("ascii").replace("\x7f", "\\u007f") + "\n"
    except UnicodeEncodeError:  # a lone surrogate, from bytes that were not UTF-8
        pass
    return json.dumps(fields, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n"


def _client(name: str, address: str) -> str:
    """Returns name[address]; a bracket in a name from the DNS is escaped, so that it cannot begin another address."""
    return f"{word(name).replace('[', chr(92) + 'x5b') or 'unknown'}[{word(address)}]"


def _original(envelope: Envelope) -> dict[str, str]:
    """Returns what XFORWARD said, for the object."""
    if not envelope.original_client:
        return {}
    return {"original_client": envelope.original_client, "original_queue_id": envelope.original_queue_id}


def _split_code(reply: str) -> tuple[str, str]:
    """Returns the codes of a reply and its text: ("554 5.7.1 ", "Relay access denied")."""
    words = reply.split(" ", 2)
    if len(words) == 3 and words[0].isdigit() and words[1][:1] in ("2", "4", "5") and words[1].count(".") == 2:
        return f"{words[0]} {words[1]} ", words[2]
    if len(words) >= 2 and words[0].isdigit():
        return f"{words[0]} ", reply[len(words[0]) + 1 :]
    return "", reply
