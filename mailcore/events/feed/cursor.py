"""The cursor of the feed: how far each lane was read, as opaque text.

```
"1" | base64url( zlib( MessagePack of Cursor ) )
```

A stretch of the feed is read lane by lane, the journal last, up to ``to``; so a cursor in its middle says where the stretch
ends, and reading on from it later gives the same events in the same order.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from mailcore.lookup.browse import CursorError

__all__ = ["CURSOR_CHARACTERS_MAX", "Cursor", "read_cursor"]

CURSOR_CHARACTERS_MAX = 8_000  # a hundred lanes have 1 500; it fits into a line of a request
_VERSION = "1"
_BYTES_MAX = 256 << 10
_LANES_MAX = 4_096


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """A position in the log. Offsets are lane offsets."""

    log: str  # the identity of this Waypost, shortened: offsets of another one mean nothing here
    at: dict[str, int] = {}  # lane -> read up to here; a lane that is missing was not read
    to: dict[str, int] = {}  # lanes of the stretch that are not read to its end yet
    skip: int = 0  # events of the record at ``at``, of the first lane in ``to``, that were answered before

    def __str__(self) -> str:
        """Returns the text that stands for the cursor."""
        packed = zlib.compress(msgspec.msgpack.encode(self), 9)
        return _VERSION + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    """Returns the cursor that a text stands for. Raises CursorError."""
    try:
        if not text.startswith(_VERSION) or len(text) > CURSOR_CHARACTERS_MAX:
            raise ValueError
        packed = base64.urlsafe_b64decode(text[1:] + "=" * (-len(text[1:]) % 4))
        unpacking = zlib.decompressobj()
        body = unpacking.decompress(packed, _BYTES_MAX)
        cursor = msgspec.msgpack.decode(body, type=Cursor)
        offsets = [*cursor.at.values(), *cursor.to.values(), cursor.skip]
        if min(offsets) < 0 or max(offsets) >= 1 << 62 or len(cursor.at) + len(cursor.to) > _LANES_MAX:
            raise ValueError
    except (ValueError, binascii.Error, zlib.error, msgspec.MsgspecError):
        raise CursorError(
            "this is not a cursor of events; allowed: oldest, now, or a cursor that was answered"
        ) from None
    return cursor
