"""A batch: what one writer has collected, and what becomes one numbered commit.

The verbs are those of the files of a queue: ``append`` bytes at an offset, ``marks``, ``put`` a small file as a whole,
``blob`` of an upload, ``rename`` a file, ``drop`` files. Nothing here does I/O. A byte of a file is written once, except for
marks.

Keeps law: batches-without-gaps, law: drop-with-its-record (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import google_crc32c
import msgspec

from mailcore.replication.statements import COMMIT, COMMIT_ONE, Statement

__all__ = [
    "APPENDED",
    "CHUNK_BYTES_MAX",
    "MARKS",
    "UPLOADED",
    "Batch",
    "Chunk",
    "Ends",
    "decode_ends",
    "encode_ends",
    "offsets_in",
]

APPENDED, MARKS, UPLOADED = "a", "m", "b"
CHUNK_BYTES_MAX = 256 * 1024  # the server holds a few copies of a chunk while it writes it
PARTS_MAX = 32_000  # of one batch: "part" is a smallint
_OFFSET = struct.Struct("<I")

Ends = dict[str, tuple[int, int]]  # lane -> base of its newest segment, end of its records


class Chunk(msgspec.Struct):
    """Bytes of a file. ``at`` is their offset; of marks, it is the value of the marked bytes."""

    kind: str
    file: str
    at: int
    buffers: list[bytes]
    length: int

    def joined(self) -> bytes:
        """Returns its bytes in one piece."""
        return self.buffers[0] if len(self.buffers) == 1 else b"".join(self.buffers)


class Batch:
    """Collects. It may be empty: an empty batch confirms all before it."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.states: dict[str, bytes] = {}
        self.drops: dict[str, None] = {}  # in order
        self.renames: dict[str, str] = {}
        self.bytes = 0

    def append(self, file: str, at: int, buffers: Iterable[bytes]) -> None:
        """Adds bytes at the offset ``at``. Bytes that continue the chunk before become a part of it."""
        self._add(APPENDED, file, at, buffers)

    def blob(self, file: str, at: int, buffers: Iterable[bytes]) -> None:
        """Adds bytes of an upload, whose file counts only when a record names it."""
        self._add(UPLOADED, file, at, buffers)

    def marks(self, file: str, offsets: Sequence[int], value: int) -> None:
        """Sets the bytes at these offsets to ``value``, after all that was appended to the file."""
        if offsets:
            data = b"".join(map(_OFFSET.pack, offsets))
            self._room(Chunk(MARKS, file, value, [data], len(data)))

    def put(self, file: str, data: bytes) -> None:
        """Replaces a small file as a whole. Raises ValueError if this batch drops it: the order would be lost."""
        if file in self.drops:
            raise ValueError(f"{file} is dropped in this batch")
        self.states[file] = data
        self.bytes += len(data)

    def rename(self, file: str, to: str) -> None:
        """Gives a file another name, which no file has. Raises ValueError if this batch changes it: the order would be lost."""
        if file in self.drops or any(chunk.file in (file, to) for chunk in self.chunks):
            raise ValueError(f"{file} is changed and renamed in this batch")
        self.renames[file] = to

    def drop(self, files: Iterable[str]) -> None:
        """Deletes files; what this batch has collected for them is left out."""
        for file in files:
            self.drops[file] = None
            self.states.pop(file, None)
            self.chunks = [chunk for chunk in self.chunks if chunk.file != file]

    def _add(self, kind: str, file: str, at: int, buffers: Iterable[bytes]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                last = self.chunks[-1] if self.chunks else None
                if (
                    last is None
                    or (last.kind, last.file, last.at + last.length) != (kind, file, at)
                    or last.length >= CHUNK_BYTES_MAX
                ):
                    last = Chunk(kind, file, at, [], 0)
                    self._room(last)
                piece = view[: CHUNK_BYTES_MAX - last.length]
                last.buffers.append(buffer if len(piece) == len(buffer) and isinstance(buffer, bytes) else bytes(piece))
                last.length += len(piece)
                at += len(piece)
                self.bytes += len(piece)
                view = view[len(piece) :]

    def _room(self, chunk: Chunk) -> None:
        if len(self.chunks) >= PARTS_MAX:
            raise ValueError(f"a batch of more than {PARTS_MAX} chunks")
        self.chunks.append(chunk)

    def statement(
        self, shard: str, writer: str, epoch: int, incarnation: int, n: int, ends: bytes
    ) -> tuple[Statement, list[object]]:
        """Returns the statement that commits it as number ``n``, and its parameters."""
        parameters: list[object] = [shard, writer, epoch, incarnation, n, ends]
        chunks = [(chunk, chunk.joined()) for chunk in self.chunks]
        if len(chunks) == 1 and not (self.states or self.drops or self.renames):
            ((chunk, data),) = chunks
            return COMMIT_ONE, [*parameters, chunk.kind, chunk.file, chunk.at, google_crc32c.value(data), data]
        return COMMIT, [
            *parameters,
            list(self.drops),
            list(self.states),
            list(self.states.values()),
            [chunk.kind for chunk, _ in chunks],
            [chunk.file for chunk, _ in chunks],
            [chunk.at for chunk, _ in chunks],
            [google_crc32c.value(data) for _, data in chunks],
            [data for _, data in chunks],
            list(self.renames),
            list(self.renames.values()),
        ]


def offsets_in(data: bytes) -> list[int]:
    """Returns the offsets in the bytes of a chunk of marks."""
    return [offset for (offset,) in _OFFSET.iter_unpack(data)]


def encode_ends(ends: Ends) -> bytes:
    """Returns the ends of a writer's lanes as they are stored in its row."""
    return msgspec.msgpack.encode(ends)


def decode_ends(data: bytes) -> Ends:
    """Returns the ends of a writer's lanes; none for a writer that never committed."""
    return msgspec.msgpack.decode(data, type=Ends) if data else {}
