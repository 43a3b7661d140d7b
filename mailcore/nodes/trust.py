"""The nodes that this one trusts now: those in the database whose certificates the authority has signed.

- law: trust-is-a-row. A connection between nodes is used only while the certificate of the other node is the one in the
  database, under the name that is expected. A node that was removed is refused, and its connections are ended, as soon as the
  rows were read again; this one gives and takes nothing any more when its own row is gone.

The rows are read by a thread; the loop reads what it has found last. While a manager cannot read the database, that stays: a
node whose trust ended meanwhile gets at most the shares of a giver whose election holds, and none does for longer than seconds.
``peers`` believes what it has read for ``BELIEVED_S`` only: what it passes on depends on nothing else that ends.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Mapping

from mailcore.config.settings import Settings
from mailcore.nodes.node_files import AUTHORITY, CERTIFICATE, KEY, directory_of
from mailcore.replication.connection import Connection
from mailcore.replication.lease_keeper import boot_time_s
from mailcore.replication.node_trust import TrustRow, move_trust, read_trust

__all__ = ["BELIEVED_S", "SERVICE", "Trust"]

BELIEVED_S = 10.0  # rows that were read, where nothing else ends a connection

SERVICE = "waypost-shares"  # ALPN: what managers speak about the limits of destinations
_TIMEOUT_S = 3.0
_JOIN = "run waypost node join"


class Trust:
    """The rows of the nodes, and the TLS of this one. ``address`` is where others reach it.

    Rows that were read longer than ``believed_s`` ago count no more.
    """

    def __init__(
        self,
        settings: Settings,
        node: str,
        address: str,
        *,
        believed_s: float = math.inf,
        clock: Callable[[], float] = boot_time_s,
    ) -> None:
        self.node = node
        self._address = address
        self._directory = directory_of(settings)
        self._rows: Mapping[str, TrustRow] = {}
        self._own = b""
        self._why_not = "the database was not read yet"
        self._believed_s = believed_s
        self._clock = clock
        self._read_at = -math.inf  # the rows may have changed since then

    def read(self, connection: Connection) -> None:
        """Reads the rows, in the thread of the election. Raises StoreError."""
        asked_at = self._clock()
        rows = {row.node: row for row in read_trust(connection, _TIMEOUT_S)}
        try:
            own = ssl.PEM_cert_to_DER_cert((self._directory / CERTIFICATE).read_text("ascii"))
        except (OSError, ValueError) as error:
            own, why = b"", f"node {self.node} has not joined ({error}): {_JOIN}"
        else:
            mine = rows.get(self.node)
            why = "" if mine is not None and mine.certificate == own else f"node {self.node} is not in: {_JOIN}"
            if mine is not None and not why and mine.address != self._address:
                move_trust(connection, self.node, self._address, own)
        self._rows, self._own, self._why_not, self._read_at = rows, own, why, asked_at

    @property
    def why_not(self) -> str:
        """Returns why this node is not in, as far as it knows; "" if it is."""
        age_s = self._clock() - self._read_at
        if not self._why_not and age_s > self._believed_s:
            return f"the database was not read for {age_s:.0f} s, so no other node is trusted"
        return self._why_not

    def is_in(self) -> bool:
        """Returns whether this node is in."""
        return not self.why_not

    def name_of(self, certificate: bytes | None) -> str:
        """Returns the node that has a certificate (DER); "" for an unknown one, and for all while this node is not in."""
        if not certificate or self.why_not:
            return ""
        return next((row.node for row in self._rows.values() if row.certificate == certificate), "")

    def address_of(self, node: str) -> str:
        """Returns where a node is reached; "" if it is not in."""
        row = self._rows.get(node)
        return "" if row is None else row.address

    @property
    def nodes(self) -> list[str]:
        """Returns the names of the nodes that are in, of this one, too."""
        return list(self._rows)

    @property
    def certificate(self) -> bytes:
        """Returns the certificate of this node (DER), as its file was read last; empty if it is missing."""
        return self._own

    def context(self, *, server: bool, service: str = SERVICE) -> ssl.SSLContext:
        """Returns what TLS needs, out of the files as they are now. Raises OSError, as for a key that cannot be read.

        ``service``: what is spoken over the connection.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The name is judged by the row of the certificate, not by a name in it.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self._directory / AUTHORITY)
        context.load_cert_chain(self._directory / CERTIFICATE, self._directory / KEY)
        context.set_alpn_protocols([service])
        if server:
            context.num_tickets = 0  # each connection shows its certificate
        return context
