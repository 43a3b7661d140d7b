"""The checksums of message data: one CRC-32C for each block of BLOCK_BYTES, the last block may be shorter.

They are made from the bytes in memory when the data arrives, stored in the ENVELOPE record (``Envelope.data_sums``), which the
log's own checksum covers, and go with the message through every rewrite. Each reader of data compares a block with its
checksum before it uses the block. Data of an older version has no checksums; it is read as it is.

Laws: no block is returned as good that does not match. A block that does not match is read once more past the cache, because
the memory may be wrong and the disk right.

Keeps law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c

from mailcore.log.disk import Disk

__all__ = ["BLOCK_BYTES", "BlockSums", "DataDamaged", "check_size", "is_good", "read_block", "read_blocks", "sums_of"]

BLOCK_BYTES = 64 * 1024  # one read and one write of a deliverer; the checksums are then 1/16384 of the data
SUM_BYTES = 4

_extend = google_crc32c.extend


class DataDamaged(Exception):
    """The data is not what was stored; the message says in which way, without the file's name."""


class BlockSums:
    """Makes the checksums of data that comes in pieces."""

    __slots__ = ("_block_bytes", "_crc", "_sums")

    def __init__(self) -> None:
        self._sums = b""
        self._crc = 0
        self._block_bytes = 0  # of the block that is not full yet

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the data."""
        have = self._block_bytes + len(data)
        if have < BLOCK_BYTES:  # nearly all mail
            self._crc = _extend(self._crc, data)
            self._block_bytes = have
            return
        at = BLOCK_BYTES - self._block_bytes
        sums = [self._sums, _packed(_extend(self._crc, data[:at]))]
        while len(data) - at >= BLOCK_BYTES:
            sums.append(_packed(_extend(0, data[at : at + BLOCK_BYTES])))
            at += BLOCK_BYTES
        self._sums = b"".join(sums)
        self._crc = _extend(0, data[at:])
        self._block_bytes = len(data) - at

    @property
    def sums(self) -> bytes:
        """Returns the checksums of all bytes so far: four bytes for each block, little-endian."""
        return self._sums + _packed(self._crc) if self._block_bytes else self._sums


def sums_of(data: bytes) -> bytes:
    """Returns the checksums of data in memory."""
    sums = BlockSums()
    sums.feed(data)
    return sums.sums


def is_good(sums: bytes, start: int, block: bytes) -> bool:
    """Returns True if the block that begins at ``start`` of the data matches its checksum, or if there are none."""
    if not sums:
        return True
    at = start // BLOCK_BYTES * SUM_BYTES
    return sums[at : at + SUM_BYTES] == _packed(_extend(0, block))


def check_size(size: int, file_bytes: int) -> None:
    """Raises DataDamaged if a file of ``size`` bytes had ``file_bytes``; 0: that is not known."""
    if file_bytes and size != file_bytes:
        raise DataDamaged(f"the file has {size} bytes, but {file_bytes} were written")


def read_block(disk: Disk, fd: int, offset: int, length: int, start: int, sums: bytes) -> bytes:
    """Reads one block. The data is ``length`` bytes of the file from ``offset`` on, the block begins at ``start`` of them.

    Raises OSError; DataDamaged if the file ends too early or the block does not match its checksum.
    """
    wanted = min(BLOCK_BYTES, length - start)
    block = disk.read(fd, wanted, offset + start)
    if len(block) == wanted and is_good(sums, start, block):
        return block
    disk.drop_cache(fd)
    block = disk.read(fd, wanted, offset + start)
    if len(block) < wanted:
        raise DataDamaged(f"the file ends at byte {offset + start + len(block)}, the data at {offset + length}")
    if not is_good(sums, start, block):
        raise DataDamaged(f"bytes {start} to {start + wanted - 1} of {length} do not match their checksum")
    return block


def read_blocks(disk: Disk, fd: int, offset: int, length: int, sums: bytes, upto: int) -> bytes:
    """Reads the first ``upto`` bytes of the data, and checks all blocks that they are in. Raises as ``read_block``."""
    blocks: Sequence[bytes] = [
        read_block(disk, fd, offset, length, start, sums) for start in range(0, min(upto, length), BLOCK_BYTES)
    ]
    return b"".join(blocks)[:upto]


def _packed(crc: int) -> bytes:
    return crc.to_bytes(SUM_BYTES, "little")
