"""RCPT in an SMTP session: whether a recipient is accepted.

Laws
- The relay policy comes first: what it refuses is not looked at further.
- Without any check of [recipients], a recipient costs one comparison more.
- While a check is waited for, the client's input waits, and no other session does.

Keeps law: unknown-recipient-refused (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from mailcore.dsn_request import with_original
from mailcore.envelope import Options
from mailcore.receiver.check import NOT_DETERMINED, Asked
from mailcore.receiver.command import ReplyOf, parse_rcpt
from mailcore.receiver.command_table import Phase
from mailcore.receiver.data_session import Transaction
from mailcore.receiver.error_session import ErrorSession
from mailcore.receiver.line_session import State
from mailcore.receiver.path import Path

__all__ = ["RecipientSession"]

# Reading a member from its class takes 0.1 us, and these are read for every command.
_MAIL, _REFUSED, _RECIPIENT = Phase.MAIL, Phase.REFUSED, Phase.RECIPIENT


class RecipientSession(ErrorSession):
    """A session with the command RCPT."""

    _checking: asyncio.Task[None] | None = None  # of the class: most sessions wait for no check

    def recipient_taken(self, argument: bytes) -> None:
        """Does what follows a recipient that was accepted after a check: nothing here."""

    def broken_off(self) -> None:
        """Abandons a check that is under way."""
        if self._checking is not None:
            self._checking.cancel()
        super().broken_off()

    def smtp_RCPT(self, argument: bytes) -> bytes:
        """Adds a recipient to the transaction."""
        envelope = self.envelope
        parameters = self.offer.rcpt if self.session.extended_smtp else {}
        rcpt = parse_rcpt(argument, envelope.smtp_utf8, parameters)
        if isinstance(rcpt, ReplyOf) and (self.trusted or self.login):
            rcpt = parse_rcpt(argument, envelope.smtp_utf8, parameters, self.context.lenient_path)
        if isinstance(rcpt, ReplyOf):
            return self._refuse_recipient(rcpt.reply, argument[3:].strip(b" <>:").decode("utf-8", "replace"))
        path, options = rcpt
        postmaster = self.context.postmaster
        is_postmaster = postmaster is not None and postmaster.is_meant(path)
        if postmaster is not None and is_postmaster:
            options = with_original(
                options, path.address if path.domain else f"{path.address}@{self.context.own_domain}"
            )
            path = postmaster.path
        elif not path.domain:  # RFC 5321 4.5.1: <postmaster> without a domain is accepted; it is ours
            name = self.context.own_domain
            path = Path(f"{path.address}@{name}", path.local_part, name)
        address = path.address
        if (
            self.context.rates is not None
            and not self.trusted
            and (refusal := self.context.rates.recipient(self.address))
        ):
            return self._refuse_recipient(refusal, address, is_mistake=False)
        if not is_postmaster and not self.context.policy.accepts(path, self.trusted):
            return self._refuse_recipient(b"554 5.7.1 <" + address.encode() + b">: Relay access denied", address)
        if len(envelope.recipients) >= self.context.settings.recipient_limit and address not in envelope.recipients:
            return self._refuse_recipient(b"452 4.5.3 Error: too many recipients", address, is_mistake=False)
        if self.login and (refusal := self.refuses_recipient()):
            return self._refuse_recipient(refusal, address, is_mistake=False)
        if address in envelope.recipients:  # with the parameters of its first RCPT
            self.useless(b"250 2.1.5 Ok")
            return b""
        checks = self.context.checks
        if checks is not None and not is_postmaster:
            found = checks.refusal(Asked(path, envelope.mail_from or "", self.address, self.trusted))
            if not isinstance(found, bytes):
                self.state = State.WAITING
                self._checking = self.loop.create_task(self._check(found, envelope, argument, address, options))
                return b""
            if found:
                return self._refuse_recipient(found, address, is_mistake=found[:1] == b"5")
        envelope.recipients[address] = options
        self.phase = _RECIPIENT
        return b"250 2.1.5 Ok"

    async def _check(
        self,
        check: Coroutine[Any, Any, bytes],
        envelope: Transaction,
        argument: bytes,
        address: str,
        options: Options,
    ) -> None:
        """Answers RCPT when its check has ended."""
        try:
            refusal = await check
        except Exception as error:  # a bug: the recipient is neither accepted nor refused for good
            self.context.intake.session_failed(self.address, error)
            refusal = NOT_DETERMINED
        self._checking = None
        if self.state is not State.WAITING or self.envelope is not envelope:
            return
        self.state = State.COMMAND
        if refusal:
            self._refuse_recipient(refusal, address, is_mistake=refusal[:1] == b"5")
        else:
            envelope.recipients.setdefault(address, options)
            self.phase = _RECIPIENT
            self.reply(b"250 2.1.5 Ok")
            self.recipient_taken(argument)
        self.flush()
        self.go_on()

    def _refuse_recipient(self, reply: bytes, address: str, is_mistake: bool = True) -> bytes:
        if self.phase is _MAIL:
            self.phase = _REFUSED
        self.refuse("RCPT", reply, address, is_mistake)
        return b""
