"""Errors of the client of an SMTP session: a tarpit for a client that makes many, and the end of the session.

Laws
- After ``soft_error_limit`` errors without mail, the reply to each further error comes late; what the client sends meanwhile is
  not read. A timer does this: neither the loop nor another session waits.
- After ``error_limit`` errors the session ends with 421, in the tarpit or not. Under stress the first error ends the session of
  a client that is not trusted.
- A refusal for a time (4xx), a recipient that is known already and an empty chunk do not count as errors: a greylist puts off
  fifty recipients of a good client. After ``useless_command_limit`` of them without mail each counts: every session ends.

Keeps law: errors-slowed (docs/laws.md).
"""

from __future__ import annotations

from mailcore.receiver.line_session import State
from mailcore.receiver.named_client import NamedClientSession

__all__ = ["ErrorSession"]

# Under stress, for a client that is not trusted. Postfix's smtpd_hard_error_limit and smtpd_junk_command_limit are 1 then.
STRESS_ERRORS = 1
STRESS_JUNK = 2  # Postfix lets one pass beyond the limit, too: EHLO, STARTTLS, EHLO
STRESS_USELESS = 1


class ErrorSession(NamedClientSession):
    """A session that counts errors."""

    _errors = 0  # since the last message
    _junk = 0  # commands that bring no mail nearer since the last message
    _useless = 0  # commands without effect since the last message
    _late: list[bytes] | None = None  # the replies that the tarpit holds back

    def error(self, reply: bytes) -> None:
        """Replies to a mistake of the client: late when there were many, and for the last time when there were too many."""
        self._errors += 1
        self.reply(reply)
        context = self.context
        rates = context.rates
        if self._errors >= (STRESS_ERRORS if self._is_hurried else context.settings.error_limit) or (
            rates is not None and not self.trusted and rates.error(self.address)
        ):
            self.last_reply(b"421 4.7.0 " + context.name + b" Error: too many errors")
        elif self._errors > context.clients.soft_error_limit and context.clients.error_sleep_time_s:
            self._slow_down(context.clients.error_sleep_time_s)

    def is_junk(self) -> bool:
        """Counts a command that brings no mail nearer; returns whether there were too many."""
        self._junk += 1
        limit = self.context.clients.junk_command_limit
        return self._junk > (min(STRESS_JUNK, limit) if self._is_hurried else limit)

    @property
    def _is_hurried(self) -> bool:
        return self.context.stressed and not self.trusted

    def useless(self, reply: bytes) -> None:
        """Replies to a command without effect, which is an error when there were too many."""
        self._useless += 1
        if self._useless > (STRESS_USELESS if self._is_hurried else self.context.clients.useless_command_limit):
            self.error(reply)
        else:
            self.reply(reply)

    def _slow_down(self, pause_s: float) -> None:
        if self._late is not None or self.state is not State.COMMAND:
            return
        self._late, self._replies = self._replies, []
        self.state = State.WAITING
        self.loop.call_later(pause_s, self._go_on_late)

    def _go_on_late(self) -> None:
        late, self._late = self._late, None
        if self.state is State.WAITING and late is not None:
            self.state = State.COMMAND
            self._replies[:0] = late
            self.flush()
            self.go_on()
