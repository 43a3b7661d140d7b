"""Passes the questions of this node's clients on: for each shard of another node there is a control socket here.

A client is judged as by the control process of this node: by SO_PEERCRED and the group of [control]. The node that owns the
shard hears the result, and enforces it.

- A node that does not answer costs a client at most CONNECT_S. While it is known to be silent, each question fails at once.
- Nothing is sent twice. A request that did not get there is answered with a fault that says so; once the connection is made,
  its end is that of the client's connection.
- When a shard has another owner, or a node has fallen silent, the connections to the former one end.

Keeps law: peer-decides-rights, law: trust-is-a-row, law: never-sent-twice, law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from mailcore.config.known_shards import place_of_other
from mailcore.config.nodes import following, peer_address
from mailcore.config.settings import Settings
from mailcore.control.access import Peer, group_id, peer_of
from mailcore.control.protocol.table import CLIENT_FRAME_BYTES_MAX
from mailcore.faults import Code, Fault
from mailcore.frames import ForClient, Request, Response, WireError, encode
from mailcore.nodes.guard import CONNECT_S, Guard, Guards
from mailcore.peers.asked import FIRST_BYTES_MAX, SERVICE, WATCH
from mailcore.peers.first_frame import take_frame
from mailcore.peers.joint import Side, join
from mailcore.peers.rows import Rows

__all__ = ["Asking"]

BEAT_S = 1.0  # between two signs of a node that is watched
SILENT_S = 3.0  # it has not answered one for this time: it is silent
AGAIN_S = 1.0
BACKLOG = 64
CONNECTIONS_MAX = 256
MODE = 0o660  # as control.sock


class Silent(OSError):
    """Says why a shard cannot be asked for; ``why`` without the node, if that does not answer."""

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


def _why(error: Exception) -> str:
    """Returns why a node does not answer, in words for people; some errors have none."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or "the connection broke"


class Asking:
    """The control sockets for shards of other nodes, and what is known of these nodes."""

    def __init__(self, settings: Settings, guards: Guards, rows: Rows, say: Callable[[str], None]) -> None:
        self._settings = settings
        self.group = group_id(settings.control.group)
        self._guards = guards
        self._rows = rows
        self._say = say
        self._served: dict[int, asyncio.Task[asyncio.AbstractServer]] = {}  # shard -> its socket
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._silent: dict[str, str] = {}  # node -> why
        self._clients: set[_ClientSide] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """Takes over what the rows say now."""
        for row in self._rows.others.shards:
            if row.number not in self._served:
                self._serve(row.number)
        trust = self._guards.trust
        names = {name for name in trust.nodes if name != self._rows.node} if trust.is_in() else set()
        for name in names - self._watched.keys():
            self._watched[name] = asyncio.get_running_loop().create_task(self._watch(name))
        for name in self._watched.keys() - names:
            self._watched.pop(name).cancel()
            self._silent.pop(name, None)
        for client in list(self._clients):
            if client.node and client.node != self._rows.node_of(client.shard):
                client.end()

    # -- clients

    def _serve(self, number: int) -> None:
        """Opens the socket of a shard."""
        place = place_of_other(self._settings.run_directory, number)
        try:
            for directory in (place.parent, place):  # entered by all, as that of control.sock
                directory.mkdir(exist_ok=True)
                directory.chmod(0o755)
            listener = self._listener(place / "control.sock")
        except OSError as error:
            self._say(f"{place}: {error.strerror or error}; shard {number} cannot be asked for")
            return
        loop = asyncio.get_running_loop()
        serving = loop.create_unix_server(lambda: _ClientSide(self, number), sock=listener)
        self._served[number] = loop.create_task(serving)

    def _listener(self, path: Path) -> socket.socket:
        """Returns a socket with the rights of control.sock, and never one with others. Raises OSError."""
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(str(new))
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(before)
        if self.group is not None:
            os.chown(new, -1, self.group)
        new.chmod(MODE)
        listener.listen(BACKLOG)
        new.replace(path)
        return listener

    def added(self, client: _ClientSide) -> bool:
        """Counts a client. Returns False if there are too many."""
        if len(self._clients) >= CONNECTIONS_MAX:
            return False
        self._clients.add(client)
        return True

    def ended(self, client: _ClientSide) -> None:
        """Counts a client no more."""
        self._clients.discard(client)

    def open(self, client: _ClientSide, peer: Peer) -> None:
        """Begins to connect a client with its shard."""
        task = asyncio.get_running_loop().create_task(self._open(client, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, client: _ClientSide, peer: Peer) -> None:
        try:
            node = self._rows.node_of(client.shard)
            if node == self._rows.node:
                raise Silent("it is at this node now; ask again")
            if node in self._silent:
                raise Silent(f"node {node} does not answer: {self._silent[node]}")
            there = await self._connect(node, peer.elsewhere(client.shard, self.group))
        except OSError as error:
            client.refuse(str(error))
            return
        client.node = node
        join(client, there)
        client.pass_rest()

    # -- other nodes

    async def _connect(self, node: str, client: ForClient) -> _ThereSide:
        """Returns a connection to a shard of a node that has taken it. Raises Silent."""
        trust = self._guards.trust
        if not trust.is_in():
            raise Silent(trust.why_not)
        if not trust.address_of(node):
            raise Silent(f"node {node} is not in: run waypost node join there")
        there = _ThereSide()
        guard = Guard(self._guards, there, node, service=SERVICE)
        try:
            async with asyncio.timeout(CONNECT_S):
                host, port = peer_address(following(trust.address_of(node)))
                await asyncio.get_running_loop().create_connection(
                    lambda: guard, host, port, ssl=trust.context(server=False, service=SERVICE), server_hostname=SERVICE,
                    ssl_handshake_timeout=CONNECT_S,
                )  # fmt: skip
                if not guard.is_let_in or there.transport is None:
                    raise Silent(f"another node than {node} answers there")
                there.transport.write(encode(client))
                fault = await there.answered
        except (OSError, ValueError, TimeoutError) as error:
            there.end()
            why = _why(error)
            raise Silent(f"node {node} does not answer: {why}", why) from None
        if fault is not None:
            there.end()
            raise Silent(f"node {node}: {fault.message}")
        return there

    async def _watch(self, node: str) -> None:
        """Knows whether a node answers: by a connection that it answers once a second. Ends only by being cancelled."""
        while True:
            try:
                there = await self._connect(node, ForClient(WATCH, "", -1, False, False))
                self._silent.pop(node, None)
                await there.lives()
                why = "the connection broke" if there.is_over else f"no sign for {SILENT_S:g} s"
                there.end()
            except Silent as error:
                why = error.why
            self._silent[node] = why
            for client in list(self._clients):
                if client.node == node:
                    client.end()
            await asyncio.sleep(AGAIN_S)


class _ClientSide(Side):
    """A client of this node, for one shard of another."""

    def __init__(self, asking: Asking, shard: int) -> None:
        super().__init__()
        self.shard = shard
        self.node = ""  # with which it is connected
        self._asking = asking
        self._peer: Peer | None = None
        self._held = bytearray()
        self._is_opening = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        try:
            self._peer = peer_of(transport.get_extra_info("socket").getsockopt)
        except OSError:
            self.end()
            return
        if not self._asking.added(self):
            assert self.transport is not None
            fault = Fault(Code.BUSY, f"{CONNECTIONS_MAX} clients ask other nodes already; try again")
            self.transport.write(encode(Response(0, None, fault)))
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._asking.ended(self)
        super().connection_lost(exc)

    def heard(self, data: bytes) -> None:
        """Holds what comes until the other node is connected."""
        self._held += data
        if not self._is_opening and self._peer is not None and self.transport is not None:
            self._is_opening = True
            self.transport.pause_reading()
            self._asking.open(self, self._peer)

    def refuse(self, why: str) -> None:
        """Answers each request that has come: it did not get there. The next one is tried again."""
        self._is_opening = False
        if self.transport is None or self.is_over:
            return
        try:
            while (frame := take_frame(self._held, CLIENT_FRAME_BYTES_MAX)) is not None:
                if not isinstance(frame, Request):
                    raise WireError("not a request")
                self.transport.write(encode(Response(frame.number, None, Fault(Code.UNAVAILABLE, why))))
        except WireError:
            self.end()
            return
        self._resume()

    def pass_rest(self) -> None:
        """Passes on what came before the other node was connected."""
        if self._held and self.other is not None and self.other.transport is not None:
            self.other.transport.write(bytes(self._held))
            self._held.clear()
        self._resume()

    def _resume(self) -> None:
        if self.transport is not None and not self.is_over:
            with contextlib.suppress(RuntimeError):
                self.transport.resume_reading()


class _ThereSide(Side):
    """The connection to another node."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
        self._held = bytearray()
        self._sign = asyncio.Event()

    def heard(self, data: bytes) -> None:
        """Takes the answer whether the shard is connected, and then signs of life."""
        if self.answered.done():
            self._sign.set()
            return
        self._held += data
        try:
            frame = take_frame(self._held, FIRST_BYTES_MAX)
        except WireError as error:
            self._fail(str(error))
            return
        if isinstance(frame, Response):
            self.answered.set_result(frame.error)
        elif frame is not None:
            self._fail("it does not say whether the shard is connected")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection broke")
        self._sign.set()
        super().connection_lost(exc)

    def _fail(self, why: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(Silent(why))
            self.answered.exception()  # it may not be waited for any more

    async def lives(self) -> None:
        """Returns when the other node gives no sign any more."""
        while not self.is_over and self.transport is not None:
            self._sign.clear()
            self.transport.write(b".")
            try:
                async with asyncio.timeout(SILENT_S):
                    await self._sign.wait()
            except TimeoutError:
                return
            await asyncio.sleep(BEAT_S)
