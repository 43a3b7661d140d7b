"""Takes the first frame of a connection, and leaves what is behind it as it is."""

from __future__ import annotations

import struct

from mailcore.frames import Frame, FrameDecoder, WireError

__all__ = ["take_frame"]

_LENGTH = struct.Struct("<I")


def take_frame(buffer: bytearray, bytes_max: int) -> Frame | None:
    """Removes the first frame from a buffer and returns it; None if it is not there as a whole. Raises WireError."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length > bytes_max:
        raise WireError(f"a frame of {length} bytes; at most {bytes_max} are allowed")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    (frame,) = FrameDecoder(bytes_max).feed(bytes(buffer[:end]))
    del buffer[:end]
    return frame
