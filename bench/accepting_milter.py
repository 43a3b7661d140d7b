"""A milter that accepts all, for benchmarks: ``python -m bench.accepting_milter PORT [KIND]``.

KIND says what it negotiates: ``all`` (every step comes, and each is answered), ``norep`` (as rspamd: every step comes, only the
end of the message is answered), ``minimal`` (only the end of the message).
"""

from __future__ import annotations

import asyncio
import struct
import sys
from functools import partial
from typing import cast

import uvloop

__all__ = ["main"]

_CONTINUE = b"\0\0\0\1c"
_NO_STEPS = 0x37F  # CONNECT, HELO, MAIL, RCPT, body, header, its end, unknown, DATA
_NO_REPLIES = 0xFF080
_STEPS = {"all": 0, "norep": _NO_REPLIES, "minimal": _NO_STEPS}
_UNANSWERED = b"DAQ"  # macros, abort, quit


class _Accepting(asyncio.Protocol):
    def __init__(self, kind: str) -> None:
        self._negotiated = struct.pack("!IBIII", 13, ord("O"), 6, 0x1FF, _STEPS[kind])
        self._unanswered = frozenset(_UNANSWERED if kind == "all" else _UNANSWERED + b"CHMRTLNBU")
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
                answers.append(self._negotiated)
            elif code not in self._unanswered:
                answers.append(_CONTINUE)
            at = end
        self._buffer = data[at:]
        if answers and self._transport is not None:
            self._transport.write(b"".join(answers))


async def _serve(port: int, kind: str) -> None:
    server = await asyncio.get_running_loop().create_server(partial(_Accepting, kind), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    uvloop.run(_serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "all"))


if __name__ == "__main__":
    main()
