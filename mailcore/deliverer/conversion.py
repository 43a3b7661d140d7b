"""Data in 7 bits for next hops without 8BITMIME: the stored data converted while it is read, and signed as it is sent.

As in Postfix, 8-bit data is converted unless ``mime_output_conversion`` of the transport says otherwise. The data stays as it
was stored; what is converted exists only on its way to the next hop. Big data is converted again each time it is read.

Laws
- A signature of ours is made over the bytes that are sent: after the conversion (RFC 6376 5.3).
- Of big data, a block is in memory, and what ``seven_bit`` remembers of each part.

Keeps law: converted-decodes-the-same (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mailcore.deliverer.connection import Connection
from mailcore.deliverer.long_lines import LineLimits
from mailcore.deliverer.message_data import MessageData
from mailcore.deliverer.mime_parts import TooComplex
from mailcore.deliverer.seven_bit import CannotConvert, Plan, Planner, converted
from mailcore.deliverer.signing import Signing
from mailcore.deliverer.unstuffed import stuffed, unstuffed
from mailcore.frames import Deliver
from mailcore.log.data_blocks import BLOCK_BYTES

__all__ = ["Conversion", "Misfit"]

_SEVEN_BIT = " in 7 bits"  # tells the signatures of converted data from those of the data as it is stored


class Misfit(NamedTuple):
    """Why a next hop cannot get the data."""

    dsn: str
    reason: str


class Conversion:
    """Fits data to next hops. ``modes`` are the settings of transports, "convert" if it is left out."""

    def __init__(
        self, modes: Mapping[str, str] = {}, signing: Signing | None = None, lines: LineLimits | None = None
    ) -> None:
        self._modes = modes
        self._signing = signing
        self._lines = lines or LineLimits()

    async def fitting(self, work: Deliver, data: MessageData, connection: Connection) -> MessageData | Misfit:
        """Returns the data for a next hop that takes 7 bits only. Raises DataError."""
        mode = self._modes.get(work.transport, "convert")
        original = data.unsigned or data
        original = original.unbroken or original  # an encoded part keeps its long lines
        if mode == "off" or await _is_seven_bit(original):
            return data
        if mode == "bounce":
            reason = f"the message has 8-bit data, but 8BITMIME was not offered by host {connection.name}"
            return Misfit("5.6.3", reason)
        if original.seven_bit is None:
            original.seven_bit = await self._made(work, original)
        made = original.seven_bit
        if isinstance(made, str):
            return Misfit("5.6.5", f"cannot convert the message to 7 bits for host {connection.name}: {made}")
        return made

    async def _made(self, work: Deliver, original: MessageData) -> MessageData | str:
        """Returns the data in 7 bits, signed if it is ours; or why it cannot be converted."""
        planner = Planner()
        try:
            for block in unstuffed(original):
                planner.feed(block)
                await asyncio.sleep(0)  # a block takes a millisecond; other deliveries have their turn
            plan = planner.plan()
        except (CannotConvert, TooComplex) as fault:
            return str(fault)
        made = self._lines.fitting(work, await _converted(original, plan) if plan else original)
        if work.is_ours and self._signing is not None:
            return await self._signing.sign(
                work.path + _SEVEN_BIT + made.variant, work.offset, made, work.author_domains
            )
        return made


async def _is_seven_bit(data: MessageData) -> bool:
    at = 0
    while at < data.length:
        block = data.read(at)
        if not block.isascii():
            return False
        at += len(block)
        if at < data.length:
            await asyncio.sleep(0)
    return True


async def _converted(original: MessageData, plan: Plan) -> MessageData:
    if original.whole is not None:
        return original.instead(b"".join(stuffed(converted(unstuffed(original), plan))))
    made = _SevenBitData(original, plan)
    length = 0
    for block in made.blocks():
        length += len(block)
        await asyncio.sleep(0)
    made.length = length
    return made


class _SevenBitData(MessageData):
    """Converted data, which can be read only from its beginning on, any number of times."""

    __slots__ = ("_at", "_original", "_plan", "_reading")

    def __init__(self, original: MessageData, plan: Plan, length: int = 0, before: bytes = b"") -> None:
        super().__init__(original.files, None, 0, length, b"", None, before)
        self._original = original
        self._plan = plan
        self._reading: Iterator[bytes] = iter(())
        self._at = 0

    def blocks(self) -> Iterator[bytes]:
        """Yields all of it. Raises DataError."""
        kept = [self._before]
        size = len(self._before)
        for piece in stuffed(converted(unstuffed(self._original), self._plan)):
            kept.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES:
                yield b"".join(kept)
                kept, size = [], 0
        if size:
            yield b"".join(kept)

    def read(self, start: int) -> bytes:
        """Returns what follows the block that was read last, or with 0 the first one. Raises DataError."""
        if not start:
            self._reading = self.blocks()
            self._at = 0
        assert start == self._at  # no reader jumps
        block = next(self._reading)
        self._at += len(block)
        return block

    def behind(self, before: bytes) -> MessageData:
        """Returns this data with other bytes in front of it."""
        return _SevenBitData(self._original, self._plan, self.length, before)
