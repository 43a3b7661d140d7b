"""Frames between the processes: a length (4 bytes, little-endian) and a MessagePack array.

All pairs of processes use the same frames; the docstring of each frame names its sender and its receiver. Frames are written
in batches: a ``FrameWriter`` collects the frames of one turn of the loop and writes them at once.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from mailcore.envelope import Envelope, Options, Verdict
from mailcore.faults import Fault

if TYPE_CHECKING:  # each command loads the frames, and none of them a loop
    import asyncio

__all__ = [
    "TLS_NOT_OFFERED",
    "Deliver",
    "Delivered",
    "Durable",
    "Fate",
    "ForClient",
    "Frame",
    "FrameDecoder",
    "FrameWriter",
    "Hello",
    "Lease",
    "Measured",
    "NextHop",
    "Offer",
    "Offered",
    "PassOn",
    "PassedOn",
    "Request",
    "Response",
    "Shares",
    "SharesKept",
    "WireError",
    "encode",
]

TLS_CLEAR = "sent in the clear: "  # in Delivered.tls_level under "may", before the reason
TLS_NOT_OFFERED = "TLS not offered"  # the last words of Delivered.tls_level if the server has no STARTTLS
FRAME_BYTES_MAX = 16 * 1024 * 1024  # a browse page or 50 recipients is far below; a longer one is an error of the peer


class WireError(Exception):
    """Says that the peer sent invalid data: the connection cannot be used any more and must be closed."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """First on every connection to the manager: who is there. role: receiver, deliverer or control."""

    role: str
    number: int
    pid: int
    capacity: int = 0  # of a deliverer: deliveries at once


class Durable(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """receiver -> manager: the lane is on disk up to (not including) ``end``."""

    lane: str
    end: int
    messages: int  # envelopes that became durable since the last Durable on this connection
    recipients: int


class NextHop(msgspec.Struct, frozen=True, array_like=True):
    """Where to: a domain to look up, or (``mx`` false) a host or address literal taken as it is, or a Unix socket."""

    host: str  # a domain, host name, IPv4 or IPv6 address, without brackets; the path of a Unix socket, with port 0
    port: int
    mx: bool


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """manager -> deliverer: one transaction to make. The data is ``length`` bytes of ``path`` from ``offset`` on,
    dot-stuffed, CRLF, without the final dot."""

    entry: int  # the manager's number of it, unique while it lives
    queue_id: str
    transport: str
    next_hop: NextHop
    sender: str
    recipients: tuple[tuple[int, str], ...]  # Recipient.number, address
    path: str
    offset: int
    length: int
    eight_bit: bool
    smtputf8: bool
    tls: str = "may"  # transport's tls level, one of mailcore.config.tls.LEVELS
    options: Options = ()  # Envelope.options
    recipient_options: tuple[Options, ...] = ()  # Recipient.options of each of ``recipients``; () when none has any
    data_sums: bytes = b""  # Envelope.data_sums
    spool_bytes: int = 0  # Envelope.spool_bytes
    is_ours: bool = False  # from our own users, networks or bounces, and there are DKIM keys: to be signed
    arc: str = ""  # mail of others, to be sealed: the state of its ARC chain when it came; "": not to be sealed
    author_domains: tuple[str, ...] | None = None  # Envelope.author_domains
    fallbacks: tuple[NextHop, ...] = ()  # tried in this order when no host of ``next_hop`` can be found or reached
    shared: str = ""  # the destination, if several queues share its limit
    share_until: float = 0.0  # then: the end of the connection, unless ``Shares`` or another entry says more


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """deliverer -> manager: what came of it, one verdict for every recipient of the entry."""

    entry: int
    verdicts: tuple[Verdict, ...]
    relay: str  # "mx.example.org[192.0.2.1]:25", or "none" when no host was reached
    tls: str  # as Envelope.tls
    site_failure: bool  # could not connect, be greeted, say EHLO, or lost the handshake
    connect_s: float  # delay c: DNS, connecting, greeting, EHLO, TLS; 0.0 on a kept connection
    transmit_s: float  # delay d: from MAIL FROM to the last reply
    transport_failure: bool = False  # a trouble of our own that no other site mends: no descriptors, no memory
    source_address: str = ""  # of our end of the connection; "" when no host was reached
    tls_verified: bool = False  # the certificate was checked, as the level demands
    damage: str = ""  # of the data on disk: why it was not sent; the message must be held
    # The level that the connection was made under, or that the host did not fulfil; ": " and the reason for it unless that is
    # "may" of the transport; of mail that was sent in the clear under "may", also ``TLS_CLEAR`` and why (``TLS_NOT_OFFERED``,
    # or how TLS failed). "" if there was no connection for another reason, and for a Unix socket.
    tls_level: str = ""
    resting: int = 0  # connections to a destination with shares that rest in this deliverer now


class Request(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """control -> manager, and any client -> control: an operation of ``mailcore.control.protocol``."""

    number: int
    operation: str
    arguments: dict[str, Any]
    who: str = ""
    why: str = ""


class Response(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The answer to ``Request.number``. A long answer comes in parts; ``last`` is true on the final one."""

    number: int
    result: Any = None
    error: Fault | None = None  # None: the operation succeeded
    last: bool = True


class Measured(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """receiver -> manager: what it has counted since the last one, for the metrics."""

    refusals: dict[str, int]  # class and reason of a reply -> refusals
    syncs: list[int]  # by the bounds of mailcore.histogram
    syncs_s: float  # their sum


class Offer(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """receiver -> manager: a message that may be passed on while its client waits. It is in no lane.

    ``data`` is as ``Deliver`` describes it.
    """

    number: int  # the receiver's number of it, unique on its connection
    envelope: Envelope
    data: bytes


class Fate(enum.IntEnum):
    """The end of an offer."""

    PASSED_ON = 0  # the next hop has it, for all recipients
    REFUSED = 1  # no next hop has it: the receiver stores it
    UNCERTAIN = 2  # a next hop may have it


class Offered(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """manager -> receiver: the answer to ``Offer.number``."""

    number: int
    fate: Fate
    reply: str = ""  # of the next hop; of ``REFUSED`` why, or ""


class PassOn(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """manager -> deliverer: one transaction to make at once, with its data. The path in ``work`` names no file."""

    work: Deliver
    data: bytes
    wait_s: float  # until the final dot


class PassedOn(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """deliverer -> manager: what came of a ``PassOn``. ``PASSED_ON``: all verdicts say delivered."""

    result: Delivered
    fate: Fate
    is_late: bool = False  # it was broken off after ``wait_s``, which says nothing about the next hop


class Ending(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """deliverer -> manager: it ends when it has answered what it has; it takes nothing more."""


class Lease(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """manager -> deliverer: the lease of the shard holds until then, unless another one of these says more."""

    until: float  # seconds of CLOCK_BOOTTIME


class Shares(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """manager -> deliverer: the ends of its connections to destinations whose limit several queues share; all there are.

    It ends those beyond at each end without another word. It answers with ``SharesKept``.
    """

    number: int
    ends: dict[str, tuple[tuple[float, int], ...]]  # destination -> until (seconds of CLOCK_BOOTTIME), connections
    quiet: tuple[str, ...] = ()  # destinations to which no connection rests, until there is another entry


class SharesKept(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """deliverer -> manager: ``Shares.number`` holds now."""

    number: int
    resting: dict[str, int]  # connections that rest, by destination


class ForClient(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """peers -> peers of another node -> control, before all requests of a connection: for whom they are asked.

    The near node has decided the rights of its client; the far one writes down ``node`` itself, as it knows its certificate.
    """

    shard: int  # its number in queue ids
    user: str  # login name of the client there
    uid: int
    may_change: bool
    is_trusted: bool  # it may say for whom it acts
    node: str = ""  # where it is


Frame = (
    Hello | Durable | Deliver | Delivered | Request | Response | Measured | Offer | Offered | PassOn | PassedOn | Ending
    | Lease | Shares | SharesKept | ForClient
)  # fmt: skip

_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """Returns the frame with its length in front."""
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Turns bytes into frames; keeps an incomplete frame until more bytes come, ``bytes_max`` at most."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(Frame).decode

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields each frame completed by ``data``. Raises WireError for invalid data."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, start)
                if length > self._bytes_max:
                    raise WireError(f"a frame of {length} bytes; at most {self._bytes_max} are allowed")
                end = start + _LENGTH.size + length
                if len(buffer) < end:
                    break
                try:
                    frame = self._decode(bytes(buffer[start + _LENGTH.size : end]))
                except msgspec.MsgspecError as error:
                    raise WireError(f"not a frame: {error}") from error
                start = end
                yield frame
        finally:
            del buffer[:start]


class FrameWriter:
    """Collects frames and hands them to the transport once per turn of the event loop."""

    def __init__(self, transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def send(self, frame: Frame) -> None:
        """Adds a frame to what is written at the end of this turn."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        body = _encoder.encode(frame)
        self._pending.append(_LENGTH.pack(len(body)))
        self._pending.append(body)

    def _flush(self) -> None:
        if not self._transport.is_closing():  # uvloop raises RuntimeError then; who reads is gone anyway
            self._transport.write(b"".join(self._pending))
        self._pending.clear()
