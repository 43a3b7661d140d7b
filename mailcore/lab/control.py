"""The lab's control socket: one JSON object a line in, one a line out.

    {"do": "counters"}                                   counters, address and behaviour, and whether it listens
    {"do": "ledger", "after": 0, "limit": 1000}          arrivals, from this place in the list on
    {"do": "reset"}                                      forget what was counted
    {"do": "behaviour", "behaviour": "accept"}           change it, in open sessions too
    {"do": "drop"}                                       drop the open connections

Each speaks of all hops, or with "hop": "NAME" of one. An answer is {"ok": true, ...} or {"ok": false, "error": "..."}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mailcore.lab.behaviour import BehaviourError
from mailcore.lab.hop import Hop
from mailcore.lab.lab import Lab

__all__ = ["ControlServer", "ask"]

REQUEST_BYTES_MAX = 64 * 1024
PAGE_MAX = 10_000  # arrivals of one answer
_OLD_NAME = "temper"  # earlier name of "behaviour"; lang: quoted


class ControlServer:
    """Answers requests about one lab on a Unix socket."""

    def __init__(self, lab: Lab, path: Path) -> None:
        self._lab = lab
        self._path = path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Takes over the path of a lab that is no more. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=REQUEST_BYTES_MAX)
        os.chmod(self._path, 0o600)

    async def stop(self) -> None:
        """Closes the socket and its connections, and removes the path."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            await self._server.wait_closed()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(msgspec.json.encode(await self.answer(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # ValueError: a line beyond the limit
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Returns the answer to one line; errors are answers too."""
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            do = _DOINGS.get(str(request.get("do", "")))
            if do is None:
                raise BehaviourError(f"do is one of {', '.join(_DOINGS)}, not {request.get('do')!r}")
            name = request.get("hop")
            hops = self._lab.hops if name is None else [self._lab.hop(str(name))]
            answer: dict[str, Any] = await do(hops, request)
            return {"ok": True} | answer
        except (msgspec.MsgspecError, BehaviourError, OSError) as error:
            return {"ok": False, "error": str(error)}


async def _counters(hops: list[Hop], request: dict[str, Any]) -> dict[str, Any]:
    del request
    return {
        "hops": {
            hop.name: {
                "address": "{}:{}".format(*hop.address),
                "behaviour": hop.behaviour.text,
                "listening": hop.listening,
                **msgspec.structs.asdict(hop.counters),
            }
            for hop in hops
        }
    }


async def _ledger(hops: list[Hop], request: dict[str, Any]) -> dict[str, Any]:
    try:
        after, limit = int(request.get("after", 0)), int(request.get("limit", PAGE_MAX))
    except (TypeError, ValueError):
        raise BehaviourError("after and limit are whole numbers") from None
    if after < 0 or not 0 < limit <= PAGE_MAX:
        raise BehaviourError(f"after is 0 or more, limit 1 to {PAGE_MAX}")
    arrivals = hops[0].messages if len(hops) == 1 else [arrival for hop in hops for arrival in hop.messages]
    page = arrivals[after : after + limit]
    return {"arrivals": page, "after": after + len(page), "more": after + len(page) < len(arrivals)}


async def _reset(hops: list[Hop], request: dict[str, Any]) -> dict[str, Any]:
    del request
    for hop in hops:
        hop.reset()
    return {}


async def _behaviour(hops: list[Hop], request: dict[str, Any]) -> dict[str, Any]:
    text = request.get("behaviour", request.get(_OLD_NAME))
    if not isinstance(text, str):
        raise BehaviourError("behaviour is a text, such as slow(1.5)")
    for hop in hops:
        await hop.set_behaviour(text)
    return {}


async def _drop(hops: list[Hop], request: dict[str, Any]) -> dict[str, Any]:
    del request
    return {"dropped": sum(hop.abort_sessions() for hop in hops)}


_DOINGS: dict[str, Callable[[list[Hop], dict[str, Any]], Any]] = {
    "counters": _counters,
    "ledger": _ledger,
    "reset": _reset,
    "behaviour": _behaviour,
    _OLD_NAME: _behaviour,
    "drop": _drop,
}


def ask(path: Path, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Sends one request to a lab and returns its answer. Raises OSError if no lab listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        client.connect(str(path))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as lines:
            answer: dict[str, Any] = json.loads(lines.readline() or b"{}")
            return answer
