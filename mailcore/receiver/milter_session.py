"""An SMTP session whose commands and message milters see. Without milters a session is a ``ServerSession``.

Laws
- A command's own checks come first; milters see only what would be accepted. Their answer replaces the positive reply.
- While a milter is waited for, the client's input waits, and its idle time does not run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from mailcore.config.milters import Milter
from mailcore.milter.chain import Chain
from mailcore.milter.decision import Decision, Kind
from mailcore.milter.protocol import Step
from mailcore.receiver.checked_session import CheckedSession
from mailcore.receiver.command_table import Phase
from mailcore.receiver.intake import MilterEvent
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.milter_message import MilterMessage
from mailcore.receiver.named_client import NO_ADDRESS
from mailcore.receiver.server_context import ServerContext
from mailcore.routing.address import split

__all__ = ["MilterSession"]

_PARAMETERS = re.compile(rb'[^:]*:[ \t]*(?:<(?:"(?:[^"\\]|\\.)*"|[^>"])*>|[^ ]*)(.*)', re.DOTALL)
_MISTAKES = (b"500", b"501", b"503", b"555")  # commands with a fault in them name no recipient
_REFUSED_BEFORE = (b"MAIL", b"AUTH", b"STARTTLS", b"VRFY")  # as Postfix, after a refusal at CONNECT or HELO


class MilterSession(CheckedSession):
    """The SMTP session of one connection, with milters."""

    def __init__(
        self,
        context: ServerContext,
        address: str,
        port: int,
        server_address: str,
        closed: Callable[[LineSession], None],
    ) -> None:
        super().__init__(context, address, port, server_address, closed)
        self._chain = Chain(context.milters, self._milter_failed, context.away)
        self._decider = ""  # the milter that decided what is replied now
        self._values: dict[str, str] = {}
        self._refused_recipient = ""  # by the command that runs
        self._discarded: tuple[str, Decision] | None = None  # the step that discards the message under way
        self._chunk_decision: Decision | None = None  # that refuses the chunk that is thrown away

    # -- the connection

    def greet(self) -> None:
        """Greets the client once the milters know of it."""
        self._introduce(self._greeted)

    def _introduce(self, then: Callable[[Decision | None], None]) -> None:
        """Connects to the milters, and names the client to them."""
        name = self.client_name or "unknown"
        context, address = self.context, self.address
        self._values = {
            "j": context.hostname,
            "v": "Waypost",
            "_": f"{name} [{address}]",
            "{daemon_name}": context.rule.milter_macro_daemon_name or context.hostname,
            "{daemon_addr}": self.server_address,
            "{client_addr}": address,
            "{client_name}": name,
            "{client_port}": str(self.port),
        }
        chain, values = self._chain, self._values
        if address == NO_ADDRESS:
            parts = (name.encode() + b"\0U",)
        else:
            family = b"6" if ":" in address else b"4"
            parts = (name.encode() + b"\0" + family + self.port.to_bytes(2, "big") + address.encode(),)

        async def connect() -> Decision | None:
            await chain.open()
            return await chain.command(Step.CONNECT, values, *parts)

        self._ask(connect(), then)

    def _renamed(self, greeting: bytes) -> None:
        """Begins again with the milters, after XCLIENT."""

        def greeted(decision: Decision | None) -> None:
            if decision is not None and decision.kind is Kind.REFUSE:
                self._refused_for_good("CONNECT", decision)
            if self.state is State.COMMAND:
                self.reply(greeting)

        self._chain.close()
        self._chain = Chain(self.context.milters, self._milter_failed, self.context.away)
        self._introduce(greeted)

    def _greeted(self, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._refused_for_good("CONNECT", decision)
        if self.state is not State.CLOSING:
            super().greet()

    def broken_off(self) -> None:
        """Abandons what the milters are asked, and leaves them."""
        super().broken_off()
        self._chain.close()

    def end_transaction(self) -> None:
        """Forgets the mail transaction, also with the milters."""
        if self.phase > Phase.GREETED:
            self._chain.end_message()
        self._discarded = None
        super().end_transaction()

    def refuse(
        self, stage: str, reply: bytes, recipient: str | None = None, is_mistake: bool = True, milter: str = ""
    ) -> None:
        """Replies, and records the refusal, with the milter that it is from."""
        decider = milter or self._decider
        super().refuse(stage, reply, recipient, is_mistake, milter)
        if stage == "RCPT" and not decider and reply[:3] not in _MISTAKES:
            self._refused_recipient = recipient or ""
        if reply[:3] == b"421" and self.state is State.COMMAND:  # as Postfix: a milter that says 421 ends the session
            self._replies.pop()
            self.last_reply(reply)

    def record_refusal(self, stage: str, reply: bytes, recipient: str | None = None, milter: str = "") -> None:
        """Records a refusal, with the milter that it is from."""
        super().record_refusal(stage, reply, recipient, milter or self._decider)
        self._decider = ""

    # -- commands

    def command(self, line: bytes) -> None:
        """Runs one command line, and asks the milters before it is answered with success."""
        verb, _, argument = line.partition(b" ")
        verb = verb.upper()
        if verb in _REFUSED_BEFORE and self._refused_before(verb):
            return
        before = len(self._replies)
        recipients = len(self.envelope.recipients)
        self._refused_recipient = ""
        super().command(line)
        if self.state not in (State.COMMAND, State.DATA) or len(self._replies) <= before:
            return
        reply = self._replies[-1]
        if verb in (b"EHLO", b"HELO"):
            if reply[:3] == b"250" and self._chain.wants(Step.HELO):
                self._ask_for(Step.HELO, self._helo_answered, (self.session.host_name or "").encode())
        elif verb == b"MAIL":
            if reply[:3] == b"250":
                self._ask_for_mail(argument)
        elif verb == b"RCPT":
            if len(self.envelope.recipients) > recipients:
                self._ask_for_recipient(argument)
            elif self._refused_recipient and self._chain.wants_refused:
                self._show_refused_recipient(argument)
        elif verb == b"XCLIENT":
            if reply[:3] == b"220":
                self._renamed(self._replies.pop())
        elif verb == b"DATA":
            if self.state is State.DATA:
                self._values["i"] = self.envelope.queue_id
                if self._chain.wants(Step.DATA):
                    self._ask_for(Step.DATA, self._data_answered)
        elif reply.startswith(b"500 5.5.2") and self._chain.wants(Step.UNKNOWN):
            self._ask_for(Step.UNKNOWN, self._unknown_answered, line.replace(b"\0", b"?"))

    def _refused_before(self, verb: bytes) -> bool:
        """Refuses a command if a milter has refused the client."""
        decision = self._chain.refusal
        if decision is None or self.phase is not Phase.GREETED:
            return False
        self._decider = decision.milter
        self.refuse(verb.decode(), decision.reply, is_mistake=decision.reply[:1] == b"5")
        return True

    def _ask_for(self, step: Step, then: Callable[[bytes, Decision | None], None], *parts: bytes) -> None:
        """Sends a step to the milters; ``then`` gets the reply that waits for their answer."""
        reply = self._replies.pop()
        if not self._chain.answers(step):
            decision = self._chain.tell(step, self._macros(step), *parts)
            self.state = State.COMMAND
            then(reply, decision)
            return
        asked = self._chain.command(step, self._macros(step), *parts)
        self._ask(asked, lambda decision: then(reply, decision))

    def _macros(self, step: Step) -> dict[str, str]:
        values = self._values
        if step in (Step.HELO, Step.MAIL):
            tls = self.session.ssl["ssl_object"] if self.session.ssl else None
            if tls is not None:
                name, _, bits = tls.cipher()
                values |= {"{tls_version}": tls.version(), "{cipher}": name, "{cipher_bits}": str(bits)}
            if self.login:
                values |= {"{auth_type}": self.login_method, "{auth_authen}": self.login}
        return values

    def _refused_for_good(self, stage: str, decision: Decision) -> None:
        """Notes a refusal that stays for the session; the client hears it at MAIL, as in Sendmail and Postfix."""
        if decision.ends_session:
            self._decider = decision.milter
            self.refuse(stage, decision.reply, is_mistake=False)

    def _helo_answered(self, reply: bytes, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._refused_for_good("EHLO", decision)
        if self.state is State.COMMAND:
            self.reply(reply)

    def _ask_for_mail(self, argument: bytes) -> None:
        sender = self.envelope.mail_from or ""
        values = self._values
        for name in ("i", "{rcpt_addr}", "{rcpt_host}", "{rcpt_mailer}"):
            values.pop(name, None)
        if self.client_name:  # it may have been found since the client was named
            values |= {"{client_name}": self.client_name, "_": f"{self.client_name} [{self.address}]"}
        values |= {"{mail_addr}": sender, "{mail_host}": split(sender)[1], "{mail_mailer}": "smtp"}
        if self._chain.wants(Step.MAIL):
            self._ask_for(Step.MAIL, self._mail_answered, b"<" + sender.encode() + b">", *_parameters(argument))

    def _mail_answered(self, reply: bytes, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._decider = decision.milter
            self.refuse("MAIL", decision.reply, is_mistake=decision.reply[:1] == b"5")
            self.end_transaction()
            return
        self._acted("MAIL", decision)
        self.reply(reply)

    def _ask_for_recipient(self, argument: bytes) -> None:
        address = next(reversed(self.envelope.recipients))
        self._values |= {"{rcpt_addr}": address, "{rcpt_host}": split(address)[1], "{rcpt_mailer}": "smtp"}
        if self._chain.wants(Step.RCPT):
            self._ask_for(Step.RCPT, self._recipient_answered, b"<" + address.encode() + b">", *_parameters(argument))

    def recipient_taken(self, argument: bytes) -> None:
        """Asks the milters about a recipient that was accepted after a check."""
        self._ask_for_recipient(argument)

    def _show_refused_recipient(self, argument: bytes) -> None:
        """Shows a recipient that we refuse, with macros as in Postfix: the text, the status, "error"."""
        reply = self._replies.pop()
        _, status, text = (*reply.decode("utf-8", "replace").split(" ", 2), "", "")[:3]
        self._values |= {
            "{rcpt_addr}": text.partition(": ")[2] or text,
            "{rcpt_host}": status,
            "{rcpt_mailer}": "error",
        }
        address = b"<" + self._refused_recipient.encode() + b">"
        asked = self._chain.refused_recipient(self._values, address, *_parameters(argument))

        async def shown() -> Decision | None:
            await asked
            return None

        self._ask(shown(), lambda _: self.reply(reply))

    def _recipient_answered(self, reply: bytes, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._decider = decision.milter
            recipients = self.envelope.recipients
            address, _ = recipients.popitem()
            if not recipients:
                self.phase = Phase.REFUSED
            self.refuse("RCPT", decision.reply, address, is_mistake=decision.reply[:1] == b"5")
            return
        self._acted("RCPT", decision)
        self.reply(reply)

    def _data_answered(self, reply: bytes, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            if self._incoming is not None:
                self._incoming.abandon()
                self._incoming = None
            self._decider = decision.milter
            self.refuse("DATA", decision.reply, is_mistake=decision.reply[:1] == b"5")
            return
        self._acted("DATA", decision)
        self.reply(reply)
        self.state = State.DATA

    # -- BDAT, which is DATA to milters, as in Postfix

    def begin_chunks(self) -> None:
        """Asks the milters before the octets of the first chunk are taken: they wait, as commands do."""
        self._values["i"] = self.envelope.queue_id
        if not self._chain.wants(Step.DATA):
            self.take_chunk()
        elif self._chain.answers(Step.DATA):
            self._ask(self._chain.command(Step.DATA, self._macros(Step.DATA)), self._chunks_answered)
        else:
            self._chunks_answered(self._chain.tell(Step.DATA, self._macros(Step.DATA)))

    def _chunks_answered(self, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._abandon()
            self._chunk_decision = decision
            self._chunk_refusal = decision.reply
        else:
            self._acted("DATA", decision)
        self.take_chunk()

    def chunk_refused(self, refusal: bytes) -> None:
        """Replies to a chunk that was thrown away, and ends the transaction if a milter refused it."""
        decision, self._chunk_decision = self._chunk_decision, None
        if decision is None:
            super().chunk_refused(refusal)
            return
        self._decider = decision.milter
        self.refuse("DATA", refusal, is_mistake=refusal[:1] == b"5")
        self.end_transaction()

    def _unknown_answered(self, reply: bytes, decision: Decision | None) -> None:
        if decision is not None and decision.kind is Kind.REFUSE:
            self._decider = decision.milter
            self.refuse("UNKNOWN", decision.reply, is_mistake=False)
        else:
            self.reply(reply)

    # -- waiting

    def _ask(self, asked: Coroutine[Any, Any, Decision | None], then: Callable[[Decision | None], None]) -> None:
        self.state = State.WAITING
        self._asking = self.loop.create_task(self._answered(asked, then))

    async def _answered(
        self, asked: Coroutine[Any, Any, Decision | None], then: Callable[[Decision | None], None]
    ) -> None:
        try:
            decision = await asked
            if self.state is not State.WAITING:
                return
            self.state = State.COMMAND
            then(decision)
        except Exception as error:
            self.context.intake.session_failed(self.address, error)
            self.broken_off()
            self.last_reply(b"421 4.3.0 " + self.context.name + b" Error: internal error")
        self._asking = None
        self.flush()
        self.go_on()

    # -- the message

    async def examine(self, message: MilterMessage) -> bytes | None:
        """Shows a message to the milters, after our own checks."""
        if self._chain.discards:
            if self._discarded is not None:
                self._log_action(*self._discarded)
            return None
        failure = await super().examine(message)
        if failure != b"":
            return failure
        held_because = message.held_because
        decision = await self._chain.message(message, self._values)
        if decision is not None and decision.kind is Kind.REFUSE:
            self._decider = decision.milter
            return decision.reply
        if decision is None and not message.recipients:
            decision = Decision(Kind.DISCARD, reason="milters removed all recipients")
        if decision is not None:
            self._acted("END-OF-MESSAGE", decision)
            return None
        if message.held_because != held_because:
            self._acted("END-OF-MESSAGE", Decision(Kind.HOLD, reason=message.held_because))
        return b""

    # -- the log

    def _milter_failed(self, milter: Milter, stage: str, what: str) -> None:
        event = MilterEvent(milter.address, milter.default_action, stage, what, self.address, self.envelope.queue_id)
        self.context.intake.milter_failed(event)

    def _acted(self, stage: str, decision: Decision | None) -> None:
        """Logs a decision of a milter that the client does not hear; before the message's end, it has no ID yet."""
        if decision is not None and stage != "END-OF-MESSAGE":
            self._discarded = stage, decision
        elif decision is not None:
            self._log_action(stage, decision)

    def _log_action(self, stage: str, decision: Decision) -> None:
        envelope = self.envelope
        event = MilterEvent(
            decision.milter,
            decision.kind.value,
            stage,
            decision.reason,
            self.address,
            envelope.queue_id,
            envelope.mail_from or "",
            tuple(envelope.recipients),
        )
        self.context.intake.milter_acted(event)


def _parameters(argument: bytes) -> list[bytes]:
    """Returns the parameters of MAIL or RCPT."""
    match = _PARAMETERS.match(argument)
    return match[1].split() if match is not None else []
