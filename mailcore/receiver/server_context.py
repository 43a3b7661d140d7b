"""What all sessions of one SMTP server share, so that a session needs to know nothing of the server that made it."""

from __future__ import annotations

import asyncio
import ssl

from mailcore.config.settings import Receiver
from mailcore.receiver.intake import Intake
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.trace import TraceHeader

__all__ = ["ServerContext"]


class ServerContext:
    """Holds the settings, the doors to policy and queue, and the replies that are the same for every session.

    ``hostname`` is our name; data of more than ``inline_limit`` bytes goes to the spool, where it begins ``spool_data_at``
    bytes into its file.
    """

    def __init__(
        self,
        settings: Receiver,
        policy: RelayPolicy,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        *,
        hostname: str,
        inline_limit: int,
        spool_data_at: int,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.intake = intake
        self.loop = loop
        self.hostname = hostname
        self.inline_limit = inline_limit
        self.spool_data_at = spool_data_at
        self.tls_context = tls_context
        self.trace = TraceHeader(hostname)
        self.name = hostname.encode()
        self.greeting = b"220 " + self.name + b" ESMTP Waypost\r\n"
        self.ehlo = self._ehlo(tls_context is not None)
        self.ehlo_tls = self._ehlo(False)
        self.ticks = 0  # of the server's timer; a session notes the tick at which it last heard from its client

    def _ehlo(self, starttls: bool) -> bytes:
        keywords = [
            b"PIPELINING",
            b"SIZE %d" % self.settings.message_size_limit,
            *([b"STARTTLS"] if starttls else []),
            b"ENHANCEDSTATUSCODES",
            b"8BITMIME",
            b"SMTPUTF8",
            b"HELP",
        ]
        lines = [self.name, *keywords]
        return b"\r\n".join([b"250-" + line for line in lines[:-1]] + [b"250 " + lines[-1]])
