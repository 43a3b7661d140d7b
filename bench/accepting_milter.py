"""A milter that accepts all, for benchmarks: ``python -m bench.accepting_milter PORT``. It gets every step and answers each."""

from __future__ import annotations

import asyncio
import struct
import sys
from typing import cast

import uvloop

__all__ = ["main"]

_CONTINUE = b"\0\0\0\1c"
_NEGOTIATED = struct.pack("!IBIII", 13, ord("O"), 6, 0x1FF, 0)
_UNANSWERED = frozenset(b"DAQ")  # macros, abort, quit


class _Accepting(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        at, answers = 0, []
        while len(data) - at >= 5:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            code = data[at + 4]
            if code == ord("O"):
                answers.append(_NEGOTIATED)
            elif code not in _UNANSWERED:
                answers.append(_CONTINUE)
            at = end
        self._buffer = data[at:]
        if answers and self._transport is not None:
            self._transport.write(b"".join(answers))


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Accepting, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
