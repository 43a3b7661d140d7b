"""The packets of the milter protocol, version 6, written and read (decision 0035). Pure.

```
 0                  4      5
 +------------------+------+---- - -
 | length, u32      | code | data: length - 1 bytes; texts end with NUL, numbers are u32, highest byte first
 +------------------+------+---- - -
```

The flags and codes are those of Sendmail's ``mfdef.h``. Keeps law: milter-fails-safely (docs/laws.md).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "BODY_BYTES_MAX",
    "OFFERED_ACTIONS",
    "OFFERED_STEPS",
    "PACKET_BYTES_MAX",
    "VERSION",
    "Action",
    "BadPacket",
    "Macros",
    "Negotiated",
    "Packet",
    "Protocol",
    "Reply",
    "Step",
    "header_packets",
    "macro_packet",
    "numbered",
    "packet",
    "packet_length",
    "read_negotiation",
    "texts",
    "write_negotiation",
]

VERSION = 6
VERSION_MIN = 2  # of filters from before 2009; what they lack is not negotiated
BODY_BYTES_MAX = 65_535  # MILTER_CHUNK_SIZE
PACKET_BYTES_MAX = 1 << 20  # libmilter sends a body in pieces of 65 535; a header field is shorter than this
MACRO_STAGES_MAX = 16  # 7 exist

_HEAD = struct.Struct("!IB")
_MACRO_HEAD = struct.Struct("!IBB")
_LENGTH = struct.Struct("!I")
_NEGOTIATION = struct.Struct("!III")
_U32 = struct.Struct("!I")


class BadPacket(Exception):
    """Raised for bytes that are not a packet of the protocol; the message says why."""


class Step(enum.IntEnum):
    """The commands to a filter, by their code."""

    ABORT = ord("A")
    BODY = ord("B")
    CONNECT = ord("C")
    MACRO = ord("D")
    END_OF_BODY = ord("E")
    HELO = ord("H")
    HEADER = ord("L")
    MAIL = ord("M")
    END_OF_HEADER = ord("N")
    NEGOTIATE = ord("O")
    QUIT = ord("Q")
    RCPT = ord("R")
    DATA = ord("T")
    UNKNOWN = ord("U")


_MACRO, _HEADER = int(Step.MACRO), int(Step.HEADER)


class Reply(enum.IntEnum):
    """The packets of a filter, by their code."""

    ADD_RECIPIENT = ord("+")
    DELETE_RECIPIENT = ord("-")
    ADD_RECIPIENT_PARAMETERS = ord("2")
    SHUTDOWN = ord("4")
    ACCEPT = ord("a")
    REPLACE_BODY = ord("b")
    CONTINUE = ord("c")
    DISCARD = ord("d")
    CHANGE_SENDER = ord("e")
    CONNECTION_FAILED = ord("f")
    ADD_HEADER = ord("h")
    INSERT_HEADER = ord("i")
    CHANGE_HEADER = ord("m")
    PROGRESS = ord("p")
    QUARANTINE = ord("q")
    REJECT = ord("r")
    SKIP = ord("s")
    TEMPFAIL = ord("t")
    REPLY_CODE = ord("y")


class Action(enum.IntFlag):
    """The changes that a filter may make."""

    ADD_HEADERS = 0x001
    CHANGE_BODY = 0x002
    ADD_RECIPIENTS = 0x004
    DELETE_RECIPIENTS = 0x008
    CHANGE_HEADERS = 0x010
    QUARANTINE = 0x020
    CHANGE_SENDER = 0x040
    ADD_RECIPIENTS_PARAMETERS = 0x080
    CHOOSE_MACROS = 0x100


class Protocol(enum.IntFlag):
    """Which steps a filter wants not to get (NO), which it will not answer (NR), and other agreements."""

    NO_CONNECT = 0x000001
    NO_HELO = 0x000002
    NO_MAIL = 0x000004
    NO_RCPT = 0x000008
    NO_BODY = 0x000010
    NO_HEADERS = 0x000020
    NO_END_OF_HEADER = 0x000040
    NR_HEADERS = 0x000080
    NO_UNKNOWN = 0x000100
    NO_DATA = 0x000200
    SKIP = 0x000400
    REFUSED_RECIPIENTS = 0x000800  # SMFIP_RCPT_REJ: recipients that we refuse are shown, too
    NR_CONNECT = 0x001000
    NR_HELO = 0x002000
    NR_MAIL = 0x004000
    NR_RCPT = 0x008000
    NR_DATA = 0x010000
    NR_UNKNOWN = 0x020000
    NR_END_OF_HEADER = 0x040000
    NR_BODY = 0x080000
    LEADING_SPACE = 0x100000  # values of fields keep the space behind the colon


OFFERED_ACTIONS = Action(0x1FF)
OFFERED_STEPS = Protocol(0x1FFFFF)
# Stages for which a filter may choose its macros, as it numbers them.
_STAGES = (Step.CONNECT, Step.HELO, Step.MAIL, Step.RCPT, Step.DATA, Step.END_OF_BODY, Step.END_OF_HEADER)
Macros = dict[Step, tuple[str, ...]]


class Packet(NamedTuple):
    """A packet without its length."""

    code: int
    data: bytes


class Negotiated(NamedTuple):
    """The answer of a filter to our offer."""

    version: int
    actions: Action
    steps: Protocol
    macros: Macros  # of the stages for which the filter has chosen them


def packet(step: Step, *parts: bytes) -> bytes:
    """Returns a packet; each part is written with a NUL at its end, unless it is the last one and the step is BODY."""
    if not parts:
        return _HEAD.pack(1, step)
    data = parts[0] if step is Step.BODY else b"\0".join(parts) + b"\0"
    return _HEAD.pack(1 + len(data), step) + data


def packet_length(buffer: bytes | bytearray) -> int:
    """Returns the length of the first packet with its head; 0 while that is not known. Raises BadPacket."""
    if len(buffer) < _LENGTH.size:
        return 0
    (length,) = _LENGTH.unpack_from(buffer)
    if not 0 < length <= PACKET_BYTES_MAX:
        raise BadPacket(f"sent a packet of {length} bytes; 1 to {PACKET_BYTES_MAX} are allowed")
    return _LENGTH.size + int(length)


def texts(data: bytes) -> list[bytes]:
    """Returns the texts of a packet. Raises BadPacket if the last one does not end."""
    if not data:
        return []
    if data[-1:] != b"\0":
        raise BadPacket("sent a text without an end")
    return data[:-1].split(b"\0")


def numbered(data: bytes) -> tuple[int, list[bytes]]:
    """Returns the number at the beginning of a packet, and the texts behind it. Raises BadPacket."""
    if len(data) < _U32.size:
        raise BadPacket("sent a packet that is too short")
    return _U32.unpack_from(data)[0], texts(data[_U32.size :])


def write_negotiation() -> bytes:
    """Returns our offer: all actions, and all steps that may be left out."""
    data = _NEGOTIATION.pack(VERSION, OFFERED_ACTIONS, OFFERED_STEPS)
    return _HEAD.pack(1 + len(data), Step.NEGOTIATE) + data


def read_negotiation(answer: Packet) -> Negotiated:
    """Reads the answer of a filter. Raises BadPacket if it is none, or asks for what was not offered."""
    code, data = answer
    if code != Step.NEGOTIATE or len(data) < _NEGOTIATION.size:
        raise BadPacket(f"answered the negotiation with {_shown(code)} and {len(data)} bytes")
    version, actions, steps = _NEGOTIATION.unpack_from(data)
    if not VERSION_MIN <= version <= VERSION:
        raise BadPacket(f"speaks version {version} of the protocol; versions {VERSION_MIN} to {VERSION} are known")
    if actions & ~int(OFFERED_ACTIONS) or steps & ~int(OFFERED_STEPS):
        raise BadPacket(f"asked for actions {actions:#x} and steps {steps:#x}, which were not offered")
    return Negotiated(version, Action(actions), Protocol(steps), _read_macros(data[_NEGOTIATION.size :]))


def _read_macros(data: bytes) -> Macros:
    macros: Macros = {}
    for _ in range(MACRO_STAGES_MAX):
        if not data:
            return macros
        if len(data) < _U32.size or b"\0" not in data[_U32.size :]:
            raise BadPacket("sent a list of macros that has no end")
        (stage,) = _U32.unpack_from(data)
        names, _, data = data[_U32.size :].partition(b"\0")
        if stage >= len(_STAGES):
            raise BadPacket(f"chose macros for stage {stage}, which does not exist")
        macros[_STAGES[stage]] = tuple(names.decode("ascii", "replace").replace(",", " ").split())
    raise BadPacket("sent too many lists of macros")


def macro_packet(step: Step, values: Iterable[tuple[bytes, str]]) -> bytes:
    """Returns the packet with the macros of a step; b"" if there are none. A name has its NUL already."""
    data = b"".join([name + _sent(value) for name, value in values])
    return _MACRO_HEAD.pack(2 + len(data), _MACRO, step) + data if data else b""


def header_packets(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns a packet for each header field."""
    return b"".join(
        [_HEAD.pack(3 + len(name) + len(value), _HEADER) + name + b"\0" + value + b"\0" for name, value in fields]
    )


def _sent(value: str) -> bytes:
    sent = value.encode("utf-8", "surrogateescape")
    return (sent.replace(b"\0", b"") if b"\0" in sent else sent) + b"\0"


def _shown(code: int) -> str:
    return repr(chr(code)) if 32 < code < 127 else f"code {code}"
