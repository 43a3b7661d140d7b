"""The lines of the mail log about messages: accepted, refused, delivered, and what became of them."""

from __future__ import annotations

from typing import Protocol

from mailcore.dsn_request import original_address
from mailcore.envelope import Envelope, Options, Origin, Status, Verdict
from mailcore.frames import TLS_CLEAR, TLS_NOT_OFFERED
from mailcore.maillog.lines import Lines, json_line
from mailcore.maillog.text import client_text, free, inside, seconds, word

__all__ = ["MailLines"]

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
_NOT_OFFERED = "/not-offered"


class _Delivery(Protocol):
    """The part of a ``mailcore.queue.records.Delivery`` that lines have."""

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns one verdict for each recipient."""

    @property
    def relay(self) -> str:
        """Returns the host."""

    @property
    def tls(self) -> str:
        """Returns protocol and cipher."""

    @property
    def tls_level(self) -> str:
        """Returns the level and its reason."""

    @property
    def tls_verified(self) -> bool:
        """Returns whether the certificate was checked."""

    @property
    def delays(self) -> tuple[float, float, float, float]:
        """Returns seconds."""


class MailLines(Lines):
    """A part of ``MailLog``."""

    def accepted(self, envelope: Envelope, client_name: str = "", uid: int = 0) -> None:
        """Logs that a message is on disk: its client, its Message-ID, and that it is queued (three lines, as in Postfix)."""
        queue_id = envelope.queue_id
        client_name = client_name or envelope.client_name or "unknown"
        if envelope.origin is Origin.SMTP:
            login = ""
            if envelope.login:
                method = f", sasl_method={word(envelope.login_method)}" if envelope.login_method else ""
                login = f"{method}, sasl_username={word(envelope.login)}"
            client = client_text(client_name, envelope.client_address)
            original = ""
            if envelope.original_client:  # as Postfix: what a content filter said with XFORWARD
                before = f", orig_queue_id={word(envelope.original_queue_id)}" if envelope.original_queue_id else ""
                original = f"{before}, orig_client={word(envelope.original_client)}"
            self._line("smtpd", f"{queue_id}: client={client}{original}{login}")
        elif envelope.origin is Origin.LOCAL:
            self._line("pickup", f"{queue_id}: uid={uid} from=<{inside(envelope.sender)}>")
        self._line("cleanup", f"{queue_id}: message-id=<{inside(envelope.message_id.strip().strip('<>'))}>")
        if envelope.authentication:
            held = f"; hold: {free(envelope.held_because)}" if envelope.held_because else ""
            self._line("cleanup", f"{queue_id}: {envelope.authentication}{held}")
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
            **({"authentication": envelope.authentication} if envelope.authentication else {}),
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
        client = client_text(client_name, client_address)
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
        options: Options = (),
    ) -> None:
        """Logs the result of one attempt for one recipient, once it is synced.

        ``relay`` is ``host[address]:port``, or "none". ``delays_s``: before the manager, in the queue, connecting,
        transmitting. ``tls_level`` is as ``Delivered.tls_level``; the line has the level alone. ``options`` are those of the
        recipient, with the address that it had before an alias.
        """
        status = STATUS[verdict.status]
        reply = verdict.reply
        text = free(reply)
        if status != "sent" and relay != "none" and reply[:3].isdigit():
            text = f"host {word(relay[: relay.rfind(']') + 1])} said: {text}"
        before, queued, connecting, transmitting = delays_s
        delay = before + queued + connecting + transmitting
        original = original_address(options, recipient) if options else ""
        before_alias = f", orig_to=<{inside(original)}>" if original else ""
        # Postfix 3.11 has ", tls=" here, which Debian's pflogsumm does not count yet; it takes what belongs to "delays=".
        level = f" tls={word(tls_level.partition(':')[0])}{'' if tls else _without(tls_level)}" if tls_level else ""
        self._line(
            "smtp",
            f"{queue_id}: to=<{inside(recipient)}>{before_alias}, relay={word(relay)}, delay={seconds(delay)}, "
            f"delays={seconds(before)}/{seconds(queued)}/{seconds(connecting)}/{seconds(transmitting)}{level}, "
            f"dsn={word(verdict.dsn)}, status={status} ({text})",
        )
        # Written out: this is the event of which there are most.
        line = json_line(
            {
                "event": "delivery",
                "time": self._clock(),
                "pid": self._pid,
                "queue_id": queue_id,
                "recipient": recipient,
                **({"orig_to": original} if original else {}),
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
        """Logs the encryption of a new connection, as Postfix does; and mail that was sent in the clear because TLS failed.

        That a server has no TLS is in the line of the delivery alone.
        ``connecting_s`` is 0 for a connection that was used before; its encryption is not logged again.
        """
        if not tls:
            if _without(tls_level) in ("", _NOT_OFFERED):
                return
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

    def passed_on(self, envelope: Envelope, delivery: _Delivery, transport: str) -> None:
        """Logs a message that was passed on while its client waited: the same lines as of any other that was delivered."""
        queue_id = envelope.queue_id
        self.accepted(envelope)
        if delivery.tls_level:
            self.encrypted(
                queue_id, delivery.relay, delivery.tls, delivery.tls_level, delivery.tls_verified, delivery.delays[2]
            )
        recipients = {recipient.number: recipient for recipient in envelope.recipients}
        for verdict in delivery.verdicts:
            recipient = recipients[verdict.number]
            self.delivery(
                queue_id, recipient.address, delivery.relay, verdict, delivery.delays,
                transport=transport, tls=delivery.tls, tls_level=delivery.tls_level, options=recipient.options,
            )  # fmt: skip
        self.removed(queue_id)

    def not_passed_on(self, queue_id: str, relay: str, reply: str) -> None:
        """Logs that a message could not be passed on while its client waits: it is stored, and tried again."""
        self._line("qmgr", f"{queue_id}: not passed on, to be queued: relay={word(relay)} ({free(reply)})")
        self._object("not_passed_on", queue_id=queue_id, relay=relay, reply=reply)

    def removed(self, queue_id: str) -> None:
        """Logs that a message left the queue."""
        self._line("qmgr", f"{queue_id}: removed")
        self._object("removed", queue_id=queue_id)

    def _queue_active(self, envelope: Envelope) -> None:
        self._line(
            "qmgr",
            f"{envelope.queue_id}: from=<{inside(envelope.sender)}>, size={envelope.size_bytes}, "
            f"nrcpt={envelope.recipient_count} (queue active)",
        )


def _without(tls_level: str) -> str:
    """Returns what follows the level of mail that went in the clear under "may": the server has no TLS, or it failed; "" of
    mail under "none", and of mail that waits because its level was not fulfilled."""
    if tls_level.endswith(TLS_CLEAR + TLS_NOT_OFFERED):
        return _NOT_OFFERED
    return "/cleartext" if TLS_CLEAR in tls_level else ""


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
