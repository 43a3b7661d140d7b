"""The place where the managers of all nodes meet: a row of the database elects the giver, and mutual TLS leads to it.

The giver listens at ``[nodes] listen`` while it is the giver. Its row names its node and its address; what answers there must
have the certificate that the database has for this node. The process that is the giver asks itself without a network.

Keeps law: trust-is-a-row (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable

from mailcore.config.nodes import peer_address
from mailcore.config.settings import Settings
from mailcore.nodes.accepting import Accepting
from mailcore.nodes.guard import CONNECT_S, Guard, Guards
from mailcore.nodes.parameters import address_of, node_of
from mailcore.nodes.trust import SERVICE, Trust
from mailcore.replication.giver_election import GiverElection
from mailcore.replication.parameters import StoreParameters
from mailcore.supervisor.listen import listen

__all__ = ["NodesMeeting"]

Protocols = Callable[[], asyncio.Protocol]

AGAIN_S = 0.5  # after a connection that was not made


class Refused(OSError):
    """Says that what answered is not the node that it should be."""


class NodesMeeting:
    """Where this manager meets those of all nodes."""

    def __init__(self, settings: Settings, parameters: StoreParameters) -> None:
        self._listen = settings.nodes.listen
        self._node = node_of(settings)
        self._address = address_of(settings)
        self._parameters = parameters
        self.trust = Trust(settings, self._node, self._address)
        self._election: GiverElection | None = None
        self._opened = ("", 0)  # owner and epoch of the giver to which the last connection was made
        self._failed: tuple[float, str, int] = (-AGAIN_S, "", 0)  # when a connection was not made, or ended; to whom
        self._why = ""
        self._guards = Guards(self.trust)

    @property
    def election(self) -> GiverElection:
        """Returns the election, which ``elect`` has begun."""
        assert self._election is not None
        return self._election

    def elect(self, heard: Callable[[], int]) -> GiverElection:
        """Begins the election, in a thread."""
        owner = f"{self._node}/{os.getpid()}.{secrets.token_hex(8)}"
        self._election = GiverElection(
            self._parameters, owner, self._address, heard, beside=self.trust.read, may=self.trust.is_in
        )
        self._election.start()
        return self._election

    async def listen(self, loop: asyncio.AbstractEventLoop, serving: Protocols) -> Accepting:
        """Listens for the other nodes. Raises OSError."""
        context = self.trust.context(server=True)
        return Accepting(loop, listen(self._listen, shared=False), context, lambda: Guard(self._guards, serving()))

    async def open(self, loop: asyncio.AbstractEventLoop, asking: Protocols, serving: Protocols) -> None:
        """Connects to the giver. Raises OSError."""
        election = self.election
        row = election.row
        if election.elected is not None and row is not None:
            self._opened = row.owner, row.epoch
            await _connect_inside(loop, asking, serving)
            return
        if row is None or not row.owner or not self.trust.is_in():
            raise OSError("there is no giver")
        failed_at, *failed = self._failed
        if failed == [row.owner, row.epoch] and time.monotonic() - failed_at < AGAIN_S:
            raise OSError(self._why)
        node = row.owner.partition("/")[0]
        try:
            host, port = peer_address(row.address)
            guards: list[Guard] = []

            def guarded() -> Guard:
                guards.append(Guard(self._guards, asking(), node, ended=self._lost))
                return guards[-1]

            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(
                    guarded, host, port, ssl=self.trust.context(server=False), server_hostname=SERVICE,
                    ssl_handshake_timeout=CONNECT_S,
                )  # fmt: skip
            if not guards[-1].is_let_in:
                raise Refused(f"the certificate there is not that of node {node}")
        except (OSError, ValueError, TimeoutError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            self._failed = (time.monotonic(), row.owner, row.epoch)
            self._why = (
                f"node {node} at {row.address}, which divides the limits of destinations, cannot be reached: {why}"
            )
            raise OSError(self._why) from None
        self._why = ""
        self._opened = row.owner, row.epoch

    def is_current(self) -> bool:
        """Returns whether the last connection leads to the giver, as far as this node knows."""
        row = self.election.row
        return row is None or not row.owner or (row.owner, row.epoch) == self._opened

    def trouble(self) -> str:
        """Returns why this process cannot meet the others; "" if nothing is known."""
        if not self.trust.is_in():
            return self.trust.why_not
        fault = self.election.fault
        return fault.message if fault is not None else self._why

    def _lost(self) -> None:
        """Waits a moment before another connection to the same giver: it may refuse us."""
        self._failed = (time.monotonic(), *self._opened)


async def _connect_inside(loop: asyncio.AbstractEventLoop, asking: Protocols, serving: Protocols) -> None:
    """Connects this process with itself."""
    ours, theirs = socket.socketpair()
    try:
        for each in (ours, theirs):
            each.setblocking(False)
        await loop.create_unix_connection(serving, sock=theirs)
        await loop.create_unix_connection(asking, sock=ours)
    except BaseException:
        ours.close()
        theirs.close()
        raise
