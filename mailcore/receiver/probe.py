"""Asks a next hop whether it has a recipient: a mail transaction that ends before DATA, as Postfix's verify(8).

Laws
- Only a reply to RCPT about the recipient decides. A reply that concerns us (a refused connection or sender, a policy, a
  login that is missing), a full mailbox, or a temporary reply decides nothing.
- A refusal whose code does not say what it is about counts only if the same server accepts postmaster of the domain.
- Each step has a time-out, and each reply a bounded size.
- A server is asked with the encryption that mail to it must have. Under "verify", "dane-only", and "dane" where there are TLSA
  records, only one whose certificate was checked is asked: else a man in the middle could refuse every recipient. Under
  "mta-sts" it is asked as under "may", because the policies of domains are known to deliverers alone.

Keeps law: only-rcpt-decides, law: probe-keeps-tls-level (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.config.tls import DANE
from mailcore.frames import TLS_NOT_OFFERED, NextHop
from mailcore.routing.address import a_labels, split
from mailcore.routing.mx import Address, HostFinder
from mailcore.routing.resolve import Refused
from mailcore.tls.certificates import Contexts
from mailcore.tls.checking import checked
from mailcore.tls.dane import policy_of_host
from mailcore.tls.policy import Policy

__all__ = ["Answer", "Outcome", "Prober", "Question"]

LINE_MAX = 2_048  # bytes; RFC 5321 4.5.3.1.5 says 512
LINES_MAX = 100  # of one reply
TEXT_MAX = 200  # characters of a reply that are kept
_ENHANCED = re.compile(r"5\.\d{1,3}\.\d{1,3}(?!\S)")
_REFUSALS = (550, 551, 553, 554, 556)  # not of the command, the order, the host, a login, or the space (552 means 452)
_UNKNOWN = (
    "5.1.1",
    "5.1.3",
    "5.1.6",
    "5.1.10",
)  # RFC 3463: no such mailbox, bad syntax, moved; RFC 7505: takes no mail
_UNCLEAR = (
    "5.0.0",
    "5.1.0",
    "5.1.2",
    "5.1.4",
    "5.4.1",
)  # may be about the domain and us; 5.4.1 is Exchange's for unknown
_UNCLEAR_BARE = (550, 551, 553)  # without an enhanced code


class Outcome(enum.Enum):
    """Says what a next hop thinks of a recipient."""

    VALID = "valid"
    UNKNOWN = "unknown"
    UNDECIDED = "undecided"


class Answer(NamedTuple):
    """``text`` has the server and its reply, or what failed. ``reached``: a server spoke SMTP with us. ``clear``: why it was
    asked in the clear though its level is "may"; "" if it was not."""

    outcome: Outcome
    text: str
    reached: bool = True
    clear: str = ""

    @property
    def logged(self) -> str:
        """Returns the text for the log, which names a fallback to clear text."""
        return f"{self.text}; asked in the clear: {self.clear}" if self.clear else self.text


class Question(NamedTuple):
    """A recipient, and how its next hop is asked: the sender, our name, and the encryption that mail to it must have."""

    recipient: str
    sender: str
    hostname: str
    policy: Policy = Policy("may")
    lmtp: bool = False
    timeout_s: float = 30.0


class _Failed(Exception):
    """A server cannot be asked; the message says why."""


class _Unreachable(_Failed):
    """There is no connection."""


class _TlsFailed(_Failed):
    """The handshake failed."""


class _Reply(NamedTuple):
    code: int
    lines: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.lines)[:TEXT_MAX]


class Prober:
    """Finds the hosts of next hops and asks them."""

    def __init__(self, finder: HostFinder) -> None:
        self._finder = finder
        self._contexts = Contexts()

    async def find(self, policy: Policy, next_hop: NextHop) -> tuple[Address, ...] | Refused:
        """Returns the addresses of a next hop, best first; or why there are none."""
        return await self._finder.find(next_hop, validated=policy.level in DANE)

    async def ask(self, question: Question, addresses: Sequence[Address], next_hop: NextHop) -> Answer:
        """Asks the hosts in this order until one answers. Raises nothing but CancelledError."""
        why = "no address"
        reached = False
        for address in addresses:
            try:
                policy = await self._policy_of(question.policy, address, next_hop)
                try:
                    return await self._ask(question, policy, address, next_hop.port)
                except _TlsFailed as error:
                    why, reached = str(error), True
                    if policy.level == "may":
                        return await self._ask(question, policy, address, next_hop.port, clear=why)
            except _Failed as error:
                why = str(error)
                reached = reached or not isinstance(error, _Unreachable)
        return Answer(Outcome.UNDECIDED, why, reached)

    async def _policy_of(self, policy: Policy, address: Address, next_hop: NextHop) -> Policy:
        """Returns the policy for one host. Raises _Failed if it gets no mail."""
        if policy.level == "mta-sts":
            return Policy("may")
        if policy.level not in DANE:
            return policy
        found = await policy_of_host(policy, address, next_hop, self._finder.tlsa)
        if not isinstance(found, Policy):
            raise _Unreachable(found.text)
        return found

    async def _ask(self, question: Question, policy: Policy, address: Address, port: int, clear: str = "") -> Answer:
        """Asks one host. ``clear``: why no encryption is tried."""
        place = f"{address.host}[{address.address}]{'' if port == 25 else f':{port}'}"
        server = _Server(place, question.timeout_s)
        try:
            await server.connect(address.address, port)
            context = None if clear or policy.level == "none" else self._context(policy)
            return await _converse(question, server, policy, address, context, clear)
        finally:
            server.close()

    def _context(self, policy: Policy) -> ssl.SSLContext:
        try:
            return self._contexts.of(policy)
        except OSError as error:
            where = policy.ca_file or "the system"
            raise _Failed(f"cannot read the certificates of CAs in {where}: {error.strerror or error}") from None


async def _converse(
    question: Question, server: _Server, policy: Policy, address: Address, context: ssl.SSLContext | None, clear: str
) -> Answer:
    server.expect(await server.reply(), "greeting")
    hello = f"{'LHLO' if question.lmtp else 'EHLO'} {question.hostname}"
    features = await server.hello(hello, question)
    if context is not None and "STARTTLS" in features:
        host = "" if address.host == address.address else address.host
        await server.start_tls(context, policy, policy.server_name or host)
        features = await server.hello(hello, question)
    elif policy.demands_tls:
        raise _Failed(f"host {server.place} does not offer STARTTLS, which its level of TLS demands")
    elif context is not None:
        clear = TLS_NOT_OFFERED
    local_part, domain = split(question.recipient)
    with contextlib.suppress(UnicodeError):
        domain = a_labels(domain)
    recipient = f"{local_part}@{domain}"
    parameter = "" if recipient.isascii() and question.sender.isascii() else " SMTPUTF8"
    if parameter and "SMTPUTF8" not in features:
        raise _Failed(f"host {server.place} does not offer SMTPUTF8, which the recipient needs")
    server.expect(await server.command(f"MAIL FROM:<{question.sender}>{parameter}"), "reply to MAIL")
    reply = await server.command(f"RCPT TO:<{recipient}>")
    outcome = _outcome(reply)
    if outcome is None:
        witness = await server.command(f"RCPT TO:<postmaster@{domain}>")
        outcome = Outcome.UNKNOWN if witness.code < 300 else Outcome.UNDECIDED
    await server.quit()
    return Answer(outcome, f"host {server.place} said: {reply.code} {reply.text}", clear=clear)


def _outcome(reply: _Reply) -> Outcome | None:
    """Returns what a reply to RCPT says; None if it may be about the recipient, or about us."""
    if reply.code < 300:
        return Outcome.VALID
    if reply.code not in _REFUSALS:
        return Outcome.UNDECIDED
    match = _ENHANCED.match(reply.text)
    if match is None:
        return None if reply.code in _UNCLEAR_BARE else Outcome.UNDECIDED
    if match[0] in _UNKNOWN:
        return Outcome.UNKNOWN
    return None if match[0] in _UNCLEAR else Outcome.UNDECIDED


class _Server:
    """One connection to a server."""

    def __init__(self, place: str, timeout_s: float) -> None:
        self.place = place
        self._timeout_s = timeout_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, address: str, port: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                if port:
                    opened = await asyncio.open_connection(address, port, limit=LINE_MAX)
                else:
                    opened = await asyncio.open_unix_connection(address, limit=LINE_MAX)
        except OSError as error:  # TimeoutError is one
            why = "timed out" if isinstance(error, TimeoutError) else error.strerror or type(error).__name__
            raise _Unreachable(f"connect to {self.place}: {why}") from None
        self._reader, self._writer = opened

    async def reply(self) -> _Reply:
        """Returns the next reply. Raises _Failed."""
        assert self._reader is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    line = (await self._reader.readline()).decode("ascii", "replace").rstrip("\r\n")
                    if not line[:3].isdecimal() or not "200" <= line[:3] <= "599" or len(lines) >= LINES_MAX:
                        raise _Failed(f"host {self.place} does not speak SMTP, or hung up")
                    lines.append(line[4:])
                    if line[3:4] != "-":
                        return _Reply(int(line[:3]), lines)
        except (OSError, ValueError) as error:  # a line that is too long is a ValueError
            why = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
            raise _Failed(f"reading from {self.place}: {why}") from None

    async def command(self, line: str) -> _Reply:
        """Sends a command and returns its reply. Raises _Failed."""
        assert self._writer is not None
        self._writer.write(line.encode() + b"\r\n")
        return await self.reply()

    def expect(self, reply: _Reply, what: str) -> None:
        """Raises _Failed unless the reply is positive."""
        if reply.code >= 300:
            raise _Failed(f"host {self.place} refuses, {what}: {reply.code} {reply.text}")

    async def hello(self, hello: str, question: Question) -> set[str]:
        """Returns the keywords that the server offers. Raises _Failed."""
        reply = await self.command(hello)
        if reply.code >= 500 and not question.lmtp:
            reply = await self.command(f"HELO {question.hostname}")
            self.expect(reply, "reply to HELO")
            return set()
        self.expect(reply, "reply to EHLO")
        return {line.split(" ", 1)[0].upper() for line in reply.lines[1:]}

    async def start_tls(self, context: ssl.SSLContext, policy: Policy, name: str) -> None:
        """Encrypts the connection, and checks the certificate as the policy demands; ``name`` is for SNI.

        Raises _TlsFailed, or _Failed for a certificate that is wrong.
        """
        assert self._writer is not None
        reply = await self.command("STARTTLS")
        if reply.code != 220:
            raise _TlsFailed(f"host {self.place} refuses TLS: {reply.code} {reply.text}")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writer.start_tls(context, server_hostname=name or None)
        except ssl.SSLCertVerificationError as error:
            raise _TlsFailed(f"certificate of {self.place} not trusted: {error.verify_message}") from None
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; a name that SNI cannot say, a ValueError
            raise _TlsFailed(f"TLS handshake with {self.place}: {type(error).__name__}") from None
        missing = checked(self._writer.get_extra_info("ssl_object"), policy).missing
        if missing:
            raise _Failed(f"certificate of {self.place} not verified: {missing}")

    async def quit(self) -> None:
        """Ends the conversation; the reply does not matter."""
        assert self._writer is not None
        self._writer.write(b"QUIT\r\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
