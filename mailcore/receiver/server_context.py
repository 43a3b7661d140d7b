"""The context that all sessions of one SMTP server share, so that a session needs no reference to its server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from mailcore.config.settings import Receiver
from mailcore.esmtp import EXTENSIONS, Extension, Offering
from mailcore.receiver.intake import Intake
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.trace import TraceHeader

__all__ = ["Offer", "ServerContext"]


class Offer:
    """Holds the offer to a connection: the reply to EHLO, and the parameters of MAIL and RCPT by keyword."""

    def __init__(self, name: bytes, extensions: Sequence[Extension], offering: Offering) -> None:
        offered = [(row, line) for row in extensions if (line := row.offer(offering)) is not None]
        lines = [name, *(line.encode("ascii") for _, line in offered)]
        self.ehlo = b"\r\n".join([b"250-" + line for line in lines[:-1]] + [b"250 " + lines[-1]])
        self.mail = {parameter.keyword: parameter for row, _ in offered for parameter in row.mail}
        self.rcpt = {parameter.keyword: parameter for row, _ in offered for parameter in row.rcpt}


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
        extensions: Sequence[Extension] = EXTENSIONS,
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.intake = intake
        self.loop = loop
        self.hostname = hostname
        self.inline_limit = inline_limit
        self.tag_header = settings.tag_header.lower().encode()
        self.spool_data_at = spool_data_at
        self.tls_context = tls_context
        self.trace = TraceHeader(hostname)
        self.name = hostname.encode()
        self.greeting = b"220 " + self.name + b" ESMTP Waypost\r\n"
        offering = Offering(settings.message_size_limit, tls_context is not None, is_encrypted=False)
        self.offer = Offer(self.name, extensions, offering)
        self.offer_tls = Offer(self.name, extensions, offering._replace(is_encrypted=True))
        self.ticks = 0  # of the server's timer; a session notes the tick at which it last heard from its client
