"""Reads from the database what people want to know of nodes, shards and servers, for commands and pages alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from mailcore.config.known_nodes import NodesSeen, SeenNode, SeenShard, SeenStandby, write_seen
from mailcore.config.settings import Settings
from mailcore.nodes.apart import line_of
from mailcore.nodes.parameters import node_of, parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.giver_row import read_giver
from mailcore.replication.guarantees import Findings, open_checked
from mailcore.replication.node_row import list_nodes, read_troubles
from mailcore.replication.node_trust import read_trust
from mailcore.replication.parameters import StoreParameters
from mailcore.replication.shard import RENEWAL_TIMEOUT_S, ShardRow, list_shards
from mailcore.replication.statements import STANDBYS
from mailcore.replication.values import as_bool, as_int, as_text

__all__ = ["Looking", "look"]

TELL_EVERY_S = 2.0
_UNKNOWN = -1  # of a figure that the database does not say


class Looking:
    """Writes what it reads into the file for people, over a connection of its own."""

    def __init__(
        self,
        settings: Settings,
        troubles: Callable[[], list[str]] = list,
        *,
        opener: Callable[[StoreParameters], tuple[Connection, Findings]] = open_checked,
    ) -> None:
        """``troubles``: returns why this node does not do what the rows ask of it."""
        self._settings = settings
        self._troubles = troubles
        self._opener = opener
        self._connection: Connection | None = None
        self._node = node_of(settings)
        self._seen = NodesSeen(node=self._node, at=0.0)

    def once(self) -> float:
        """Looks once, and returns when to look again. Raises FaultError, OSError; the file says that, too."""
        try:
            if self._connection is None:
                self._connection, _ = self._opener(parameters_of(self._settings))
            self._seen = look(self._connection, self._node)
            self._seen.troubles = self._troubles()
        except Exception as error:
            self.close()
            self._seen.fault = line_of(error) or type(error).__name__
            self._write()
            raise
        self._write()
        return TELL_EVERY_S

    def close(self) -> None:
        """Closes the socket."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self) -> None:
        # It is for people: a disk without room is none of the database's faults.
        with contextlib.suppress(OSError):
            write_seen(self._settings.run_directory, self._seen)


def look(connection: Connection, node: str, wall: Callable[[], float] = time.time) -> NodesSeen:
    """Reads all rows. ``node`` is this one. Raises ServerError, Lost."""
    at = wall()
    shards = list_shards(connection)
    giver = read_giver(connection)
    return NodesSeen(
        node=node,
        at=at,
        server=str(connection.host),
        nodes=_nodes(connection, [row for row, _ in shards]),
        shards=[
            SeenShard(
                name=row.name,
                number=row.number,
                state=row.state,
                node=row.node,
                epoch=row.epoch,
                renewed_s_ago=renewed_s_ago,
                placed=row.placed,
                moves_to=row.wanted,
                handed_over=row.is_released,
            )
            for row, renewed_s_ago in shards
        ],
        standbys=_standbys(connection),
        giver=giver.owner.partition("/")[0] if giver is not None else "",
    )


def _nodes(connection: Connection, shards: list[ShardRow]) -> list[SeenNode]:
    trusted = {row.node: row for row in read_trust(connection, RENEWAL_TIMEOUT_S)}
    rows = {row.name: row for row in list_nodes(connection)}
    troubles = read_troubles(connection)
    owners = {row.node for row in shards if row.node}
    found = []
    for name in sorted(rows.keys() | trusted.keys() | owners):
        row = rows.get(name)
        found.append(
            SeenNode(
                name=name,
                state=row.state if row is not None else "",
                alive=row is not None and row.is_alive,
                seen_s_ago=row.seen_s_ago if row is not None else None,
                since=float(row.since) if row is not None else None,
                shards=[shard.name for shard in shards if shard.node == name],
                is_in=name in trusted,
                address=trusted[name].address if name in trusted else "",
                troubles=troubles.get(name, []) if row is not None and row.is_alive else [],
            )
        )
    return found


def _standbys(connection: Connection) -> list[SeenStandby] | None:
    """Returns the standbys that are connected; None if our role may not see them."""
    rows = connection.execute(STANDBYS, [], RENEWAL_TIMEOUT_S).rows
    if not as_bool(rows[0][0]):
        return None
    return [
        SeenStandby(
            name=as_text(name),
            address=as_text(address),
            state=as_text(state),
            sync_state=as_text(sync_state),
            behind_bytes=_known(as_int(behind_bytes)),
            behind_s=None if as_int(behind_ms) == _UNKNOWN else as_int(behind_ms) / 1000,
        )
        for _, name, address, state, sync_state, behind_bytes, behind_ms in rows
        if name is not None
    ]


def _known(figure: int) -> int | None:
    return None if figure == _UNKNOWN else max(figure, 0)
