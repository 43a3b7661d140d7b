"""Takes in what other nodes ask: over mutual TLS, for a shard that runs here, with the rights that they name.

The first frame of a connection says which shard, and for whom (``frames.ForClient``). The answer is an empty ``Response``, or
one with a fault. Behind it the connection is one of the shard's control process, which enforces the rights. A connection for
no shard (WATCH) hears what it says, so that the other node knows that this one lives.

Keeps law: peer-decides-rights, law: trust-is-a-row (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from mailcore.config.known_shards import known_shards
from mailcore.config.nodes import following
from mailcore.config.settings import Settings
from mailcore.faults import Code, Fault
from mailcore.frames import ForClient, Response, WireError, encode
from mailcore.nodes.accepting import Accepting
from mailcore.nodes.guard import CONNECT_S, Guard, Guards
from mailcore.peers.first_frame import take_frame
from mailcore.peers.joint import Side, join
from mailcore.supervisor.listen import listen

__all__ = ["FIRST_BYTES_MAX", "SERVICE", "WATCH", "Asked"]

SERVICE = "waypost-control"  # ALPN
WATCH = -1  # in the place of a shard
FIRST_BYTES_MAX = 4096  # of the first frame
CONNECTIONS_MAX = 128  # of one node; a client has one for each shard. Beside them a node may always watch
LOOK_S = 0.5


class Asked:
    """Listens for the other nodes."""

    def __init__(self, settings: Settings, guards: Guards, say: Callable[[str], None]) -> None:
        self._endpoint = following(settings.nodes.listen)
        self._run = settings.run_directory
        self._guards = guards
        self._say = say
        self._connections: dict[str, set[_NodeSide]] = {}  # by node
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep_listening(self) -> None:
        """Listens, and does so again with another certificate when this node has joined again. Ends only by being cancelled."""
        server: Accepting | None = None
        shown = b""
        trust = self._guards.trust
        while True:
            if trust.is_in() and trust.certificate != shown:
                if server is not None:
                    server.close()
                try:
                    server = self._listen()
                    shown = trust.certificate
                except OSError as error:
                    server, shown = None, b""
                    self._say(f"{self._endpoint}, for the other nodes: {error.strerror or error}")
            await asyncio.sleep(LOOK_S)

    def _listen(self) -> Accepting:
        def guarded() -> Guard:
            side = _NodeSide(self)
            guard = Guard(self._guards, side, service=SERVICE)
            side.guard = guard
            return guard

        context = self._guards.trust.context(server=True, service=SERVICE)
        return Accepting(asyncio.get_running_loop(), listen(self._endpoint, shared=False), context, guarded)

    def added(self, side: _NodeSide, node: str) -> bool:
        """Counts a connection of a node. Returns False if it has too many, but never for the only one that watches."""
        of_node = self._connections.setdefault(node, set())
        of_node.add(side)
        is_first_watch = side.is_watched and sum(each.is_watched for each in of_node) == 1
        return is_first_watch or len(of_node) <= CONNECTIONS_MAX

    def ended(self, side: _NodeSide) -> None:
        """Counts a connection no more."""
        for node, of_node in list(self._connections.items()):
            of_node.discard(side)
            if not of_node:
                del self._connections[node]

    def open(self, side: _NodeSide, client: ForClient) -> None:
        """Begins to connect another node with a shard."""
        task = asyncio.get_running_loop().create_task(self._open(side, client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, side: _NodeSide, client: ForClient) -> None:
        control = Side()
        try:
            path = self._socket_of(client.shard)
            await asyncio.get_running_loop().create_unix_connection(lambda: control, path)
        except (OSError, ValueError, LookupError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            side.answer(Fault(Code.UNAVAILABLE, f"its control process does not answer ({why})"))
            return
        assert control.transport is not None
        control.transport.write(encode(client))
        side.answer(None)
        join(side, control)
        side.pass_rest()

    def _socket_of(self, number: int) -> str:
        """Raises LookupError, OSError, ValueError."""
        for shard in known_shards(self._run):
            if shard.of_ids == number:
                return str(shard.run_directory / "control.sock")
        raise LookupError("it is not at this node")


class _NodeSide(Side):
    """A connection of another node."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.guard: Guard | None = None
        self._asked = asked
        self._held = bytearray()
        self._is_open = self.is_watched = False
        self._waiting: asyncio.TimerHandle | None = None  # for the first frame

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._waiting = asyncio.get_running_loop().call_later(CONNECT_S, self.end)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._asked.ended(self)
        super().connection_lost(exc)

    def heard(self, data: bytes) -> None:
        """Takes the first frame; says what follows back to a node that watches."""
        if self.is_watched and self.transport is not None:
            self.transport.write(data)
            return
        self._held += data
        if self._is_open:
            return
        try:
            client = take_frame(self._held, FIRST_BYTES_MAX)
            if client is None:
                if len(self._held) > FIRST_BYTES_MAX:
                    self.end()
                return
            if not isinstance(client, ForClient) or self.guard is None:
                raise WireError("the first frame says for whom")
        except WireError:
            self.end()
            return
        self._is_open, self.is_watched = True, client.shard == WATCH
        if self._waiting is not None:
            self._waiting.cancel()
        node = self.guard.node
        if not self._asked.added(self, node):
            self.answer(
                Fault(Code.UNAVAILABLE, f"node {node} has {CONNECTIONS_MAX} connections here, which is all that it may")
            )
            return
        if self.is_watched:
            self.answer(None)
            return
        if self.transport is not None:
            self.transport.pause_reading()  # until the shard takes it
        # The name of the node is the one that its certificate has, and not what it says.
        self._asked.open(self, msgspec.structs.replace(client, node=node))

    def answer(self, fault: Fault | None) -> None:
        """Says whether the shard is connected."""
        if self.transport is None or self.is_over:
            return
        self.transport.write(encode(Response(0, None, fault)))
        if fault is not None:
            self.transport.close()

    def pass_rest(self) -> None:
        """Passes on what came before the shard was connected."""
        if self._held and self.other is not None and self.other.transport is not None:
            self.other.transport.write(bytes(self._held))
            self._held.clear()
        if self.transport is not None and not self.is_over:
            with contextlib.suppress(RuntimeError):
                self.transport.resume_reading()
