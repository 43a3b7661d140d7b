"""AUTH in an SMTP session (RFC 4954): the exchange with the client, and the limits of a user who has logged in.

Laws
- AUTH is accepted only under TLS, also where it was not offered.
- A line behind AUTH that was sent before the server's challenge is never taken as a response to it.
- No proof of a password is compared, and no reply depends on one, before the try is counted: beyond the limits of failures a
  right proof gets what a wrong one gets.
- A user who is disabled, removed or given another password sends no further message in a session that is open.

Keeps law: auth-only-under-tls, law: disabled-user-sends-nothing, law: logins-throttled (docs/laws.md).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable

from mailcore.receiver.authentication import BUSY, REFUSED
from mailcore.receiver.chunk_session import ChunkSession
from mailcore.receiver.command_table import NOT_IMPLEMENTED
from mailcore.receiver.line_session import LineSession, State
from mailcore.receiver.mechanisms import (
    MECHANISMS,
    Challenge,
    Malformed,
    Mechanism,
    Password,
    Proof,
    Proved,
    Refused,
    Step,
)
from mailcore.receiver.server_context import ServerContext
from mailcore.users.user import User

__all__ = ["AuthSession"]

_NOT_BASE64 = b"501 5.5.2 Error: the response is not base64"
_MALFORMED = b"501 5.5.2 Error: malformed authentication data"
_CANCELLED = b"501 5.7.0 Authentication cancelled"
_PIPELINED = b"503 5.5.1 Error: a command was sent behind AUTH before its challenge"
_NOT_ENCRYPTED = b"538 5.7.11 Encryption required for requested authentication mechanism"
_LOGGED_IN = b"235 2.7.0 Authentication successful"


class AuthSession(ChunkSession):
    """A session in which a user can log in."""

    is_named = True  # False: behind a balancer that cannot say who the client is

    def __init__(
        self,
        context: ServerContext,
        address: str,
        port: int,
        server_address: str,
        closed: Callable[[LineSession], None],
    ) -> None:
        super().__init__(context, address, port, server_address, closed)
        self.trusted = context.policy.trusts(address)
        self._user: User | None = None
        self._mechanism: Mechanism | None = None
        self._method = ""
        self._is_counted = False  # this try, as a failure
        self._was_busy = False

    def choose_commands(self) -> None:
        """Chooses the table of commands by what the client has done."""
        raise NotImplementedError

    # -- the exchange

    def smtp_AUTH(self, argument: bytes) -> bytes:
        """Begins to log a user in."""
        authentication = self.context.authentication
        words = argument.split()
        method = words[0].decode("ascii", "replace").upper()
        if "AUTH" in self.offer.discarded:
            self.error(NOT_IMPLEMENTED)
        elif self.login:
            self.error(b"503 5.5.1 Error: already authenticated")
        elif not self.session.extended_smtp:
            self.error(b"503 5.5.1 Error: send EHLO first")
        elif not self.tls:
            self.error(_NOT_ENCRYPTED)
        elif len(words) > 2:
            self.error(b"501 5.5.4 Syntax: AUTH mechanism [initial-response]")
        elif authentication is None:
            self._end(BUSY)
        elif method not in MECHANISMS or method not in authentication.users.mechanisms.split():
            self.error(b"504 5.5.4 Error: unrecognized authentication type")
        else:
            self._method = method
            self._is_counted = False
            self._mechanism = MECHANISMS[method](authentication.scram)
            if len(words) == 1:
                self._act(self._mechanism.begin())
            elif words[1] == b"=":  # RFC 4954 4: an initial response that is empty
                self._act(self._mechanism.respond(b""))
            else:
                self._respond(words[1])
        return b""

    def response(self, line: bytes) -> None:
        """Takes a line of the client that answers our challenge."""
        self.state = State.COMMAND
        if line == b"*":
            self._end(_CANCELLED)
        else:
            self._respond(line)

    def pipelined(self) -> None:
        """Refuses the exchange: the next line was sent before our challenge, so it is a command and no response."""
        self._replies.pop()  # the challenge, which is not sent yet
        self.state = State.COMMAND
        self._end(_PIPELINED)

    def response_too_long(self) -> None:
        """Ends the exchange because a response is longer than any mechanism needs (RFC 4954 4)."""
        self._mechanism = None

    def _respond(self, line: bytes) -> None:
        assert self._mechanism is not None
        try:
            data = binascii.a2b_base64(line, strict_mode=True)
        except (binascii.Error, ValueError):
            self._end(_NOT_BASE64)
            return
        self._act(self._mechanism.respond(data))

    def _act(self, step: Step) -> None:
        authentication = self.context.authentication
        assert authentication is not None
        if isinstance(step, Challenge):
            if step.name and authentication.throttled(step.name, self.address):
                self._throttle(step.name)
                return
            self.reply(b"334 " + binascii.b2a_base64(step.data, newline=False))
            self.state = State.RESPONSE
        elif isinstance(step, Malformed):
            self._end(_MALFORMED)
        elif isinstance(step, Password):
            reply = authentication.check(step.name, step.password, self.address, self._method, self._checked)
            if reply:
                self._end(reply)
            else:
                self.state = State.WAITING
        elif isinstance(step, Proof):
            self._is_counted = authentication.begin(step.name, self.address)
            if self._is_counted:
                self._act(step.compare())
            else:
                self._throttle(step.name)
        elif isinstance(step, Proved):
            self._proved(step)
        else:
            self._refused(step)

    def _proved(self, proof: Proved) -> None:
        authentication = self.context.authentication
        assert authentication is not None
        name = proof.name
        user = authentication.users.find(name)
        if user is None or user.verifier != proof.verifier:  # disabled, or given another password, during the exchange
            authentication.failed(name, self.address, self._method, authentication.reason(name))
            self._end(REFUSED)
        else:
            authentication.succeeded(user, self.address)
            self._logged_in(user)

    def _refused(self, step: Refused) -> None:
        authentication = self.context.authentication
        assert authentication is not None
        if self._is_counted or authentication.begin(step.name, self.address):
            why = step.why or authentication.reason(step.name)
            authentication.failed(step.name, self.address, self._method, why)
            self._end(REFUSED)
        else:
            self._throttle(step.name)

    def _throttle(self, name: str) -> None:
        authentication = self.context.authentication
        assert authentication is not None
        authentication.failed(name, self.address, self._method, "too many failures")
        self._end(BUSY)

    def _checked(self, user: User | None, refusal: bytes) -> None:
        """Answers the client when its password was checked, unless it is gone."""
        if self.state is not State.WAITING:
            return
        self.state = State.COMMAND
        if user is None:
            self._end(refusal)
        else:
            self._logged_in(user)
        self.flush()
        self.go_on()

    def _end(self, reply: bytes) -> None:
        """Ends the exchange. A 454 counts as a mistake of the client from the second of the session on."""
        self._mechanism = None
        if reply == BUSY and not self._was_busy:
            self._was_busy = True
            self.reply(reply)
        else:
            self.error(reply)

    def _logged_in(self, user: User) -> None:
        self.take_login(user, self._method)
        self.reply(_LOGGED_IN)

    def take_login(self, user: User, method: str) -> None:
        """Makes this the session of a user."""
        self._mechanism = None
        self._user = user
        self.login, self.login_method = user.name, method
        self.trusted = True
        self.choose_commands()

    def forget_login(self) -> None:
        """Makes this the session of no user."""
        self._mechanism = self._user = None
        self.login = self.login_method = ""
        self.author_domains = None

    # -- a user who has logged in

    def refuses_user(self) -> bool:
        """Ends the session, and returns True, if its user was disabled, removed or given another password since."""
        user, authentication = self._user, self.context.authentication
        if user is None or authentication is None or authentication.is_valid(user):
            return False
        self.last_reply(b"421 4.7.0 " + self.context.name + b" Error: the login is no longer valid")
        return True

    def refuses_sender(self, sender: str) -> bytes:
        """Returns the reply that refuses MAIL of the user with this sender; b"" if it may send."""
        user, authentication = self._user, self.context.authentication
        assert user is not None
        assert authentication is not None
        now = authentication.users.get(user.name) or user
        if not now.may_send_as(sender):
            name = user.name.encode()
            return b"553 5.7.1 <" + sender.encode() + b">: Sender address rejected: not owned by user " + name
        self.author_domains = authentication.author_domains(now)
        if not authentication.take_message(user):
            return b"450 4.7.1 Error: too much mail from user " + user.name.encode()
        return b""

    def refuses_recipient(self) -> bytes:
        """Returns the reply that refuses RCPT because the user has had too many recipients; b"" if it has not."""
        user, authentication = self._user, self.context.authentication
        assert user is not None
        assert authentication is not None
        if authentication.take_recipient(user):
            return b""
        return b"450 4.7.1 Error: too many recipients from user " + user.name.encode()
