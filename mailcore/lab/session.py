"""One SMTP session of a next hop (RFC 5321, PIPELINING), as an asyncio protocol.

Laws: data is taken byte for byte; a message is counted before its 250 is written; every buffer is bounded. It is
lenient in what it takes (no policy, any order of parameters), because the hop's behaviour is what refuses.

It knows its hop as a ``HopSide``, and nothing of sockets beyond its transport.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from mailcore.lab.arrival import ContentDigest
from mailcore.lab.behaviour import Behaviour, Deed, Delay, Occasion, Reply, Stage

__all__ = ["HopSide", "Session"]

LINE_BYTES_MAX = 64 * 1024  # of a command; far above RFC 5321's 512, so that a long address is not what fails
RECIPIENTS_MAX = 100_000  # of one transaction, then 452
HELD_BYTES_MAX = 1024 * 1024  # that a client may send before a delayed or missing reply; then reading stops
PIECE_BYTES_MIN = 64 * 1024  # smallest piece of data that is digested

_END = b"\r\n.\r\n"
_ADDRESS = re.compile(r'(?:FROM|TO):\s*<((?:"(?:\\.|[^"\\])*"|[^">])*)>\s*(.*)', re.IGNORECASE | re.DOTALL)
_LINGER_OFF = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST


class HopSide(Protocol):
    """The part of a hop that a session uses: the behaviour to follow, and the counters."""

    hostname: str
    keywords: Sequence[str]  # of ESMTP, as the reply to EHLO has them
    behaviour: Behaviour

    @property
    def connections(self) -> int:
        """Returns the open connections that a limit counts."""

    def now(self) -> float:
        """Returns the time of the loop, in seconds."""

    def opened(self, session: Session) -> int:
        """Counts a new session; returns its number."""

    def ended(self, session: Session) -> None:
        """Takes a session off ``connections``: it has sent its last reply."""

    def closed(self, session: Session) -> None:
        """Takes a session off all counts: its socket is gone."""

    def refused(self, code: int) -> None:
        """Counts a reply of 400 or above."""

    def did(self, deed: Deed) -> None:
        """Counts a reset, a close or a silence."""

    def arrived(
        self,
        *,
        digest: ContentDigest,
        sender: str,
        parameters: str,
        recipients: tuple[str, ...],
        helo: str,
        client: str,
        session: int,
        transaction: int,
    ) -> None:
        """Records a message that is about to be answered with 250."""


class Session(asyncio.Protocol):
    """One connection. While ``_waiting`` a reply is delayed or withheld, and nothing is taken from the buffer."""

    def __init__(self, hop: HopSide) -> None:
        self._hop = hop
        self._buffer = b""
        self._replies: list[bytes] = []
        self._waiting = False
        self._delay: asyncio.TimerHandle | None = None
        self._in_data = False
        self._searched = 0
        self._body_seen = False
        self._digest: ContentDigest | None = None
        self._transactions = 0
        self._helo = ""
        self._client = ""
        self._sender: str | None = None
        self._parameters = ""
        self._recipients: list[str] = []
        self.number = 0

    # --- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Counts the session and greets, or does what the behaviour says."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._client = peer[0] if peer else ""
        self.number = self._hop.opened(self)
        self._answer(Stage.CONNECT, 220, f"{self._hop.hostname} ESMTP Waypost lab")
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Answers complete commands; data is kept while a reply is delayed."""
        self._buffer = self._buffer + data if self._buffer else bytes(data)
        if self._waiting:
            if len(self._buffer) > HELD_BYTES_MAX:
                self._transport.pause_reading()
            return
        self._run()

    def eof_received(self) -> bool:
        """Lets the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels a delayed reply and takes the session off the counts."""
        del exc
        if self._delay is not None:
            self._delay.cancel()
        self._waiting = True
        self._buffer = b""
        self._hop.closed(self)

    def abort(self) -> None:
        """Drops the connection at once."""
        self._transport.abort()

    # --- commands ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Answers everything in the buffer that can be answered now; the replies go out in one write."""
        while not self._waiting:
            if self._in_data:
                if not self._read_data():
                    break
                continue
            end = self._buffer.find(b"\n")
            if end < 0:
                if len(self._buffer) > LINE_BYTES_MAX:
                    self._say(500, "5.5.2 Line too long")
                    self._close()
                break
            line = self._buffer[:end]
            self._buffer = self._buffer[end + 1 :]
            self._command(line.decode("utf-8", "backslashreplace").rstrip("\r"))
        self._flush()

    def _command(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        verb = verb.upper()
        if verb == "MAIL":
            match = _ADDRESS.match(rest)
            if match is None:
                self._say(501, "5.5.4 Syntax: MAIL FROM:<address>")
            elif self._sender is not None:
                self._say(503, "5.5.1 Nested MAIL command")
            elif self._answer(Stage.MAIL, 250, "2.1.0 Ok", sender=match[1]):
                self._sender, self._parameters = match[1], match[2]
        elif verb == "RCPT":
            match = _ADDRESS.match(rest)
            if match is None:
                self._say(501, "5.5.4 Syntax: RCPT TO:<address>")
            elif self._sender is None:
                self._say(503, "5.5.1 MAIL first")
            elif len(self._recipients) >= RECIPIENTS_MAX:
                self._say(452, "4.5.3 Too many recipients")
            elif self._answer(Stage.RCPT, 250, "2.1.5 Ok", recipient=match[1]):
                self._recipients.append(match[1])
        elif verb == "DATA":
            if not self._recipients:
                self._say(503, "5.5.1 No valid recipients")
            elif self._answer(Stage.DATA, 354, "End data with <CR><LF>.<CR><LF>"):
                self._in_data = True
                self._body_seen = False
                self._digest = None
                self._searched = 0
                # The line end of DATA counts for the end of data (".CRLF" alone is an empty message) and for the
                # dot of the first line, so it is put in front and left out again by _piece.
                self._buffer = b"\r\n" + self._buffer
        elif verb in {"EHLO", "HELO"}:
            self._hello(verb, rest)
        elif verb == "RSET":
            self._reset()
            self._say(250, "2.0.0 Ok")
        elif verb == "NOOP":
            self._say(250, "2.0.0 Ok")
        elif verb == "VRFY":
            self._say(252, "2.0.0 Send it and see")
        elif verb == "QUIT":
            if self._answer(Stage.QUIT, 221, "2.0.0 Bye"):
                self._close()
        else:
            self._say(502, "5.5.2 Not known here")

    def _hello(self, verb: str, name: str) -> None:
        without = self._hop.behaviour.without
        if verb == "EHLO" and "EHLO" in without:
            self._say(502, "5.5.1 Only HELO here")
            return
        lines = [self._hop.hostname]
        if verb == "EHLO":
            lines += [keyword for keyword in self._hop.keywords if keyword.split()[0] not in without]
        if self._answer(Stage.EHLO, 250, "\n".join(lines)):
            self._helo = name
            self._reset()

    def _reset(self) -> None:
        self._sender = None
        self._parameters = ""
        self._recipients = []

    # --- data -------------------------------------------------------------------------------------------------------

    def _read_data(self) -> bool:
        """Takes what is there of the message. False: more must come first."""
        buffer = self._buffer
        if not self._body_seen and len(buffer) > 2:
            self._body_seen = True
            self._answer(Stage.BODY, 0, "")
            if self._waiting:
                return False
        end = buffer.find(_END, self._searched)
        if end < 0:
            self._searched = max(0, len(buffer) - len(_END) + 1)
            if len(buffer) > PIECE_BYTES_MIN:
                # Cut where neither the end nor a stuffed dot is cut in two: not behind CR or CRLF.
                cut = len(buffer) - len(_END) + 1
                if buffer[cut - 2 : cut] == b"\r\n":
                    cut -= 2
                elif buffer[cut - 1] == 0x0D:
                    cut -= 1
                self._piece(buffer[:cut])
                self._buffer = buffer[cut:]
                self._searched = max(0, len(self._buffer) - len(_END) + 1)
            return False
        self._piece(buffer[: end + 2])
        self._buffer = buffer[end + len(_END) :]
        self._in_data = False
        self._transactions += 1
        self._final()
        return True

    def _piece(self, piece: bytes) -> None:
        clean = piece.replace(b"\r\n.", b"\r\n")
        if self._digest is None:
            self._digest = ContentDigest()
            clean = clean[2:]
        self._digest.update(clean)

    def _final(self) -> None:
        """Answers the final dot. The message is an arrival from the moment its 250 is written, not before."""
        outcome = self._outcome(Stage.FINAL)
        digest, self._digest = self._digest, None
        assert digest is not None
        arrive = functools.partial(
            self._hop.arrived,
            digest=digest,
            sender=self._sender or "",
            parameters=self._parameters,
            recipients=tuple(self._recipients),
            helo=self._helo,
            client=self._client,
            session=self.number,
            transaction=self._transactions,
        )
        self._reset()
        if outcome is None:
            arrive()
            self._say(250, "2.0.0 Ok")
        elif isinstance(outcome, Delay):
            self._wait(outcome.seconds, arrive, lambda: self._say(250, "2.0.0 Ok"))
        else:
            self._act(outcome)

    # --- replies ----------------------------------------------------------------------------------------------------

    def _outcome(
        self, stage: Stage, sender: str | None = None, recipient: str | None = None
    ) -> Reply | Delay | Deed | None:
        """Returns what the behaviour says here; delays add up until a trait decides."""
        traits = self._hop.behaviour.traits.get(stage)
        if traits is None:
            return None
        occasion = Occasion(
            now=self._hop.now(),
            connections=self._hop.connections,
            client=self._client,
            sender=(self._sender or "") if sender is None else sender,
            recipients=tuple(self._recipients) if recipient is None else (recipient,),
        )
        delay_s = 0.0
        for trait in traits:
            outcome = trait(occasion)
            if isinstance(outcome, Delay):
                delay_s += outcome.seconds
            elif outcome is not None:
                return outcome
        return Delay(delay_s) if delay_s > 0 else None

    def _answer(
        self, stage: Stage, code: int, text: str, *, sender: str | None = None, recipient: str | None = None
    ) -> bool:
        """Replies, now or later, or does what the behaviour wants. True: the reply is (or will be) the good one."""
        outcome = self._outcome(stage, sender, recipient)
        if outcome is None:
            if code:
                self._say(code, text)
            return True
        if isinstance(outcome, Delay):
            if stage is Stage.QUIT:
                self._wait(outcome.seconds, lambda: self._say(code, text), self._close)
                return False
            self._wait(outcome.seconds, lambda: self._say(code, text))
            return True
        self._act(outcome)
        if stage is Stage.CONNECT and isinstance(outcome, Reply):
            self._close()
        return False

    def _act(self, outcome: Reply | Deed) -> None:
        if isinstance(outcome, Reply):
            self._say(outcome.code, outcome.text)
            if outcome.code == 421:  # RFC 5321 3.8: the server closes after it
                self._close()
            return
        self._waiting = True
        self._hop.did(outcome)
        if outcome is Deed.CLOSE:
            self._close()
        elif outcome is Deed.RESET:
            self._flush()
            sock: socket.socket | None = self._transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
            self._transport.abort()

    def _wait(self, seconds: float, *steps: Callable[[], None]) -> None:
        self._waiting = True

        def resume() -> None:
            self._delay = None
            self._waiting = False
            for step in steps:
                step()
            if not self._transport.is_closing():
                self._transport.resume_reading()
                self._run()

        self._delay = asyncio.get_running_loop().call_later(seconds, resume)

    def _say(self, code: int, text: str) -> None:
        if code >= 400:
            self._hop.refused(code)
        lines = text.split("\n")
        self._replies += [b"%d-%s\r\n" % (code, line.encode()) for line in lines[:-1]]
        self._replies.append(b"%d %s\r\n" % (code, lines[-1].encode()))

    def _flush(self) -> None:
        if self._replies and not self._transport.is_closing():
            self._transport.write(b"".join(self._replies))
        self._replies.clear()

    def _close(self) -> None:
        self._hop.ended(self)
        self._flush()
        self._waiting = True
        self._transport.close()
