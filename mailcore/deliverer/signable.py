"""A message as a signature sees it: its header fields, and the hash of its body, read block by block.

Law: the bytes that are hashed are the bytes that are sent; they come from the same blocks, whose checksums were compared.
"""

from __future__ import annotations

import asyncio

from mailcore.deliverer.message_data import MessageData
from mailcore.dkim.canonical import BodyHash, fields_of, unstuffed

__all__ = ["Signable"]

HEADER_END = b"\r\n\r\n"


class Signable:
    """Reads the header section at once, and the body when its hash is wanted. Raises DataError."""

    def __init__(self, data: MessageData) -> None:
        self._data = data
        header, self._body = bytearray(), b""
        self._at = 0
        while self._at < data.length:
            block = data.read(self._at)
            self._at += len(block)
            header += block
            if header.startswith(b"\r\n"):
                header, self._body = bytearray(), bytes(header[2:])
                break
            end = header.find(HEADER_END, max(0, len(header) - len(block) - len(HEADER_END)))
            if end >= 0:
                header, self._body = header[:end], bytes(header[end + len(HEADER_END) :])
                break
        self.fields = fields_of(unstuffed(bytes(header)))

    async def body_digest(self) -> bytes:
        """Returns the hash of the body in the relaxed form; call it once. Raises DataError."""
        hashed = BodyHash()
        hashed.feed(self._body)
        while self._at < self._data.length:
            await asyncio.sleep(0)  # a block takes a millisecond; other deliveries have their turn
            block = self._data.read(self._at)
            self._at += len(block)
            hashed.feed(block)
        return hashed.digest()
