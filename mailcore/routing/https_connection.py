"""A connection for HTTPS to a host of which the addresses are known."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

from mailcore.routing.mx import Address

__all__ = ["ADDRESSES_MAX", "connected", "trusting"]

ADDRESSES_MAX = 3  # that are tried
LINE_BYTES_MAX = 65_536  # that a reader keeps


def trusting(ca_file: str) -> ssl.SSLContext:
    """Returns the TLS that trusts the CAs of this system, and those of ``ca_file`` if it is not "". Raises OSError."""
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


async def connected(
    addresses: Sequence[Address],
    host: str,
    port: int,
    context: ssl.SSLContext,
    timeout_s: float,
    limit: int = LINE_BYTES_MAX,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection to the first address that can be reached. Raises OSError.

    A fault of TLS is the host's and not the address's: after ssl.SSLError no other is tried. ``timeout_s`` is the time limit
    of the caller for all that it does: each address but the last has its part of it, the last has what is left.
    """
    error: OSError | None = None
    tried = addresses[:ADDRESSES_MAX]
    for number, address in enumerate(tried, 1):
        share_s = timeout_s / ADDRESSES_MAX if number < len(tried) else None
        try:
            async with asyncio.timeout(share_s):
                return await asyncio.open_connection(
                    address.address, port, ssl=context, server_hostname=host, limit=limit
                )
        except ssl.SSLError:
            raise
        except OSError as failed:
            error = failed
    raise error or OSError("no address")
