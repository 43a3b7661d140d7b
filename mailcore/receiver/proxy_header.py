"""The PROXY protocol's header, versions 1 and 2: which client a balancer passes on (HAProxy's proxy-protocol.txt).

Laws
- A header is believed only if every byte of it is as the protocol says; otherwise a sentence names what is wrong.
- Its length is bounded: 107 bytes of text, or what the binary form declares, up to ``BYTES_MAX``.
- No byte behind the header is asked for: it belongs to the client, to its TLS handshake or its first command.

Pure. Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import NamedTuple

__all__ = ["BYTES_MAX", "FIRST_BYTES", "HeaderError", "Passed", "read_header", "wanted"]

TEXT_BYTES_MAX = 107  # "the maximum line lengths ... including the CRLF", section 2.1
BYTES_MAX = 4096  # our own bound of version 2; an address takes 52 bytes, a client certificate's name 64 more
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED_BYTES = 16  # signature, version and command, family and transport, length
FIRST_BYTES = len(SIGNATURE)  # the shortest header of version 1 has 15, so these may be read in any case
_TEXT = re.compile(
    rb"PROXY TCP(?P<version>[46]) (?P<source>[0-9A-Fa-f:.]{2,45}) (?P<target>[0-9A-Fa-f:.]{2,45})"
    rb" (?P<source_port>0|[1-9][0-9]{0,4}) (?P<target_port>0|[1-9][0-9]{0,4})\r\n"
)
_UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: [^\r\n\0]*)?\r\n")
_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _INET, _INET6, _UNIX = range(4)
_STREAM = 1
_ADDRESSES = {_INET: struct.Struct("!4s4sHH"), _INET6: struct.Struct("!16s16sHH"), _UNIX: struct.Struct("108s108s")}
_FAMILIES = {_UNSPECIFIED: "unspecified", _INET: "IPv4", _INET6: "IPv6", _UNIX: "Unix"}


class HeaderError(ValueError):
    """A header that cannot be believed. The message says why."""


class Passed(NamedTuple):
    """The client and its port, and the address and port that it connected to. ``client`` is "" if none is named."""

    client: str
    client_port: int
    server: str
    server_port: int


NOT_NAMED = Passed("", 0, "", 0)  # the balancer itself, such as its health check, or a client without an IP address


def wanted(had: bytes) -> int:
    """Returns how many bytes may be read now without touching what follows the header; 0: it is complete.

    For text, this is more than the header may have: ``read_header`` must see the bytes before they are taken, up to the first
    LF. Raises HeaderError.
    """
    if len(had) < FIRST_BYTES:
        if not SIGNATURE.startswith(had) and not had.startswith(b"PROXY "[: len(had)]):
            raise HeaderError("the connection does not begin with a PROXY header")
        return FIRST_BYTES - len(had)
    if is_text(had):
        if had.endswith(b"\n"):
            return 0
        if len(had) >= TEXT_BYTES_MAX:
            raise HeaderError(f"the header of version 1 is longer than {TEXT_BYTES_MAX} bytes")
        return TEXT_BYTES_MAX - len(had)
    if not had.startswith(SIGNATURE):
        raise HeaderError("the connection does not begin with a PROXY header")
    if len(had) < FIXED_BYTES:
        return FIXED_BYTES - len(had)
    length = FIXED_BYTES + int.from_bytes(had[14:16])
    if length > BYTES_MAX:
        raise HeaderError(f"the header of version 2 has {length} bytes; at most {BYTES_MAX} are read")
    return length - len(had)


def is_text(had: bytes) -> bool:
    """Returns whether this is the beginning of a header of version 1."""
    return had.startswith(b"PROXY ")


def read_header(header: bytes) -> Passed:
    """Reads a complete header. Raises HeaderError."""
    return _read_text(header) if is_text(header) else _read_binary(header)


def _read_text(header: bytes) -> Passed:
    if _UNKNOWN.fullmatch(header):
        return NOT_NAMED
    match = _TEXT.fullmatch(header)
    if match is None:
        raise HeaderError("the header of version 1 is malformed")
    is_four = match["version"] == b"4"
    kind = ipaddress.IPv4Address if is_four else ipaddress.IPv6Address
    try:
        source, target = kind(match["source"].decode()), kind(match["target"].decode())
    except ValueError:
        family = "IPv4" if is_four else "IPv6"
        raise HeaderError(f"the header of version 1 has an address that is not {family}") from None
    ports = int(match["source_port"]), int(match["target_port"])
    if max(ports) > 65_535:
        raise HeaderError("the header of version 1 has a port above 65535")
    return Passed(_address(source), ports[0], _address(target), ports[1])


def _read_binary(header: bytes) -> Passed:
    version, command = header[12] >> 4, header[12] & 15
    if version != 2:
        raise HeaderError(f"the header has the unknown version {version}")
    if command not in (_LOCAL, _PROXY):
        raise HeaderError(f"the header has the unknown command {command}")
    family, transport = header[13] >> 4, header[13] & 15
    if command == _LOCAL:  # "the receiver must accept this connection ... and ignore the address family"
        return NOT_NAMED
    if family not in _FAMILIES:
        raise HeaderError(f"the header has the unknown address family {family}")
    if family == _UNSPECIFIED:
        return NOT_NAMED
    if transport != _STREAM:
        raise HeaderError("the header is not that of a TCP connection")
    body = header[FIXED_BYTES:]
    form = _ADDRESSES[family]
    if len(body) < form.size:
        raise HeaderError(f"the length {len(body)} is too short for {_FAMILIES[family]} addresses, {form.size} bytes")
    _skip_values(body[form.size :])
    if family == _UNIX:
        return NOT_NAMED
    source, target, source_port, target_port = form.unpack_from(body)
    return Passed(
        _address(ipaddress.ip_address(source)), source_port, _address(ipaddress.ip_address(target)), target_port
    )


def _skip_values(values: bytes) -> None:
    """Skips what a balancer says beside the addresses: type, length and value each. Raises HeaderError at a wrong length."""
    at = 0
    while at < len(values):
        end = at + 3 + int.from_bytes(values[at + 1 : at + 3])
        if end > len(values) or at + 3 > len(values):
            raise HeaderError("the length of the header does not fit the values in it")
        at = end


def _address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Returns the address as accept(2) gives it; a mapped one as IPv4, for which the networks are meant."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).compressed
