"""The messages of shards and giver as bytes: a length (4 bytes, little-endian) and a MessagePack array."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from mailcore.shares.messages import Answer, Ask, Welcome

__all__ = ["BadMessage", "MessageDecoder", "encoded"]

Message = Ask | Answer | Welcome
BYTES_MAX = 16 * 1024 * 1024  # a hundred thousand destinations
_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()


class BadMessage(Exception):
    """Says that the peer sent something else than a message: the connection must be closed."""


def encoded(message: Message) -> bytes:
    """Returns a message with its length in front."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class MessageDecoder:
    """Turns bytes into messages, and keeps an incomplete one until more bytes come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._decode = msgspec.msgpack.Decoder(Message).decode

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields each message that ``data`` completes. Raises BadMessage."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > BYTES_MAX:
                raise BadMessage(f"a message of {length} bytes; at most {BYTES_MAX} are allowed")
            end = _LENGTH.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[_LENGTH.size : end])
            del buffer[:end]
            try:
                yield self._decode(body)
            except msgspec.MsgspecError as error:
                raise BadMessage(f"not a message: {error}") from error
