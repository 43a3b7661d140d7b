"""Believing the envelope of a record whose message data is damaged.

A record has one checksum, so a flipped bit in the data would take the envelope with it: no list would show whose message it
was. But the envelope holds the CRC-32C of each block of its data (``data_blocks``), and the CRC of two texts in a row follows
from theirs and the second one's length. So from the bytes of the envelope as they are and from the checksums of the data as
they were, the checksum follows that the record had when it was written. If it is the record's, every byte of the envelope is
as it was written, with the same certainty as for a whole record, and it is the data that is damaged.

Such a record is read as any other. Its data does not match its checksums, which every reader of data compares
(law: data-matches-checksums); so the message is held, with its reason (law: damaged-data-is-held).

So it is with the last record of a lane, of which a crash may have kept the envelope and lost a part of the data. Its client
was not answered and sends the message again, so a message too many is held; but the same bytes are left of an acknowledged
message whose data is damaged, and this must not be lost.

Keeps law: damaged-data-keeps-its-envelope (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from mailcore.log.data_blocks import BLOCK_BYTES, SUM_BYTES
from mailcore.log.record import RecordType, checksum

__all__ = ["DATA_SUMS_FIELD", "combine", "is_envelope_good"]

DATA_SUMS_FIELD = 33  # index of ``Envelope.data_sums``; a test compares
_LENGTH = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
_decode = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_sums = msgspec.msgpack.Decoder(bytes).decode


def is_envelope_good(salt: int, offset: int, type_: int, body: bytes, crc: int) -> bool:
    """Returns True if all bytes of the record but those of its message data are right; its checksum should be ``crc``."""
    if type_ != RecordType.ENVELOPE or len(body) <= _LENGTH.size:
        return False
    head = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    data_bytes = len(body) - head
    if data_bytes <= 0:
        return False
    try:
        sums = _decode_sums(_decode(memoryview(body)[_LENGTH.size : head])[DATA_SUMS_FIELD])
    except (msgspec.MsgspecError, IndexError):
        return False
    blocks = (data_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES
    if len(sums) != blocks * SUM_BYTES:  # none: of an older version
        return False
    whole = checksum(salt, offset, type_, (body[:head],), len(body))
    left = data_bytes
    for (of_block,) in _LENGTH.iter_unpack(sums):
        whole = combine(whole, of_block, min(left, BLOCK_BYTES))
        left -= BLOCK_BYTES
    return whole == crc


def combine(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-32C of two texts in a row from the CRC of each and the length of the second.

    Appending a zero bit to a text is a linear map of its CRC over GF(2). It is applied 8 * ``second_bytes`` times by repeated
    squaring (the method of zlib's ``crc32_combine``): 1 ms, and only damaged records need it.
    """
    power = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # column i: what a zero bit makes of the CRC 1 << i
    bits = second_bytes * 8
    while bits:
        if bits & 1:
            first = _times(power, first)
        power = [_times(power, column) for column in power]
        bits >>= 1
    return first ^ second


def _times(matrix: Sequence[int], vector: int) -> int:
    total = 0
    for column in matrix:
        if vector & 1:
            total ^= column
        vector >>= 1
        if not vector:
            break
    return total
